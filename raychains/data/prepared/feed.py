"""Batches of cut pictures, made ahead by whatever carries them: long-lived decoder processes, unless told otherwise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from raychains.data.prepared.carrier import Carry, Cutting, DecodingFailed
from raychains.data.prepared.order import ShardedOrder
from raychains.data.prepared.processes import Processes
from raychains.data.prepared.rows import Rows
from raychains.errors import StorageAway, require

Array = np.ndarray[Any, Any]
AHEAD = 4
"""Batches that are made while one is learned from."""


class Feed:
    """Gives an epoch's batches, or a share of each, in order; use it as a context, or `close` it.

    Args:
        cutting: what is cut.
        rows: of the same set and split.
        decoders: processes beside this one, unless ``carry`` says who decodes.
        ahead: batches that are made ahead, each of which takes memory for its pixels.
        carry: makes the carrier.

    Raises:
        UserError: numbers out of range.
    """

    def __init__(
        self, cutting: Cutting, rows: Rows, *, decoders: int = 1, ahead: int = AHEAD, carry: Carry | None = None
    ) -> None:
        require(ahead >= 1, "ahead", ahead, "be at least 1")
        ok = 0 <= cutting.first < cutting.last <= cutting.parts
        require(ok, "first", cutting.first, f"lie below last ({cutting.last}), which lies in [1, {cutting.parts}]")
        self._cutting, self._rows, self._ahead = cutting, rows, ahead
        self._carrier = carry(cutting) if carry is not None else Processes(cutting, decoders=decoders, ahead=ahead)

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Pixels uint8 [part, size, size, 3] and labels int64 [part] of every batch from the ``start``-th on.

        The pixels stay as they are until the next batch is asked for. One epoch at a time.

        Raises:
            DecodingFailed: a picture is damaged, or a decoder's process beside this one ended; the feed is closed then.
            StorageAway: the pictures could not be reached for long; it is closed then, too.
        """
        order = ShardedOrder(self._rows.split.rows, self._cutting.batch_size, seed, self._cutting.window)
        asked: deque[int] = deque()
        steps = iter(range(start, len(order)))
        try:
            self._carrier.begin(order)
            while True:
                while len(asked) < self._ahead and (step := next(steps, None)) is not None:
                    self._carrier.ask(step)
                    asked.append(step)
                if not asked:
                    return
                step = asked.popleft()
                pixels = self._carrier.take(step)
                part = self._cutting.of(order[step])
                yield pixels[: len(part)], self._rows.labels[part.indices]
        except (DecodingFailed, StorageAway):
            self.close()
            asked.clear()
            raise
        finally:
            for step in asked:  # an epoch that is left early: the next one must not meet its answers
                self._carrier.drop(step)

    def close(self) -> None:
        """Give decoders and memory back."""
        self._carrier.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
