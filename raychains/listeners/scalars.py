"""What trackers draw: each chain's numbers, now and then while it runs and once more when it ends; each view's metrics.

Chains are named by the first 12 digits of their digests. Their x axis is gradient evaluations, on which all methods cost
the same; views have the repeat's number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raychains.planning.listener import ChainFinished, ChainStatus, Happening, Over, Tick, ViewDone

EVERY = 2.0
"""Seconds between two points of a chain, at least; a thousand chains get theirs every ten."""
PER_CHAIN = 0.01
"""Seconds by which each running chain lengthens that: what a tick costs stays bounded."""
FIELDS = ("loss", "lr", "temperature", "kinetic_temperature", "cycle", "step", "steps_per_second", "samples")
"""Of `ChainStatus`, those that are numbers and may be drawn."""


@dataclass(frozen=True)
class Point:
    """One chain's numbers at one place of its x axis."""

    chain: str
    gradients: int
    values: dict[str, float]


def short(digest: str) -> str:
    """A chain's name for people."""
    return digest[:12]


class Points:
    """Chooses what of the ticks is worth a point.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drawn: dict[str, tuple[int, float]] = {}
        """Step and time of each running chain's last point."""
        self._last: dict[str, ChainStatus] = {}

    def of(self, happening: Happening) -> Iterator[Point]:
        """The points that this happening gives."""
        if isinstance(happening, Tick):
            now, apart = self._clock(), max(EVERY, PER_CHAIN * len(happening.running))
            for status in happening.running:
                if not status.step:
                    continue
                self._last[status.digest] = status
                step, at = self._drawn.get(status.digest, (-1, float("-inf")))
                if status.step != step and now - at >= apart:
                    yield self._point(status, now)
        elif isinstance(happening, ChainFinished):
            yield from self._rest([happening.digest])
        elif isinstance(happening, Over):
            yield from self._rest([*self._last])

    def _rest(self, digests: list[str]) -> Iterator[Point]:
        for digest in digests:
            status = self._last.pop(digest, None)
            if status is not None and self._drawn.pop(digest, (-1, 0.0))[0] != status.step:
                yield _point(status)

    def _point(self, status: ChainStatus, now: float) -> Point:
        self._drawn[status.digest] = (status.step, now)
        return _point(status)


def _point(status: ChainStatus) -> Point:
    values = {name: getattr(status, name) for name in FIELDS}
    numbers = {n: float(v) for n, v in values.items() if v is not None and math.isfinite(v)}
    return Point(short(status.digest), status.gradients, numbers)


class Repeats:
    """Numbers the repeats of each arm as their views are done."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}

    def of(self, view: ViewDone) -> list[tuple[int, dict[str, float]]]:
        """(number from 1, finite metrics) of each repeat in the view."""
        first = self._done.get(view.arm, 0) + 1
        self._done[view.arm] = first + len(view.metrics) - 1
        return [
            (first + i, {n: float(v) for n, v in m.items() if math.isfinite(v)}) for i, m in enumerate(view.metrics)
        ]
