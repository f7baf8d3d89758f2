"""The evaluation side of a run: samples become blocks while chains still run, complete views become metrics."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from raychains.chain import expected_samples
from raychains.errors import RaychainsError
from raychains.orchestration.evaluator import EvaluationWorker
from raychains.orchestration.pool import Pooled, SamplePool
from raychains.planning.comparison import Comparison
from raychains.sample import THETA

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Samples handed to one evaluator ahead of its answers."""
ATTEMPTS = 3
"""Times one job is tried before evaluation is given up."""

Key = tuple[str, str, int]


@dataclass(frozen=True)
class ViewKey:
    """One arm's group of repeats: what one predictive is formed from."""

    arm: int
    group: int


@dataclass(frozen=True, kw_only=True)
class ViewResult:
    """What `EvaluationWorker.summarise` found."""

    key: ViewKey
    samples: int
    metrics: list[dict[str, float]]
    curves: list[dict[str, list[float]]]
    rows: Mapping[str, Any]


@dataclass
class _View:
    key: ViewKey
    chains: list[str]
    missing: int
    """Samples without blocks so far."""
    done: bool = False


@dataclass
class _Job:
    """A prediction (of one sample) or a summary (of one view), and how often it was tried."""

    what: Pooled | _View
    attempts: int = 0


@dataclass
class _Evaluator:
    actor: Any
    jobs: dict[Any, _Job] = field(default_factory=dict)


