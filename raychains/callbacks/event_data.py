"""Events as plain JSON data, and as the numbers that trackers draw: each chain's over its gradient evaluations, each
view's.

Chains are named by the first 12 digits of their digests. Gradient evaluations cost the same under all methods; views
have the repeat's number instead.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raychains.core.spec import ChainSpec
from raychains.planning.comparison import Comparison
from raychains.planning.events import ChainFinished, ChainReported, ChainStatus, RunEnded, RunEvent, Tick, ViewDone
from raychains.store import RunStore

EVERY = 2.0
"""Seconds between two points of a chain, at least; a thousand chains get theirs every ten."""
PER_CHAIN = 0.01
"""Seconds by which each running chain lengthens that: the cost of a tick stays bounded."""
FIELDS = ("loss", "lr", "temperature", "kinetic_temperature", "cycle", "step", "steps_per_second", "samples")
"""The numbers of `ChainStatus` that are drawn."""


def record(event: Any) -> dict[str, Any]:
    """Return the event's fields under their names; a comparison's identity alone, since plan.json holds all of it.

    A field with the metadata ``omitted_default`` is left out at its default.
    """
    fields = {
        f.name: value
        for f in dataclasses.fields(event)
        if (value := getattr(event, f.name)) != f.default or not f.metadata.get("omitted_default")
    }
    if isinstance(plan := fields.pop("comparison", None), Comparison):
        arms = [
            {name: getattr(arm, name) for name in ("name", "label", "repeats", "cost")}
            | {"chains": [[spec.digest for spec in group] for group in arm.chains]}
            for arm in plan.arms
        ]
        fields |= {"task": plan.task, "unit": plan.unit, "split": plan.split, "plan": plan.digest, "arms": arms}
    return {"event": event.event, **plain(fields)}


def plain(value: Any) -> Any:
    """Return ``value`` as nested JSON data.

    A chain's spec becomes its digest, a folder its location, numpy's numbers become Python's, NaN and infinities null,
    other objects their text.
    """
    if isinstance(value, ChainSpec):
        return value.digest
    if isinstance(value, RunStore):
        return value.location()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) or value is None else str(value)


@dataclass(frozen=True)
class Point:
    """One chain's numbers at one place of its x axis."""

    chain: str
    gradients: int
    values: dict[str, float]


def short(digest: str) -> str:
    """Return a chain's name for people."""
    return digest[:12]


class Points:
    """Chooses the points to draw: each chain's now and then while it runs, and once more when it ends.

    A chain of a sweep has a point of its metrics after each cycle, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drawn: dict[str, tuple[int, float]] = {}
        """Step and time of each running chain's last point."""
        self._last: dict[str, ChainStatus] = {}

    def of(self, event: RunEvent) -> Iterator[Point]:
        """Yield the points of this event."""
        if isinstance(event, Tick):
            now, apart = self._clock(), max(EVERY, PER_CHAIN * len(event.running))
            for status in event.running:
                if not status.step:
                    continue
                self._last[status.digest] = status
                step, at = self._drawn.get(status.digest, (-1, float("-inf")))
                if status.step != step and now - at >= apart:
                    self._drawn[status.digest] = (status.step, now)
                    yield _point(status)
        elif isinstance(event, ChainReported):
            yield Point(short(event.digest), event.gradients, _finite(event.metrics))
        elif isinstance(event, ChainFinished | RunEnded):
            for digest in [event.digest] if isinstance(event, ChainFinished) else [*self._last]:
                last = self._last.pop(digest, None)
                if last is not None and self._drawn.pop(digest, (-1, 0.0))[0] != last.step:
                    yield _point(last)


def _point(status: ChainStatus) -> Point:
    values = {name: getattr(status, name) for name in FIELDS}
    return Point(short(status.digest), status.gradients, _finite(values))


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {n: float(v) for n, v in values.items() if v is not None and math.isfinite(v)}


class Repeats:
    """Numbers the repeats of each arm as their views are done."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}

    def of(self, view: ViewDone) -> list[tuple[int, dict[str, float]]]:
        """Return (number from 1, finite metrics) of each repeat in the view."""
        first = self._done.get(view.arm, 0) + 1
        self._done[view.arm] = first + len(view.metrics) - 1
        return [(first + i, _finite(metrics)) for i, metrics in enumerate(view.metrics)]
