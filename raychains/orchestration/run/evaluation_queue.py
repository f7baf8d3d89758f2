"""The evaluation side of a run: samples become blocks while chains still run, complete views become metrics.

Blocks and samples in Ray's object store are a cache. Blocks on a draining node are copied; whatever goes
with a node or an evaluator is made again from the durable samples, and a chain that takes another path takes its old
samples' blocks along.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.chain.sample_index import expected_samples
from raychains.orchestration.chains.messages import StoredSample, ViewSummary
from raychains.orchestration.cluster.workers import CallFailed
from raychains.orchestration.run import pending_views
from raychains.orchestration.run.evaluator_pool import Evaluators, Job, JobQueue
from raychains.orchestration.run.pending_views import PendingViews, Views, key
from raychains.orchestration.run.sample_pool import Pooled, SamplePool
from raychains.planning.comparison import Comparison
from raychains.planning.views import Key, ViewKey, ViewResult
from raychains.store import initial_states

log = logging.getLogger(__name__)


@dataclass
class _Predicted:
    """A sample and its blocks in the object store, unless none are there yet or they were lost."""

    pooled: Pooled
    done: bool = False
    """It was predicted; its blocks are let go when no view needs them any more."""
    blocks: list[Any] | None = None
    node: str = ""
    """The node that made the blocks, and takes them with it."""


@dataclass(eq=False)
class _Job(Job):
    """A prediction (of one sample) or a summary (of one view, in one version)."""

    what: _Predicted | PendingViews
    version: int = 0
    blocks: list[Any] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """See `Job`."""
        return "a prediction" if isinstance(self.what, _Predicted) else "a summary"


class EvaluationQueue(JobQueue[_Job]):
    """Hands samples to evaluators as they come and views as they are complete.

    Args:
        requested: the views, of samples that are all in the pool; None is that of all samples of every arm and group.
    """

    def __init__(
        self,
        comparison: Comparison,
        pool: SamplePool,
        evaluators: Evaluators,
        *,
        shards: int,
        requested: Sequence[PendingViews] | None = None,
    ) -> None:
        super().__init__(evaluators, "evaluation")
        self.pool, self._split, self._shards = pool, comparison.split, shards
        specs = comparison.of_arms()
        self._variable = pending_views.variable(specs.values())
        self._expected = {digest: expected_samples(spec, self._variable) for digest, spec in specs.items()}
        self._starts = {digest: initial_states.needed(spec) for digest, spec in specs.items()}
        self._views = Views(pending_views.every(comparison) if requested is None else requested)
        self._requested = {view: n for n, view in enumerate(requested or ())}
        self._only: set[Key] | None = None
        """The samples that requested views are formed from; None is all."""
        if requested is not None:
            self._only = {key(pooled) for view in requested for pooled in view.members or ()}
        self._results: dict[int, ViewResult] = {}
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
        """Number of the run's predictions, which decides whether they are kept; those of densities never are."""
        for pooled in pool.select():
            self.add(pooled)

    # The run's samples and chains

    def add(self, pooled: Pooled) -> None:
        """Predict a sample of the pool, unless that was done or it is not evaluated."""
        unasked = self._only is not None and key(pooled) not in self._only
        unasked = unasked or pooled.record.meta.digest not in self._expected  # other chains start at it, no arm has it
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
        """Let superseded samples go: their views wait for others."""
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
        """Give up the views of a chain that will not finish."""
        for view in self._views.of([digest]):
            self._views.remove(view)
            self._forget_blocks(view)

    def drop(self, digest: str) -> None:
        """Form the views of a chain that will not finish from their other chains, if there are any."""
        left = self._views.without(digest)
        for view in left:
            self._changed(view)
        self._ask_for(left)

    # Working

    @property
    def idle(self) -> bool:
        """Return whether nothing is left to evaluate."""
        return self._views.done and not self._jobs and not self._asked

    @property
    def requested(self) -> list[ViewResult]:
        """Return the results of the requested views so far, in their order."""
        return [self._results[n] for n in sorted(self._results)]

    def call(self, actor: Any, job: _Job) -> Any:
        """Have a sample predicted, or a view summarised."""
        if not isinstance(job.what, _Predicted):
            return self._summary(actor, job.what)
        record, ref = job.what.pooled.record, job.what.pooled.ref
        digest = record.meta.digest
        sample = StoredSample(digest=digest, file=record.file, sha256=record.sha256, start=self._starts[digest])
        parts = (1 + self._shards, actor, "predict", self._split, sample, ref, self._kept_with)
        done, *job.blocks = self.workers.call_parts(*parts)
        return done

    def _summary(self, actor: Any, view: PendingViews) -> Any:
        """Have a view summarised: shard by shard, so that memory holds all samples' blocks on one of them."""
        call = self.workers.call
        selected = self._selected(view)
        blocks = [self._samples[key(p)].blocks or [] for p in selected]
        rows = view.request.rows
        if len(blocks) == 1:
            return call(actor, "alone", self._split, rows, *blocks[0])
        shards, weights = range(self._shards), view.weights_of(selected)
        parts = [call(actor, "reduce", self._split, s, weights, *[b[s] for b in blocks]) for s in shards]
        return call(actor, "summarise", self._split, rows, *parts)

    def stale(self, job: _Job) -> bool:
        """Return whether its sample was superseded, or its view changed."""
        if isinstance(job.what, _Predicted):
            return self._samples.get(key(job.what.pooled)) is not job.what
        return job.what.version != job.version or job.what not in self._views

    def done(self, job: _Job, answer: Any) -> ViewResult | None:
        """Note a prediction; return a view's result."""
        if not isinstance(job.what, _Predicted):
            return self._summarised(job.what, answer)
        self._predicted(job.what, job.blocks, answer)
        return None

    def _predicted(self, sample: _Predicted, blocks: list[Any], node: str) -> None:
        sample.pooled.ref, sample.blocks, sample.node, sample.done = None, blocks, node, True
        digest = sample.pooled.record.meta.digest
        self._tally(digest, 1)
        views = self._views.of([digest])
        if all(v.done for v in views):
            sample.blocks = None  # its chain was given up meanwhile: nobody waits for them
        self._ask_for(views)

    def _summarised(self, view: PendingViews, found: ViewSummary) -> ViewResult | None:
        self._views.settle(view, True)
        self._forget_blocks(view)
        at, samples = ViewKey(view.request.arm, view.request.group), len(self._selected(view))
        about: dict[str, Any] = {"key": at, "request": view.request, "samples": samples, "chains": len(view.chains)}
        result = ViewResult(**about, metrics=found.metrics, curves=found.curves, rows=found.rows)
        if view not in self._requested:
            return result
        self._results[self._requested[view]] = result
        return None

    def _selected(self, view: PendingViews) -> Sequence[Pooled]:
        return view.selected(self.pool, self._variable)

    def _tally(self, digest: str, more: int) -> None:
        """Count predicted samples of a chain."""
        self._count[digest] += more
        self.evaluated += more

    def _ask_for(self, views: Iterable[PendingViews]) -> None:
        """Ask for summaries of those that are complete: first of all, since people wait for them."""
        for view in views:
            if not view.done and view.asked != view.version and self._complete(view):
                view.asked = view.version
                self._jobs.appendleft(_Job(view, view.version))

    def _complete(self, view: PendingViews) -> bool:
        if view.members is None:
            return all(self._count[d] == self._expected[d] for d in view.chains)
        return all(self._samples[key(p)].done for p in view.members)

    def _changed(self, view: PendingViews) -> None:
        """Note that a view has other samples than before; some of the others may have to be predicted again."""
        view.version += 1
        self._views.settle(view, False)
        self._predict_again([sample for sample in self._of(view) if sample.done and sample.blocks is None])

    def _of(self, view: PendingViews) -> list[_Predicted]:
        if view.members is not None:
            return [self._samples[key(p)] for p in view.members]
        return [s for digest in view.chains for s in self._of_chain.get(digest, {}).values()]

    def _predict_again(self, samples: Sequence[_Predicted]) -> None:
        """Make samples' blocks again; summaries that were asked for before are asked for once they are there."""
        for sample in samples:
            sample.done, sample.blocks = False, None
            self._tally(sample.pooled.record.meta.digest, -1)
            self._jobs.append(_Job(sample))
        for view in self._views.of({sample.pooled.record.meta.digest for sample in samples}):
            view.version += not view.done

    def _forget_blocks(self, view: PendingViews) -> None:
        """Let the blocks of a view go, but for those that another one waits for."""
        waiting = [v for v in self._views.of(view.chains) if not v.done]
        chains = {d for v in waiting if v.members is None for d in v.chains}
        samples = {key(p) for v in waiting for p in v.members or ()}
        for sample in self._of(view):
            at = key(sample.pooled)
            if at[0] not in chains and at not in samples:
                sample.blocks = None

    def again(self, job: _Job, error: CallFailed | None) -> None:
        """Predict a sample again from its durable copy; make a view's lost blocks again before its summary."""
        if isinstance(job.what, _Predicted):
            job.what.pooled.ref = None
        elif error is not None and error.lost_object and self._lost_blocks(job.what):
            return
        super().again(job, error)

    def save(self) -> None:
        """Have evaluators on other nodes fetch blocks from those on draining nodes."""
        staying = {node.id for node in self.workers.nodes()}
        leave = [s.blocks for s in self._samples.values() if s.blocks is not None and s.node not in staying]
        others = self.evaluators.staying
        for number, blocks in enumerate(leave if others else ()):
            self.workers.call(others[number % len(others)].actor, "fetch", *blocks)

    def _lost_blocks(self, view: PendingViews) -> bool:
        """Predict a view's blocks again that were lost with a node; all of them where no node is known to be gone."""
        alive = {node.id for node in self.workers.nodes()}
        samples = [s for s in self._of(view) if s.blocks is not None]
        gone = [s for s in samples if s.node not in alive] or samples
        log.warning("%d blocks were lost with a node; their samples are predicted again", len(gone) * self._shards)
        self._predict_again(gone)
        return bool(gone)
