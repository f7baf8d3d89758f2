"""A decoder as an actor, and how a chain's worker reaches several: pictures go through Ray's object store.

The worker asks for pieces of its next batches and owns the answers, so what is decoded ahead goes with whoever asked for
it. Nothing here imports torch: a decoder is up as soon as Ray has a process for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from raychains.data.prepared.carrier import Carrier, Cutting, DecodingFailed
from raychains.data.prepared.feed import AHEAD
from raychains.data.prepared.pieces import Array, PieceCutter, Pieces
from raychains.data.prepared.processes import Processes
from raychains.data.prepared.processes import decoders as processes
from raychains.errors import StorageAway

log = logging.getLogger(__name__)

FIRST = 10.0
"""Seconds that a chain's first batch waits for a decoder to come up; then processes beside the chain begin."""
PATIENCE = 60.0
"""Seconds after which a decoder that does not answer is done without, until it does."""
AGAIN = 1.0
"""Seconds between attempts to reach a decoder that is being started again."""


class DecodingWorker:
    """The actor.

    Args:
        name: what people read before its log lines.
    """

    def __init__(self, name: str = "decoder") -> None:
        self._name, self._cutter = name, PieceCutter()

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> None:
        """Answered once it is up."""

    def cut(self, cutting: Cutting, seed: int, step: int, share: int, shares: int) -> Array:
        """The pictures of one share of a batch: see `PieceCutter.cut`. The caller owns the result."""
        return self._cutter.cut(cutting, seed, step, share, shares)


class Reached:
    """A chain worker's side: which decoders answer, what they were asked for; see `raychains.data.prepared.pieces`.

    Args:
        actors: the decoders.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.count, self._actors = len(actors), actors
        self._up: set[int] = set()
        self._awaited = {n: actor.ready.remote() for n, actor in enumerate(actors)}
        """Those that have not answered yet."""
        self._again: dict[int, float] = {}
        """When to try those that could not be reached."""
        ray.wait(list(self._awaited.values()), num_returns=1, timeout=FIRST)

    def up(self) -> Collection[int]:
        """Those that answered, and did not fail since."""
        if self._awaited or self._again:
            self._look()
        return self._up

    def _look(self) -> None:
        now = time.monotonic()
        for number in [n for n, due in self._again.items() if due <= now]:
            del self._again[number]
            self._awaited[number] = self._actors[number].ready.remote()
        for number, ref in list(self._awaited.items()):
            if not ray.wait([ref], timeout=0)[0]:
                continue
            del self._awaited[number]
            try:
                ray.get(ref)
                self._up.add(number)
            except ActorDiedError as error:  # its driver ended it, or it cannot be started
                log.info("decoder %d is gone: %s", number, error)
            except RayError:
                self._again[number] = now + AGAIN

    def ask(self, decoder: int, cutting: Cutting, seed: int, step: int, share: int) -> Any:
        """Have a piece cut, meanwhile."""
        return self._actors[decoder].cut.remote(cutting, seed, step, share, self.count)

    def fetch(self, asked: Sequence[Any]) -> None:
        """Let what is done come to this node's store."""
        if asked:
            ray.wait(list(asked), num_returns=len(asked), timeout=0)

    def answer(self, decoder: int, asked: Any) -> Array | None:
        """The piece; None where the decoder, or the node that held the answer, is gone.

        Raises:
            DecodingFailed: a picture is damaged.
            StorageAway: its storage could not be reached for long.
        """
        try:
            found: Array = ray.get(asked, timeout=PATIENCE)
            return found
        except RayTaskError as error:
            if isinstance(error.cause, DecodingFailed):
                raise DecodingFailed(f"decoder {decoder}: {error.cause}") from None
            if isinstance(error.cause, StorageAway):
                raise StorageAway(str(error.cause)) from None
            raise
        except RayError as error:  # its death, its node's, or no answer in time
            log.info("decoder %d is done without: %s", decoder, error)
        self._up.discard(decoder)
        self._again.pop(decoder, None)
        self._awaited[decoder] = self._actors[decoder].ready.remote()
        return None


def carry(actors: Sequence[Any], cutting: Cutting) -> Carrier:
    """Carries a chain's batches from these decoders; from processes beside it while none of them is up."""
    return Pieces(cutting, Reached(actors), partial(Processes, decoders=processes(), ahead=AHEAD))