class Dispatcher:
    """Hands samples to evaluators as they come and views as they are complete.

    Args:
        comparison: its arms and groups are the views.
        pool: the run's samples; references are let go once predicted.
        store: URI of the run store.
        split: the task's split to evaluate on.
        shards: how many shards the split has.
        data_root: for the tasks that evaluators build.
        evaluators: how many evaluators may be started.
    """

    def __init__(
        self,
        comparison: Comparison,
        pool: SamplePool,
        *,
        store: str,
        split: str,
        shards: int,
        data_root: str | None,
        evaluators: int,
    ) -> None:
        self._pool, self._shards, self._limit = pool, shards, evaluators
        self._arguments = (store, comparison.task_spec.to_json(), split, data_root)
        specs = comparison.chains()
        # A density's predictive would be a law of θ and θₐ mixed; a network's averages the predictions of both.
        self._variable = THETA if any(spec.block_draws for spec in specs.values()) else None
        expected = {digest: expected_samples(spec, self._variable) for digest, spec in specs.items()}
        self._views = [
            _View(ViewKey(a, g), [s.digest for s in group], sum(expected[s.digest] for s in group))
            for a, arm in enumerate(comparison.arms)
            for g, group in enumerate(arm.chains)
        ]
        self._jobs: deque[_Job] = deque()
        self._evaluators: list[_Evaluator] = []
        self._blocks: dict[Key, list[Any]] = {}
        self._seen: set[Key] = set()
        self.evaluated = 0
        self.expected = sum(expected.values())
        """Samples of all chains that are evaluated."""

    # What the run tells

    def add(self, pooled: Pooled) -> None:
        """A sample is in the pool: predict it, unless that was done or it is not evaluated."""
        key = _key(pooled)
        if self._variable not in (None, pooled.record.meta.variable):
            pooled.ref = None  # its durable copy is enough
        elif key not in self._seen:
            self._seen.add(key)
            self._jobs.append(_Job(pooled))

    def abandon(self, digest: str) -> None:
        """A chain will not finish: its views have no result."""
        self._views = [v for v in self._views if digest not in v.chains]

    # Working

    @property
    def idle(self) -> bool:
        """Whether nothing is left to evaluate."""
        return all(v.done for v in self._views) and not self._jobs and not any(e.jobs for e in self._evaluators)

    def references(self) -> list[Any]:
        """References to wait for."""
        return [ref for e in self._evaluators for ref in e.jobs]

    def owns(self, ref: Any) -> bool:
        """Whether a reference is one of `references` (an evaluator's death takes its others along)."""
        return any(ref in e.jobs for e in self._evaluators)

    def pump(self) -> None:
        """Give waiting jobs to evaluators that have room, starting evaluators up to their number."""
        if (not self._evaluators and not self.idle) or (self._jobs and len(self._evaluators) < self._limit):
            self._start()  # the first at once: its imports take seconds, like those of the chains' workers
        while self._jobs:
            evaluator = min(self._evaluators, key=lambda e: len(e.jobs))
            if len(evaluator.jobs) >= IN_FLIGHT:
                return
            self._submit(evaluator, self._jobs.popleft())

    def take(self, ref: Any) -> ViewResult | None:
        """Deal with a reference that is ready; the view's result when it was one."""
        evaluator = next(e for e in self._evaluators if ref in e.jobs)
        job = evaluator.jobs.pop(ref)
        try:
            return self._finish(job, ref)
        except RayActorError as error:
            self._lost(evaluator)
            self._again(job, error)
        except RayTaskError as error:
            self._again(job, error)
        except RayError as error:  # the object went with its node: the durable copy is read next time
            self._again(job, error)
        return None

    def close(self) -> None:
        """End the evaluators."""
        for e in self._evaluators:
            ray.kill(e.actor)
        self._evaluators = []

    def _start(self) -> None:
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        self._evaluators.append(_Evaluator(ray.remote(**options)(EvaluationWorker).remote(*self._arguments)))

    def _submit(self, evaluator: _Evaluator, job: _Job) -> None:
        job.attempts += 1
        if isinstance(job.what, Pooled):
            record = job.what.record
            call = evaluator.actor.predict.options(num_returns=1 + self._shards)
            done, *self._blocks[_key(job.what)] = call.remote(record.meta.digest, record.file, job.what.ref)
        else:
            blocks = [self._blocks[_key(p)] for p in self._selected(job.what)]
            parts = [evaluator.actor.reduce.remote(shard, *[b[shard] for b in blocks]) for shard in range(self._shards)]
            done = evaluator.actor.summarise.remote(*parts)
        evaluator.jobs[done] = job

    def _finish(self, job: _Job, ref: Any) -> ViewResult | None:
        found = ray.get(ref)
        if isinstance(job.what, Pooled):
            job.what.ref = None
            self.evaluated += 1
            self._count(job.what.record.meta.digest)
            return None
        view = job.what
        view.done = True
        self._forget_blocks()
        return ViewResult(key=view.key, samples=len(self._selected(view)), **found)

    def _selected(self, view: _View) -> list[Pooled]:
        return self._pool.select(view.chains, variable=self._variable)

    def _count(self, digest: str) -> None:
        for view in self._views:
            if digest in view.chains:
                view.missing -= 1
                if view.missing == 0:
                    self._jobs.appendleft(_Job(view))  # finished rows first: people wait for them

    def _forget_blocks(self) -> None:
        needed = {d for v in self._views if not v.done for d in v.chains}
        for key in [k for k in self._blocks if k[0] not in needed]:
            del self._blocks[key]

    def _again(self, job: _Job, error: Exception) -> None:
        if job.attempts >= ATTEMPTS or isinstance(error, RayTaskError):
            raise RaychainsError(f"evaluation failed: {error}") from error
        if isinstance(job.what, Pooled):
            job.what.ref = None
        self._jobs.appendleft(job)

    def _lost(self, evaluator: _Evaluator) -> None:
        log.warning("an evaluator died; its work is done again")
        self._evaluators.remove(evaluator)
        self._jobs.extendleft(evaluator.jobs.values())


def _key(pooled: Pooled) -> Key:
    meta = pooled.record.meta
    return (meta.digest, meta.variable, meta.index)


def recovered(pool: SamplePool, records: Iterable[Any]) -> list[Pooled]:
    """Put durable samples into the pool, without references."""
    return [pool.add(record, None) for record in records]
