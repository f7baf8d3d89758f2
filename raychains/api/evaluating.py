"""`evaluate`: a finished run on a split, with its views, its weights and its measures."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from raychains import tasks
from raychains.api import callbacks
from raychains.api.drivers import store_results
from raychains.api.keywords import ALONE
from raychains.api.result import Result, load
from raychains.api.run_context import connected, with_bins
from raychains.callbacks import CallbackList
from raychains.core.config import Common, Evaluate
from raychains.core.data_root import rooted
from raychains.core.errors import Interrupted, UserError, require
from raychains.core.options import options_of
from raychains.core.validation import true_or_false
from raychains.inference import results
from raychains.inference.predictive import Selection, select
from raychains.inference.run_data import planned_metrics
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.planning import Comparison, events
from raychains.planning.views import Request, ViewResult
from raychains.planning.views import check as check_views
from raychains.store import RunStore, Storage, finished_chains
from raychains.store.caches import predictions
from raychains.tasks import Task
from raychains.tasks.splits import check_split

if TYPE_CHECKING:
    from raychains.measures import Context, Measure
    from raychains.orchestration.cluster.worker_pool import WorkerPool
    from raychains.orchestration.run.outcome import DriverOutcome


def evaluate(
    path: str,
    split: str | None = None,
    *,
    views: Sequence[str] = (),
    weights: Sequence[str] = (),
    measures: Sequence[str | Measure] = (),
    reference: str | os.PathLike[str] | np.ndarray[Any, Any] | None = None,
    against: str | os.PathLike[str] | np.ndarray[Any, Any] | None = None,
    task: Task | None = None,
    options: Common | None = None,
    callback: callbacks.Requested = None,
    worker_pool: WorkerPool | None = None,
    page: bool = True,
    progress: bool = True,
) -> Result:
    """Evaluate a run's finished chains on a split of its task, write the results and the report.

    Args:
        path: STORE/runs/NAME.
        split: the task's split; default the run's own.
        views: parts of each arm's samples that are evaluated by themselves too: `raychains.planning.views.KINDS`.
        weights: weightings of samples besides the equal one: `raychains.measures.weights.WEIGHTINGS`.
        measures: further measures: `raychains.measures.NAMES`, import paths ``module:MEASURE``, or
            measures themselves.
        reference: what the measure ``fidelity`` compares with: probabilities [examples, classes] in the split's order,
            their file (.npy, .npz, .csv), or ``hmc``: draws of this posterior by Hamiltonian Monte Carlo, made in
            minutes for small networks; default HMC's probabilities in the data root, of CIFAR-10's test examples.
        against: predictions of your own on the split, which the measure ``against`` compares with the run's:
            probabilities [examples, classes], or of a regression means and standard deviation [examples, outputs + 1],
            or their file.
        task: as for `load`.
        options: the resources of the work; an `Evaluate` of `raychains.core.config` says what is left out above, too.
        callback: one or several, called with events; names of built-in ones, too.
        worker_pool: the evaluators to work with, which stay alive: `raychains.api.drivers.worker_pool`; default those
            of this call.
        page: whether the run's page is drawn; `draw_report` draws it later.
        progress: whether progress is shown: bars in a terminal, a live view in a notebook, else lines on standard
            error.

    Raises:
        UserError: no such run, split, view, weighting or measure; no arm whose chains are all finished; or a weighting
            or measure that says nothing about this run, raised when everything else is stored.
    """
    from raychains.measures.weights import check as check_weights

    ok = options is None or isinstance(options, Common)
    require(ok, "options", options, "be a raychains.Run, a raychains.Compare or another command's options")
    if isinstance(options, Evaluate):
        require(options.run == path, "run", options.run, f"be the path, {path!r}")
        split = split if split is not None else options.split
        reference = reference if reference is not None else options.reference
        against = against if against is not None else options.against
        views, weights, measures = views or options.views, weights or options.weights, measures or options.measures
    options, own = callbacks.named(options if options is not None else Common(), callback)
    known = options_of(Evaluate)
    split, views, weights = (
        known[name].checked(value) for name, value in (("split", split), ("views", views), ("weights", weights))
    )
    true_or_false("page", page)
    chosen = _measures(measures, reference, against)
    check_views(views)
    check_weights(weights)
    with ALONE, rooted(options.data_root), callbacks.called(own, progress=progress) as called:
        loaded = load(path, task, trust=True)
        return _Evaluating(loaded, split, options, called, worker_pool, page, reference, against).all(
            views, weights, chosen
        )


def _measures(measures: Sequence[str | Measure], reference: Any, against: Any) -> list[Measure]:
    """Return the measures, each once."""
    from raychains.measures import named

    require(
        isinstance(measures, list | tuple | str), "measures", measures, "be names of measures or measures themselves"
    )
    names = [measures] if isinstance(measures, str) else [*measures]
    chosen = {m.name: m for m in map(named, [*names, *(["against"] if against is not None else [])])}
    used = reference is None or any(measure.takes_reference for measure in chosen.values())
    require(used, "reference", reference, "be left out without the measure fidelity, which compares with it")
    return list(chosen.values())


@dataclass
class _Evaluating:
    """One call of `evaluate`."""

    loaded: Result
    split: str | None
    options: Common
    callback: CallbackList
    worker_pool: WorkerPool | None = None
    page: bool = True
    reference: Any = None
    against: Any = None

    def __post_init__(self) -> None:
        own = self.loaded.comparison.split
        self.split = self.split if self.split is not None else own
        self.task = tasks.build(self.loaded.comparison.task_spec)
        check_split(self.task.splits(), self.split)
        self.comparison: Comparison = dataclasses.replace(self.loaded.comparison, split=self.split)
        self.root: Storage = self.loaded.store.root
        # Another split's results lie in a folder of their own, without the colons of a split's name.
        suffix = "" if self.split == own else "-" + re.sub(r"[^A-Za-z0-9._-]+", "-", self.split)
        self.folder = RunStore(self.root, f"{self.loaded.store.name}{suffix}")
        before = self.folder.plan() if self.folder.exists() else {}
        self.options = with_bins(self.options, before, self.loaded.store.plan())
        self.resources = ResourceConfig.of(self.options)
        self.requested = callbacks.requested(self.options, self.folder)
        self.dropped = self.loaded.dropped()

    def all(self, views: Sequence[str], weights: Sequence[str], chosen: Sequence[Measure]) -> Result:
        from raychains.orchestration.lease import Lease
        from raychains.orchestration.run.evaluator_pool import Evaluators

        self._check(weights, chosen)
        if chosen and self.resources.keep_predictions == "none":
            raise UserError(
                "keep_predictions must be auto or all with measures, got 'none': they read predictions again"
            )
        if chosen:
            self.resources = dataclasses.replace(self.resources, keep_predictions="all")
        with Lease(self.root, self.folder.name) as lease, connected(self.options, self.callback):
            lease.confirm()
            self.lease = lease
            for make in self.requested:
                self.callback.add(make(lease.driver_id))
            own = (self.comparison, self.root, self.resources)
            with Evaluators.of(*own, workers=self.worker_pool) as self.evaluators:
                return self._all(views, weights, chosen)

    def _check(self, weights: Sequence[str], chosen: Sequence[Measure]) -> None:
        """Refuse, before anything starts, weightings and measures that do not apply to this run."""
        from raychains.measures.weights import check_task

        if self.folder.name != self.loaded.store.name and self.folder.exists():
            there = Comparison.from_json(self.folder.plan().get("comparison"))
            allowed = (
                f"be another one: its results would replace run {self.folder.name!r}, unless you delete its folder"
            )
            require(there.digest == self.comparison.digest, "split", self.split, allowed)
        finished = finished_chains(self.root, self.comparison.chains())
        groups = [
            (a, g)
            for a, arm in enumerate(self.comparison.arms)
            for g, specs in enumerate(arm.chains)
            if finished & (chains := {spec.digest for spec in specs}) and chains <= finished | self.dropped
        ]
        if not groups:
            raise UserError(
                f"run must have an arm whose chains are all finished, got {self.loaded.path!r}: continue it with "
                "`resume=True`"
            )
        for name in weights:
            check_task(self.task, self.comparison.task, name)
        context = self._context(groups)
        for measure in chosen:
            if reason := measure.why_not(context):
                raise UserError(f"measures: {measure.name} does not apply: {reason}")

    @property
    def run(self) -> tuple[Comparison, Storage, ResourceConfig, CallbackList]:
        """The first arguments of all evaluations."""
        return self.comparison, self.root, self.resources, self.callback

    @property
    def evaluation(self) -> dict[str, Any]:
        """Further arguments of all evaluations."""
        return {"lease": self.lease, "dropped": self.dropped, "evaluators": self.evaluators}

    def _all(self, views: Sequence[str], weights: Sequence[str], chosen: Sequence[Measure]) -> Result:
        from raychains.report import run_page as pages

        self.callback.on(events.Evaluating(comparison=self.comparison))
        outcome = self._own()
        context = self._context(sorted(outcome.views))
        refused: list[str] = []
        self._views(context, views, [w for w in dict.fromkeys(weights) if w != "equal"], refused)
        for measure in chosen:
            try:
                for name, rows in measure.tables(context).items():
                    self.folder.write_table(name, rows)
            except UserError as error:
                refused.append(f"measures: {measure.name}: {error}")
        own = {figure: draw for measure in chosen for figure, draw in measure.figures.items()}
        if self.page:
            pages.write(self.folder, self.comparison, chosen)
        if refused:
            raise UserError("; ".join(refused) + f" (everything else is in {self.folder.location()})")
        return Result(self.folder, self.comparison, outcome.failed, self.options.data_root, own)

    def _own(self) -> DriverOutcome:
        """Evaluate the view of all samples, as at the end of a run."""
        from raychains.orchestration.run.launch import evaluate_run

        outcome = evaluate_run(*self.run, **self.evaluation)
        if outcome.interrupted:
            raise Interrupted("stopped before the run was evaluated; predictions that are kept are not made again")
        plan = {**self.loaded.store.plan(), "comparison": self.comparison.to_json()}
        plan["metrics"] = planned_metrics(self.comparison)  # of this split, and of this version
        if self.options.bins is not None:
            plan["bins"] = self.options.bins
        if not self.folder.exists() or self.folder.plan() != plan:
            self.folder.write_plan(plan)
        store_results(self.folder, self.comparison, outcome)
        failed = self.loaded.store.table("failed")  # by which readers know dropped chains
        if failed is not None and self.folder.name != self.loaded.store.name:
            self.folder.write_table("failed", failed.to_pylist())
        return outcome

    def _context(self, groups: Sequence[tuple[int, int]]) -> Context:
        from raychains.measures import Context

        return Context(
            store=self.folder,
            comparison=self.comparison,
            split=self.comparison.split,
            task=self.task,
            groups=groups,
            select=self._select,
            evaluate=lambda split, requests: self._evaluate_views(split, (), requests),
            predictions=self._predictions,
            measure=self._points,
            progress=lambda what, done, total: self.callback.on(events.Measuring(what=what, done=done, total=total)),
            settings={"bins": self.resources.bins, "reference": self.reference, "against": self.against},
        )

    def _views(self, context: Context, kinds: Sequence[str], weightings: Sequence[str], refused: list[str]) -> None:
        """Write views.parquet and weights.parquet, if they are requested."""
        from raychains.measures import weights

        rows: list[Any] = []
        requests: list[Request] = []
        for name in weightings:
            try:
                found = weights.weigh(context, name)
            except UserError as error:
                refused.append(str(error))
                continue
            rows += found.rows
            requests += found.requests
            for warning in found.warnings:
                self.callback.on(events.Message(text=f"warning: {warning}"))
        if rows:
            self.folder.write_table("weights", rows)
        if kinds or requests:
            all_kinds = list(dict.fromkeys(("all", *kinds)))
            evaluated = self._evaluate_views(self.comparison.split, all_kinds, requests)
            results.write_views(self.folder, self.comparison, evaluated, self.resources.bins)

    def _select(self, arm: int, group: int) -> Selection:
        name = self.comparison.arms[arm].name
        return select(self.root, self.comparison, name, group, dropped=self.dropped)

    def _evaluate_views(self, split: str, kinds: Sequence[str], requests: Sequence[Request]) -> list[ViewResult]:
        from raychains.orchestration.run.launch import evaluate_views

        return list(evaluate_views(*self.run, split, kinds, requests, **self.evaluation).requested)

    def _predictions(self, arm: int, group: int) -> Iterator[np.ndarray[Any, Any]]:
        selection = self._select(arm, group)
        return predictions(self.root, selection.task.splits()[self.comparison.split], selection.records)

    def _points(self, split: str, points: Sequence[Any]) -> list[dict[str, float]]:
        from raychains.orchestration.run.point_queue import measure

        def progress(done: int, total: int) -> None:
            self.callback.on(events.Measuring(what="points", done=done, total=total))

        return measure(self.comparison, self.root, self.resources, split, points, progress, evaluators=self.evaluators)
