"""The evaluation side of a run: samples become blocks while chains still run, complete views become metrics.

Blocks and samples in Ray's object store are a cache. Whatever goes with a node or an evaluator is made again from the
durable samples, and a chain that takes another path takes its old samples' blocks along.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from raychains.chain import expected_samples
from raychains.errors import RaychainsError
from raychains.orchestration.evaluator import EvaluationWorker
from raychains.orchestration.lost import died, lost_object, storage_away
from raychains.orchestration.luggage import Luggage
from raychains.orchestration.pool import Pooled, SamplePool
from raychains.planning.comparison import Comparison
from raychains.sample import THETA
from raychains.store import starts

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Samples handed to one evaluator ahead of its answers."""
ATTEMPTS = 10
"""Evaluators or objects that one job may lose before evaluation is given up: a sample may be what kills them."""

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
    chains: int
    """Chains that it is formed from: without those that were dropped."""
    metrics: list[dict[str, float]]
    curves: list[dict[str, list[float]]]
    rows: Mapping[str, Any]


@dataclass
class _View:
    key: ViewKey
    chains: list[str]
    version: int = 0
    """Rises when its samples change: a summary of an older version is none."""
    asked: int = -1
    """The version that a summary was asked for."""
    done: bool = False


@dataclass
class _Predicted:
    """A sample and what became of it: blocks in the object store, unless none are there yet or they went."""

    pooled: Pooled
    done: bool = False
    """Whether it was predicted; its blocks are let go when no view needs them any more."""
    blocks: list[Any] | None = None
    node: str = ""
    """Where the blocks were made: they go with it."""


