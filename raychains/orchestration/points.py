"""Networks between and around samples, measured by the evaluators; what was measured is kept in the store."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raychains import tasks
from raychains.errors import RaychainsError
from raychains.orchestration.evaluators import Evaluator, Evaluators
from raychains.orchestration.lost import died, lost_object, storage_away
from raychains.orchestration.placement import Placement
from raychains.planning.comparison import Comparison
from raychains.planning.points import Point
from raychains.store import Root
from raychains.store.measured import Measured
from raychains.tasks.splits import check_split

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Points handed to one evaluator ahead of its answers."""
ATTEMPTS = 10
"""Evaluators that one point may lose before it is given up: it may be what kills them."""
WAIT = 0.5
"""Seconds between looks at Ctrl-C."""

Progress = Callable[[int, int], None]
"""Told (points done, points)."""


def measure(
    comparison: Comparison,
    root: Root,
    placement: Placement,
    split: str,
    points: Sequence[Point],
    progress: Progress | None = None,
    *,
    evaluators: Evaluators | None = None,
) -> list[dict[str, float]]:
    """The split's metrics of each point's own network, in the points' order. Ray must be connected.

    Points that were measured before are read from the store; of the others each is published as soon as it is done, so
    that an interrupted call goes on where it was. Equal points are measured once. What an evaluator takes along when it
    is lost is done again.

    Args:
        comparison: the run whose samples the points are made of: its task.
        root: the store.
        placement: how many evaluators, with which share of GPUs, data root and bins.
        split: name of the task's split.
        points: what to measure.
        progress: told (points done, points).
        evaluators: to work with, left running; default as many as the placement says, ended with this call.

    Raises:
        UserError: a split that the task lacks, a task that is a density, or what its data cannot do.
        RaychainsError: a point failed, or lost `ATTEMPTS` evaluators.
    """
    task = tasks.build(comparison.task_spec)
    check_split(task.splits(), split)
    kept = Measured(root, comparison.task_spec, task.splits()[split].fingerprint, {"bins": placement.bins})
    wanted = {point.key: point for point in points}
    found = {key: metrics for key in wanted if (metrics := kept.read(key)) is not None}
    told = progress or (lambda done, total: None)
    told(len(found), len(wanted))
    missing = [point for key, point in wanted.items() if key not in found]
    if missing:
        mine = evaluators if evaluators is not None else Evaluators.of(comparison, root, placement)
        try:
            for key, metrics in _measured(mine, split, missing):
                kept.write(key, metrics)
                found[key] = metrics
                told(len(found), len(wanted))
        finally:
            if evaluators is None:
                mine.close()
    return [dict(found[point.key]) for point in points]


def _measured(evaluators: Evaluators, split: str, points: Sequence[Point]) -> Iterable[tuple[str, dict[str, float]]]:
    """(key, metrics) of each point as it comes."""
    waiting = deque(points)
    attempts: dict[str, int] = {}
    asked: dict[Any, tuple[Evaluator, Point]] = {}
    while waiting or asked:
        _submit(evaluators, split, waiting, asked)
        ready, _ = ray.wait(list(asked), timeout=WAIT)
        for ref in ready:
            evaluator, point = asked.pop(ref)
            try:
                yield point.key, ray.get(ref)
            except RayError as error:
                attempts[point.key] = attempts.get(point.key, 0) + (not storage_away(error))
                _check(error, attempts[point.key])
                again = [point]
                if died(error):
                    log.warning("an evaluator was lost; its points are measured again")
                    again += _forget(evaluators, evaluator, asked)
                waiting.extendleft(reversed(again))


def _submit(
    evaluators: Evaluators, split: str, waiting: deque[Point], asked: dict[Any, tuple[Evaluator, Point]]
) -> None:
    """Give points to evaluators with room, starting evaluators up to their number where there is work for them."""
    while len(evaluators.running) < min(evaluators.limit, len(waiting) + len(asked)):
        evaluators.start()
    busy = {id(e): 0 for e in evaluators.running}
    for evaluator, _ in asked.values():
        busy[id(evaluator)] += 1
    while waiting:
        evaluator = min(evaluators.running, key=lambda e: busy[id(e)])
        if busy[id(evaluator)] >= IN_FLIGHT:
            return
        point = waiting.popleft()
        busy[id(evaluator)] += 1
        asked[evaluator.actor.measure.remote(split, point.to_json())] = (evaluator, point)


def _forget(evaluators: Evaluators, lost: Evaluator, asked: dict[Any, tuple[Evaluator, Point]]) -> list[Point]:
    """Take a dead evaluator out; the points that went with it."""
    if lost in evaluators.running:
        evaluators.running.remove(lost)
    gone = [ref for ref, (evaluator, _) in asked.items() if evaluator is lost]
    return [asked.pop(ref)[1] for ref in gone]


def _check(error: RayError, attempts: int) -> None:
    """Raise what no second attempt mends."""
    cause = getattr(error, "cause", None)
    if storage_away(error):
        return
    if isinstance(error, RayTaskError) and isinstance(cause, RaychainsError):
        raise cause from None
    if not (died(error) or lost_object(error)):
        raise RaychainsError(f"a point failed: {error}") from error
    if attempts > ATTEMPTS:
        raise RaychainsError(f"a point lost {attempts} evaluators in a row: {error}") from error
