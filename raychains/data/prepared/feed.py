"""Batches of cut pictures, made ahead by long-lived decoder processes beside the one that learns from them."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from raychains.data.prepared.order import Part, ShardedOrder
from raychains.data.prepared.rows import Rows
from raychains.errors import RaychainsError, require

Array = np.ndarray[Any, Any]


class DecodingFailed(RaychainsError):
    """A picture, its storage or a decoder's process failed; the text says which."""


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """What is cut: whole batches, or one rank's share of each."""

    uri: str
    split: str
    size: int
    """Pixels of a side."""
    batch_size: int
    """Of the global batch."""
    window: int
    """W: row groups that are mixed."""
    first: int = 0
    last: int = 1
    parts: int = 1
    """Of each batch the pieces [first, last) of so many: see `Part.slice`."""

    def of(self, part: Part) -> Part:
        """What is cut of a batch."""
        return part.slice(self.first, self.parts, self.last)


class Feed:
    """Gives an epoch's batches, or a share of each, in order; use it as a context, or `close` it.

    Args:
        cutting: what is cut.
        rows: of the same set and split.
        decoders: processes.
        ahead: batches that are made ahead, each of which takes memory for its pixels.

    Raises:
        UserError: numbers out of range.
    """

    def __init__(self, cutting: Cutting, rows: Rows, *, decoders: int = 1, ahead: int = 4) -> None:
        require(decoders >= 1, "decoders", decoders, "be at least 1")
        require(ahead >= 1, "ahead", ahead, "be at least 1")
        ok = 0 <= cutting.first < cutting.last <= cutting.parts
        require(ok, "first", cutting.first, f"lie below last ({cutting.last}), which lies in [1, {cutting.parts}]")
        self._cutting, self._rows = cutting, rows
        self._slots = ahead + 1  # one is being learned from
        part = -(-cutting.batch_size * (cutting.last - cutting.first) // cutting.parts)
        shape = (self._slots, part, cutting.size, cutting.size, 3)
        size = int(np.prod(shape))
        self._file = _shared_file(size)
        self._pixels = np.frombuffer(mmap.mmap(self._file, size), dtype=np.uint8).reshape(shape)
        about = {**vars(cutting), "slots": self._slots, "part": part, "decoders": decoders, "file": self._file}
        self._decoders = [_Process({**about, "number": n}, self._file) for n in range(decoders)]
        for decoder in self._decoders:
            decoder.expect("ready")

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Pixels uint8 [part, size, size, 3] and labels int64 [part] of every batch from the ``start``-th on.

        The pixels stay as they are until the next batch is asked for. One epoch at a time.

        Raises:
            DecodingFailed: a picture is damaged, its storage is away, or a decoder's process ended; the feed is closed then.
        """
        order = ShardedOrder(self._rows.split.rows, self._cutting.batch_size, seed, self._cutting.window)
        self._tell(f"epoch {seed}")
        asked: deque[int] = deque()
        free = deque(range(self._slots))
        steps = iter(range(start, len(order)))
        taken: int | None = None
        slot_of: dict[int, int] = {}
        try:
            while True:
                while len(asked) < self._slots - 1 and (step := next(steps, None)) is not None:
                    slot_of[step] = free.popleft()
                    self._tell(f"cut {step} {slot_of[step]}")
                    asked.append(step)
                if not asked:
                    return
                step = asked.popleft()
                for decoder in self._decoders:
                    decoder.expect(f"done {step}")
                part = self._cutting.of(order[step])
                taken = slot_of.pop(step)
                yield self._pixels[taken, : len(part)], self._rows.labels[part.indices]
                free.append(taken)
        except DecodingFailed:
            self.close()
            asked.clear()
            raise
        finally:
            for _ in asked:  # an epoch that is left early: the next one must not meet its answers
                for decoder in self._decoders:
                    decoder.skip()

    def _tell(self, line: str) -> None:
        for decoder in self._decoders:
            decoder.tell(line)

    def close(self) -> None:
        """End the processes and give the memory back."""
        for decoder in self._decoders:
            decoder.end()
        self._decoders = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class _Process:
    """One decoder's process and the lines between us."""

    def __init__(self, about: dict[str, Any], file: int) -> None:
        self._number = about["number"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raychains.data.prepared.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(file,), text=True, env=environment,
        )  # fmt: skip
        self.tell(json.dumps(about))

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            print(line, file=self._process.stdin, flush=True)
        except OSError:
            raise self._ended() from None

    def expect(self, line: str) -> None:
        """Wait for this very line."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().rstrip("\n")
        if not said:
            raise self._ended()
        if said != line:
            raise DecodingFailed(f"decoder {self._number}: {said}")

    def skip(self) -> None:
        """Read an answer that nobody wants any more, whatever it is."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def _ended(self) -> DecodingFailed:
        status = self._process.wait()
        return DecodingFailed(f"decoder {self._number}: its process ended with status {status}")

    def end(self) -> None:
        """At once: it holds nothing that is not in the set."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # lines that it did not take
                pipe.close()


def _shared_file(size: int) -> int:
    """The descriptor of a nameless file of ``size`` bytes in memory where there is such a thing."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("raychains-pixels")  # a container's small /dev/shm does not bound it
    else:
        with tempfile.TemporaryFile() as f:
            file = os.dup(f.fileno())
    os.ftruncate(file, size)
    return file
