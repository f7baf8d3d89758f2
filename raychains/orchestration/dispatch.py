"""The evaluation side of a run: samples become blocks while chains still run, complete views become metrics.

Blocks and samples in Ray's object store are a cache. Whatever goes with a node or an evaluator is made again from the
durable samples, and a chain that takes another path takes its old samples' blocks along.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from raychains.errors import RaychainsError
from raychains.orchestration import wanted
from raychains.orchestration.evaluators import Evaluator, Evaluators
from raychains.orchestration.lost import died, lost_object, storage_away
from raychains.orchestration.outcome import ViewKey, ViewResult
from raychains.orchestration.pool import Pooled, SamplePool
from raychains.orchestration.wanted import Views, Wanted, key
from raychains.planning.comparison import Comparison
from raychains.planning.views import Key
from raychains.positions import expected_samples
from raychains.store import starts

log = logging.getLogger(__name__)

IN_FLIGHT = 2
"""Samples handed to one evaluator ahead of its answers."""
ATTEMPTS = 10
"""Evaluators or objects that one job may lose before evaluation is given up: a sample may be what kills them."""


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

    what: _Predicted | Wanted
    version: int = 0
    attempts: int = 0
    blocks: list[Any] = field(default_factory=list)


class Dispatcher:
    """Hands samples to evaluators as they come and views as they are complete.

    Args:
        comparison: whose split is evaluated on.
        pool: the run's samples; references are let go once predicted.
        evaluators: who does it.
        shards: how many shards the split has.
        requested: the views, of samples that are all in the pool; None is that of all samples of every arm and group.
    """

    def __init__(
        self,
        comparison: Comparison,
        pool: SamplePool,
        evaluators: Evaluators,
        *,
        shards: int,
        requested: Sequence[Wanted] | None = None,
    ) -> None:
        self._pool, self._evaluators, self._split, self._shards = pool, evaluators, comparison.split, shards
        specs = comparison.chains()
        self._variable = wanted.variable(specs.values())
        self._expected = {digest: expected_samples(spec, self._variable) for digest, spec in specs.items()}
        self._starts = {digest: starts.needed(spec) for digest, spec in specs.items()}
        self._views = Views(wanted.every(comparison) if requested is None else requested)
        self._requested = {view: n for n, view in enumerate(requested or ())}
        self._only: set[Key] | None = None
        """The samples that requested views are formed from; None is all."""
        if requested is not None:
            self._only = {key(pooled) for view in requested for pooled in view.members or ()}
        self._results: dict[int, ViewResult] = {}
        self._jobs: deque[_Job] = deque()
        self._asked: dict[Any, Evaluator] = {}
        """Evaluators by the references of what they were asked."""
        self._room: tuple[dict[int, Evaluator], ...] = tuple({} for _ in range(IN_FLIGHT))
        """Evaluators that have room, by how many jobs they have; of the caller's, too."""
        for evaluator in self._running:
            self._seat(evaluator)
        self._samples: dict[Key, _Predicted] = {}
        self._of_chain: dict[str, dict[Key, _Predicted]] = {}
        """The same samples by chain."""
        self._count: Counter[str] = Counter()
        """Predicted samples by chain."""
        self.evaluated = 0
        """Predicted samples of all chains."""
        every = sum(self._expected.values())
        self.expected = every if self._only is None else len(self._only)
        """Samples that are evaluated."""
        self._kept_with = every if self._variable is None else None
        """How many predictions the run has in all, which decides whether they are kept; those of densities never are."""

    # What the run tells

    def add(self, pooled: Pooled) -> None:
        """A sample is in the pool: predict it, unless that was done or it is not evaluated."""
        unasked = self._only is not None and key(pooled) not in self._only
        if unasked or self._variable not in (None, pooled.record.meta.variable):
            pooled.ref = None  # its durable copy is enough
            return
        known = self._samples.get(key(pooled))
        if known is not None and known.pooled.record.sha256 == pooled.record.sha256:
            return
        if known is not None:
            self.forget([pooled])  # other bytes of another path, or of another machine's arithmetic
        sample = _Predicted(pooled)
        self._samples[key(pooled)] = self._of_chain.setdefault(pooled.record.meta.digest, {})[key(pooled)] = sample
        self._jobs.append(_Job(sample))

    def forget(self, gone: Iterable[Pooled]) -> None:
        """Samples were superseded: their views wait for others."""
        digests = set()
        for pooled in gone:
            sample = self._samples.pop(key(pooled), None)
            if sample is not None:
                digest = pooled.record.meta.digest
                del self._of_chain[digest][key(pooled)]
                self._tally(digest, -sample.done)
                digests.add(digest)
        for view in self._views.of(digests):
            self._changed(view)

    def abandon(self, digest: str) -> None:
        """A chain will not finish: its views have no result."""
        for view in self._views.of([digest]):
            self._views.remove(view)
            self._forget_blocks(view)

    def drop(self, digest: str) -> None:
        """A chain will not finish: its views are formed from their other chains, if there are any."""
        left = self._views.without(digest)
        for view in left:
            self._changed(view)
        self._ask_for(left)

    # Working

    @property
    def idle(self) -> bool:
        """Whether nothing is left to evaluate."""
        return self._views.done and not self._jobs and not self._asked

    @property
    def requested(self) -> list[ViewResult]:
        """Results of the requested views so far, in their order."""
        return [self._results[n] for n in sorted(self._results)]

    @property
    def _running(self) -> list[Evaluator]:
        return self._evaluators.running

    def references(self) -> list[Any]:
        """References to wait for."""
        return list(self._asked)

    def owns(self, ref: Any) -> bool:
        """Whether a reference is one of `references` (an evaluator's death takes its others along)."""
        return ref in self._asked

    def pump(self) -> None:
        """Give waiting jobs to evaluators that have room, starting evaluators up to their number."""
        if (not self._running and not self.idle) or (self._jobs and len(self._running) < self._evaluators.limit):
            self._evaluators.start()  # the first at once: its imports take seconds, like those of the chains' workers
            self._seat(self._running[-1])
        while self._jobs and (evaluator := self._least_loaded()) is not None:
            self._submit(evaluator, self._jobs.popleft())

    def _seat(self, evaluator: Evaluator) -> None:
        """Note how many jobs an evaluator has."""
        for evaluators in self._room:
            evaluators.pop(id(evaluator), None)
        if len(evaluator.jobs) < IN_FLIGHT:
            self._room[len(evaluator.jobs)][id(evaluator)] = evaluator

    def _least_loaded(self) -> Evaluator | None:
        """One of the evaluators with the fewest jobs, None where all have enough."""
        return next((e for evaluators in self._room for e in evaluators.values()), None)

    def take(self, ref: Any) -> ViewResult | None:
        """Deal with a reference that is ready; the view's result when it was one."""
        evaluator = self._asked.pop(ref)
        job = evaluator.jobs.pop(ref)
        self._seat(evaluator)
        try:
            return self._finish(job, ref)
        except RayError as error:
            if died(error):
                self._lost(evaluator)
            self._again(job, error)
        return None

    def close(self) -> None:
        """Let go of the evaluators: what they were asked last is nobody's any more."""
        for evaluator in self._running:
            evaluator.jobs.clear()
        self._asked.clear()

    def _submit(self, evaluator: Evaluator, job: _Job) -> None:
        if self._stale(job):
            return
        if isinstance(job.what, _Predicted):
            record, ref = job.what.pooled.record, job.what.pooled.ref
            call = evaluator.actor.predict.options(num_returns=1 + self._shards)
            digest = record.meta.digest
            start = self._starts[digest]
            done, *job.blocks = call.remote(
                self._split, digest, record.file, ref, start, record.sha256, self._kept_with
            )
        else:
            done = self._ask(evaluator.actor, job.what)
        evaluator.jobs[done], self._asked[done] = job, evaluator
        self._seat(evaluator)

    def _ask(self, actor: Any, view: Wanted) -> Any:
        """Have a view summarised: shard by shard, so that memory holds all samples' blocks on one of them."""
        blocks = [self._samples[key(p)].blocks or [] for p in self._selected(view)]
        rows = view.request.rows
        if len(blocks) == 1:
            return actor.alone.remote(self._split, rows, *blocks[0])
        parts = [
            actor.reduce.remote(self._split, shard, view.weights, *[b[shard] for b in blocks])
            for shard in range(self._shards)
        ]
        return actor.summarise.remote(self._split, rows, *parts)

    def _stale(self, job: _Job) -> bool:
        """Whether nobody waits for it any more: its sample was superseded, or its view changed."""
        if isinstance(job.what, _Predicted):
            return self._samples.get(key(job.what.pooled)) is not job.what
        return job.what.version != job.version or job.what not in self._views

    def _finish(self, job: _Job, ref: Any) -> ViewResult | None:
        found = ray.get(ref)
        if self._stale(job):
            return None
        if isinstance(job.what, _Predicted):
            sample = job.what
            sample.pooled.ref, sample.blocks, sample.node, sample.done = None, job.blocks, found, True
            digest = sample.pooled.record.meta.digest
            self._tally(digest, 1)
            views = self._views.of([digest])
            if all(v.done for v in views):
                sample.blocks = None  # its chain was given up meanwhile: nobody waits for them
            self._ask_for(views)
            return None
        view = job.what
        self._views.settle(view, True)
        self._forget_blocks(view)
        asked, samples = view.request, len(self._selected(view))
        result = ViewResult(
            key=ViewKey(asked.arm, asked.group), request=asked, samples=samples, chains=len(view.chains), **found
        )
        if view not in self._requested:
            return result
        self._results[self._requested[view]] = result
        return None

    def _selected(self, view: Wanted) -> Sequence[Pooled]:
        return view.selected(self._pool, self._variable)

    def _tally(self, digest: str, more: int) -> None:
        """Count predicted samples of a chain."""
        self._count[digest] += more
        self.evaluated += more

    def _ask_for(self, views: Iterable[Wanted]) -> None:
        """Summaries of those that are complete: first of all, since people wait for them."""
        for view in views:
            if not view.done and view.asked != view.version and self._complete(view):
                view.asked = view.version
                self._jobs.appendleft(_Job(view, view.version))

    def _complete(self, view: Wanted) -> bool:
        if view.members is None:
            return all(self._count[d] == self._expected[d] for d in view.chains)
        return all(self._samples[key(p)].done for p in view.members)

    def _changed(self, view: Wanted) -> None:
        """A view has other samples than before; what is left of them may have to be predicted again."""
        view.version += 1
        self._views.settle(view, False)
        for sample in self._of(view):
            if sample.done and sample.blocks is None:
                self._predict_again(sample)

    def _of(self, view: Wanted) -> list[_Predicted]:
        if view.members is not None:
            return [self._samples[key(p)] for p in view.members]
        return [s for digest in view.chains for s in self._of_chain.get(digest, {}).values()]

    def _predict_again(self, sample: _Predicted) -> None:
        sample.done, sample.blocks = False, None
        self._tally(sample.pooled.record.meta.digest, -1)
        self._jobs.append(_Job(sample))

    def _forget_blocks(self, view: Wanted) -> None:
        """Let the blocks of a view go, but for those that another one waits for."""
        waiting = [v for v in self._views.of(view.chains) if not v.done]
        chains = {d for v in waiting if v.members is None for d in v.chains}
        samples = {key(p) for v in waiting for p in v.members or ()}
        for sample in self._of(view):
            at = key(sample.pooled)
            if at[0] not in chains and at not in samples:
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

    def _lost_blocks(self, view: Wanted) -> bool:
        """Predict a view's blocks again that went with a node; all of them where no node is known to be gone."""
        alive = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
        samples = [s for s in self._of(view) if s.blocks is not None]
        gone = [s for s in samples if s.node not in alive] or samples
        log.warning("%d blocks were lost with a node; their samples are predicted again", len(gone) * self._shards)
        for sample in gone:
            self._predict_again(sample)
        return bool(gone)

    def _lost(self, evaluator: Evaluator) -> None:
        log.warning("an evaluator was lost; its work is done again")
        self._running.remove(evaluator)
        for evaluators in self._room:
            evaluators.pop(id(evaluator), None)
        for ref, job in evaluator.jobs.items():
            del self._asked[ref]
            if isinstance(job.what, _Predicted):
                job.what.pooled.ref = None
            self._jobs.appendleft(job)


def recovered(pool: SamplePool, records: Iterable[Any]) -> list[Pooled]:
    """Put durable samples into the pool, without references."""
    return [pool.add(record, None) for record in records]
