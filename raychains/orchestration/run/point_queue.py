"""Networks between and around samples: made from the store's samples, measured by the evaluators, and kept in the
store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raychains import tasks
from raychains.coordination.failure import LONGEST_LOOK
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.run.evaluator_pool import Evaluators, Job, JobQueue
from raychains.planning.comparison import Comparison
from raychains.planning.points import Point
from raychains.store import Storage
from raychains.store.caches import PointMetrics
from raychains.tasks.splits import check_split

WAIT = 0.5
"""Seconds between checks for Ctrl-C."""

Progress = Callable[[int, int], None]
"""Called with (points done, points)."""


def measure(
    comparison: Comparison,
    root: Storage,
    resources: ResourceConfig,
    split: str,
    points: Sequence[Point],
    progress: Progress | None = None,
    *,
    evaluators: Evaluators | None = None,
) -> list[dict[str, float]]:
    """Return the split's metrics of each point's own network, in the points' order. Ray must be connected.

    Points that were measured before are read from the store; of the others each is published as soon as it is done, so
    that an interrupted call continues after them; not of a split with metrics of the user's own. Equal points are
    measured once. The points of an evaluator that is lost are measured again.

    Args:
        comparison: the run whose samples the points are made of: its task.
        resources: how many evaluators, with which share of GPUs, data root and bins.
        evaluators: to work with, left running; default as many as ``resources`` says, ended with this call.

    Raises:
        UserError: a split that the task lacks, a task that is a density, or what its data cannot do.
        RaychainsError: a point failed, or lost too many evaluators.
    """
    task = tasks.build(comparison.task_spec)
    check_split(task.splits(), split)
    evaluation = task.splits()[split]
    cache = PointMetrics(root, comparison.task_spec, evaluation.fingerprint, {"bins": resources.bins})
    keeps = all(metric.of is None for metric in evaluation.metrics)  # a user's function may be another one next time
    unique = {point.key: point for point in points}
    found = {key: metrics for key in unique if keeps and (metrics := cache.read(key)) is not None}
    report = progress or (lambda done, total: None)
    report(len(found), len(unique))
    missing = [point for key, point in unique.items() if key not in found]
    if missing:
        mine = evaluators if evaluators is not None else Evaluators.of(comparison, root, resources)
        try:
            for key, metrics in _Points(mine, split, missing).measured():
                if keeps:
                    cache.write(key, metrics)
                found[key] = metrics
                report(len(found), len(unique))
        finally:
            if evaluators is None:
                mine.close()
    return [dict(found[point.key]) for point in points]


@dataclass(eq=False)
class _Job(Job):
    point: Point


class _Points(JobQueue[_Job]):
    """Points of one split that evaluators measure."""

    def __init__(self, evaluators: Evaluators, split: str, points: Sequence[Point]) -> None:
        super().__init__(evaluators, "a point")
        self._split = split
        self._jobs.extend(_Job(point) for point in points)

    def call(self, actor: Any, job: _Job) -> Any:
        """Have a point measured."""
        return self.workers.call(actor, "measure", self._split, job.point)

    def done(self, job: _Job, answer: dict[str, float]) -> tuple[str, dict[str, float]]:
        """Return (key, metrics)."""
        return job.point.key, answer

    def measured(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield (key, metrics) of each point as it comes."""
        heard = time.monotonic()
        try:
            while self._jobs or self._asked:
                self.submit()
                now = time.monotonic()
                self.watch(min(now - heard, LONGEST_LOOK))
                heard = now
                for ref in self.workers.wait(self.references(), WAIT):
                    if self.owns(ref) and (found := self.take(ref)) is not None:
                        yield found
        finally:
            self.close()  # the next measure has the same evaluators