@dataclass
class _Job:
    """A prediction (of one sample) or a summary (of one view, in one version), and how often it was tried."""

    what: _Predicted | _View
    version: int = 0
    attempts: int = 0
    blocks: list[Any] = field(default_factory=list)


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
        luggage: what they need to build the task.
        gpus: share of GPUs that each evaluator holds.
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
        luggage: Luggage | None = None,
        gpus: float = 0.0,
    ) -> None:
        self._pool, self._shards, self._limit, self._gpus = pool, shards, evaluators, gpus
        self._arguments = (store, comparison.task_spec.to_json(), split, data_root, luggage, gpus)
        specs = comparison.chains()
        # A density's predictive would be a law of θ and θₐ mixed; a network's averages the predictions of both.
        self._variable = THETA if any(spec.block_draws for spec in specs.values()) else None
        self._expected = {digest: expected_samples(spec, self._variable) for digest, spec in specs.items()}
        self._starts = {digest: starts.needed(spec) for digest, spec in specs.items()}
        self._views = [
            _View(ViewKey(a, g), [s.digest for s in group])
            for a, arm in enumerate(comparison.arms)
            for g, group in enumerate(arm.chains)
        ]
        self._jobs: deque[_Job] = deque()
        self._evaluators: list[_Evaluator] = []
        self._samples: dict[Key, _Predicted] = {}
        self._count: Counter[str] = Counter()
        """Predicted samples by chain."""
        self.expected = sum(self._expected.values())
        """Samples of all chains that are evaluated."""

    # What the run tells

    def add(self, pooled: Pooled) -> None:
        """A sample is in the pool: predict it, unless that was done or it is not evaluated."""
        if self._variable not in (None, pooled.record.meta.variable):
            pooled.ref = None  # its durable copy is enough
            return
        known = self._samples.get(_key(pooled))
        if known is not None and known.pooled.record.sha256 == pooled.record.sha256:
            return
        self.forget([pooled])  # other bytes of another path, or of another machine's arithmetic
        self._samples[_key(pooled)] = sample = _Predicted(pooled)
        self._jobs.append(_Job(sample))

    def forget(self, gone: Iterable[Pooled]) -> None:
        """Samples were superseded: their views wait for others."""
        digests = set()
        for pooled in gone:
            sample = self._samples.pop(_key(pooled), None)
            if sample is not None:
                self._count[pooled.record.meta.digest] -= sample.done
                digests.add(pooled.record.meta.digest)
        for view in self._views:
            if not digests.isdisjoint(view.chains):
                self._changed(view)

    def abandon(self, digest: str) -> None:
        """A chain will not finish: its views have no result."""
        self._views = [v for v in self._views if digest not in v.chains]

    def drop(self, digest: str) -> None:
        """A chain will not finish: its views are formed from their other chains, if there are any."""
        for view in self._views:
            if digest in view.chains:
                view.chains.remove(digest)
                self._changed(view)
        self._views = [v for v in self._views if v.chains]
        self._ask_for_views()

    # Working

    @property
    def evaluated(self) -> int:
        """Samples that are predicted."""
        return self._count.total()

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
        except RayError as error:
            if died(error):
                self._lost(evaluator)
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
            "num_gpus": self._gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        self._evaluators.append(_Evaluator(ray.remote(**options)(EvaluationWorker).remote(*self._arguments)))

    def _submit(self, evaluator: _Evaluator, job: _Job) -> None:
        if self._stale(job):
            return
        if isinstance(job.what, _Predicted):
            record, ref = job.what.pooled.record, job.what.pooled.ref
            call = evaluator.actor.predict.options(num_returns=1 + self._shards)
            digest = record.meta.digest
            done, *job.blocks = call.remote(digest, record.file, ref, self._starts[digest])
        else:
            blocks = [self._samples[_key(p)].blocks or [] for p in self._selected(job.what)]
            parts = [evaluator.actor.reduce.remote(shard, *[b[shard] for b in blocks]) for shard in range(self._shards)]
            done = evaluator.actor.summarise.remote(*parts)
        evaluator.jobs[done] = job

    def _stale(self, job: _Job) -> bool:
        """Whether nobody waits for it any more: its sample was superseded, or its view changed."""
        if isinstance(job.what, _Predicted):
            return self._samples.get(_key(job.what.pooled)) is not job.what
        return job.what.version != job.version or job.what not in self._views

    def _finish(self, job: _Job, ref: Any) -> ViewResult | None:
        found = ray.get(ref)
        if self._stale(job):
            return None
        if isinstance(job.what, _Predicted):
            sample = job.what
            sample.pooled.ref, sample.blocks, sample.node, sample.done = None, job.blocks, found, True
            self._count[sample.pooled.record.meta.digest] += 1
            self._ask_for_views()
            return None
        view = job.what
        view.done = True
        self._forget_blocks()
        return ViewResult(key=view.key, samples=len(self._selected(view)), chains=len(view.chains), **found)

    def _selected(self, view: _View) -> list[Pooled]:
        return self._pool.select(view.chains, variable=self._variable)

    def _ask_for_views(self) -> None:
        """Summaries of the views that are complete: first of all, since people wait for them."""
        for view in self._views:
            complete = all(self._count[d] == self._expected[d] for d in view.chains)
            if complete and not view.done and view.asked != view.version:
                view.asked = view.version
                self._jobs.appendleft(_Job(view, view.version))

    def _changed(self, view: _View) -> None:
        """A view has other samples than before; what is left of them may have to be predicted again."""
        view.version, view.done = view.version + 1, False
        for sample in self._of(view):
            if sample.done and sample.blocks is None:
                self._predict_again(sample)

    def _of(self, view: _View) -> list[_Predicted]:
        return [s for (digest, _, _), s in self._samples.items() if digest in view.chains]

    def _predict_again(self, sample: _Predicted) -> None:
        sample.done, sample.blocks = False, None
        self._count[sample.pooled.record.meta.digest] -= 1
        self._jobs.append(_Job(sample))

    def _forget_blocks(self) -> None:
        needed = {d for v in self._views if not v.done for d in v.chains}
        for (digest, _, _), sample in self._samples.items():
            if digest not in needed:
                sample.blocks = None

    def _again(self, job: _Job, error: RayError) -> None:
        """Try a job once more where its failure was somebody else's."""
        if self._stale(job):
            return
        away = storage_away(error)
        if not (away or died(error) or lost_object(error)):
            raise RaychainsError(f"evaluation failed: {error}") from error
        job.attempts += not away
        if job.attempts > ATTEMPTS:
            raise RaychainsError(f"evaluation lost {job.attempts} evaluators or objects in a row: {error}") from error
        if isinstance(job.what, _Predicted):
            job.what.pooled.ref = None
        elif lost_object(error) and self._lost_blocks(job.what):
            job.what.asked = -1  # once they are there again
            return
        self._jobs.appendleft(job)

    def _lost_blocks(self, view: _View) -> bool:
        """Predict a view's blocks again that went with a node; all of them where no node is known to be gone."""
        alive = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
        samples = [s for s in self._of(view) if s.blocks is not None]
        gone = [s for s in samples if s.node not in alive] or samples
        log.warning("%d blocks were lost with a node; their samples are predicted again", len(gone) * self._shards)
        for sample in gone:
            self._predict_again(sample)
        return bool(gone)

    def _lost(self, evaluator: _Evaluator) -> None:
        log.warning("an evaluator was lost; its work is done again")
        self._evaluators.remove(evaluator)
        for job in evaluator.jobs.values():
            if isinstance(job.what, _Predicted):
                job.what.pooled.ref = None
            self._jobs.appendleft(job)


def _key(pooled: Pooled) -> Key:
    meta = pooled.record.meta
    return (meta.digest, meta.variable, meta.index)


def recovered(pool: SamplePool, records: Iterable[Any]) -> list[Pooled]:
    """Put durable samples into the pool, without references."""
    return [pool.add(record, None) for record in records]
