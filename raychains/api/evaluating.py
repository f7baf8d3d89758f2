"""`evaluate`: a finished run on a split, with its views, its weights and its analyses."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from raychains.api import listening
from raychains.api.driving import connected, placement, store_results
from raychains.api.result import Result, load
from raychains.data.root import rooted
from raychains.errors import Interrupted, UserError
from raychains.listeners import Listener, Listeners
from raychains.options import Common
from raychains.planning import Comparison
from raychains.planning import listener as told
from raychains.planning.views import Request
from raychains.planning.views import check as check_views
from raychains.store import Root, RunStore, opening

if TYPE_CHECKING:
    from raychains.analyses import Analysis, Context
    from raychains.orchestration.crew import Crew
    from raychains.orchestration.outcome import Outcome, ViewResult
    from raychains.orchestration.placement import Placement
    from raychains.predictive import Selection
    from raychains.tasks import Task

log = logging.getLogger(__name__)


def evaluate(
    path: str,
    split: str | None = None,
    *,
    views: Sequence[str] = (),
    weights: Sequence[str] = (),
    measures: Sequence[str] = (),
    task: Task | None = None,
    options: Common | None = None,
    listener: Listener | Sequence[Listener] | None = None,
    crew: Crew | None = None,
    page: bool = True,
) -> Result:
    """Evaluate a run's finished chains on a split of its task, write the results and the report.

    Args:
        path: STORE/runs/NAME.
        split: the task's split; default the run's own.
        views: which parts of each arm's samples are evaluated by themselves too: `raychains.planning.views.KINDS`.
        weights: how samples are weighted besides equally: `raychains.analyses.weights.WEIGHTINGS`.
        measures: further analyses: `raychains.analyses.MODULES`.
        task: as for `load`.
        options: where the work runs.
        listener: one or several, told what happens.
        page: whether the run's page is drawn; `draw_report` draws it later.
        crew: the evaluators to work with, which go on afterwards: `raychains.api.driving.crew`; default those of this call.

    Raises:
        UserError: no such run, split, view, weighting or measure; no arm whose chains are all finished; or a weighting
            or measure that says nothing about this run, raised when everything else is stored.
    """
    from raychains import analyses
    from raychains.analyses.weights import check as check_weights

    options = options if options is not None else Common()
    check_views(views)
    check_weights(weights)
    chosen = [analyses.named(name) for name in dict.fromkeys(measures)]
    with rooted(options.data_root), Listeners(listener) as listeners:
        loaded = load(path, task)
        listening.check(dataclasses.replace(options, store=loaded.store.root.uri))
        return _Evaluating(loaded, split, options, listeners, crew, page).all(views, weights, chosen)


@dataclass
class _Evaluating:
    """One call of `evaluate`."""

    loaded: Result
    split: str | None
    options: Common
    listener: Listeners
    crew: Crew | None = None
    page: bool = True

    def __post_init__(self) -> None:
        from raychains import tasks
        from raychains.tasks.splits import check_split

        own = self.loaded.comparison.split
        self.split = self.split if self.split is not None else own
        self.task = tasks.build(self.loaded.comparison.task_spec)
        check_split(self.task.splits(), self.split)
        self.comparison: Comparison = dataclasses.replace(self.loaded.comparison, split=self.split)
        self.root: Root = self.loaded.store.root
        # Another split's results stand beside the run's own, in a folder without the colons of a split's name.
        suffix = "" if self.split == own else f"-{self.split.replace(':', '-')}"
        self.folder = RunStore(self.root, f"{self.loaded.store.name}{suffix}")
        self.placement: Placement = placement(self.options)
        self.dropped = self.loaded.dropped()

    def all(self, views: Sequence[str], weights: Sequence[str], chosen: Sequence[Analysis]) -> Result:
        from raychains.orchestration.evaluators import Evaluators
        from raychains.orchestration.lease import Lease

        self._check(weights, chosen)
        if chosen and self.placement.keep_predictions == "none":
            raise UserError(
                "keep_predictions must be auto or all with measures, got 'none': they read predictions again"
            )
        if chosen:
            self.placement = dataclasses.replace(self.placement, keep_predictions="all")
        with Lease(self.root, self.folder.name) as lease, connected(self.options):
            lease.confirm()
            self.lease = lease
            listening.listen(self.listener, self.options, self.folder, lease.driver_id)
            if self.crew is not None:
                self.evaluators = self.crew.evaluators(self.comparison, self.root, self.placement)
                return self._all(views, weights, chosen)
            with Evaluators.of(self.comparison, self.root, self.placement) as self.evaluators:
                return self._all(views, weights, chosen)

    def _check(self, weights: Sequence[str], chosen: Sequence[Analysis]) -> None:
        """Refuse what says nothing about this run before anything starts."""
        from raychains.analyses.weights import check_task

        finished = opening.finished(self.root, self.comparison.chains())
        groups = [
            (a, g)
            for a, arm in enumerate(self.comparison.arms)
            for g, specs in enumerate(arm.chains)
            if finished & (chains := {spec.digest for spec in specs}) and chains <= finished | self.dropped
        ]
        if not groups:
            raise UserError(
                f"run must have an arm whose chains are all finished, got {self.loaded.path!r}: continue it with --resume"
            )
        for name in weights:
            check_task(self.task, self.comparison.task, name)
        context = self._context(groups)
        for analysis in chosen:
            if reason := analysis.why_not(context):
                raise UserError(f"measures: {analysis.name} does not apply: {reason}")

    def _all(self, views: Sequence[str], weights: Sequence[str], chosen: Sequence[Analysis]) -> Result:
        from raychains.report import page as pages

        self.listener.on(told.Evaluating(comparison=self.comparison))
        outcome = self._own()
        context = self._context(sorted(outcome.views))
        refused: list[str] = []
        self._views(context, views, [w for w in dict.fromkeys(weights) if w != "equal"], refused)
        for analysis in chosen:
            self._measure(context, analysis, refused)
        if self.page:
            pages.write(self.folder, self.comparison)
        if refused:
            raise UserError("; ".join(refused) + f" (everything else is in {self.folder.location()})")
        return Result(self.folder, self.comparison, outcome.failed, self.options.data_root)

    def _own(self) -> Outcome:
        """The view of all samples, as a run ends with it."""
        from raychains.orchestration.driver import Driver

        driver = Driver(
            self.comparison, self.root, self.placement, self.listener,
            run_chains=False, lease=self.lease, dropped=self.dropped, evaluators=self.evaluators,
        )  # fmt: skip
        outcome = driver.run()
        if outcome.stopped:
            raise Interrupted("stopped before the run was evaluated; predictions that are kept are not made again")
        if self.folder.name != self.loaded.store.name:
            self.folder.write_plan({**self.loaded.store.plan(), "comparison": self.comparison.to_json()})
        store_results(self.folder, self.comparison, outcome)
        return outcome

    def _context(self, groups: Sequence[tuple[int, int]]) -> Context:
        from raychains.analyses import Context

        return Context(
            store=self.folder,
            comparison=self.comparison,
            split=self.comparison.split,
            task=self.task,
            groups=groups,
            select=self._select,
            evaluate=self._evaluate,
            predictions=self._predictions,
            measure=self._points,
            progress=lambda what, done, total: self.listener.on(told.Measuring(what=what, done=done, total=total)),
            settings={"bins": self.placement.bins},
        )

    def _views(self, context: Context, kinds: Sequence[str], weightings: Sequence[str], refused: list[str]) -> None:
        """views.parquet and weights.parquet, where they are asked for."""
        from raychains.analyses import weights
        from raychains.report import results

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
                self.listener.on(told.Said(text=f"warning: {warning}"))
        if rows:
            self.folder.write_table("weights", rows)
        if kinds or requests:
            wanted = list(dict.fromkeys(("all", *kinds)))
            evaluated = self._asked(self.comparison.split, wanted, requests)
            results.write_views(self.folder, self.comparison, evaluated, self.placement.bins)

    def _measure(self, context: Context, analysis: Analysis, refused: list[str]) -> None:
        try:
            tables = analysis.tables(context)
        except UserError as error:
            refused.append(f"measures: {analysis.name}: {error}")
            return
        for name, found in tables.items():
            self.folder.write_table(name, found)

    def _select(self, arm: int, group: int) -> Selection:
        from raychains.predictive import select

        name = self.comparison.arms[arm].name
        return select(self.root, self.comparison, name, group, dropped=self.dropped)

    def _asked(self, split: str, kinds: Sequence[str], requests: Sequence[Request]) -> list[ViewResult]:
        from raychains.orchestration.views import evaluate_views

        outcome = evaluate_views(
            self.comparison, self.root, self.placement, self.listener, split, kinds, requests, self.lease,
            dropped=self.dropped, evaluators=self.evaluators,
        )  # fmt: skip
        return list(outcome.requested)

    def _evaluate(self, split: str, requests: Sequence[Request]) -> list[ViewResult]:
        return self._asked(split, (), requests)

    def _predictions(self, arm: int, group: int) -> Iterator[np.ndarray[Any, Any]]:
        from raychains.store.predictions import predictions

        selection = self._select(arm, group)
        return predictions(self.root, selection.task.splits()[self.comparison.split], selection.records)

    def _points(self, split: str, points: Sequence[Any]) -> list[dict[str, float]]:
        from raychains.orchestration.points import measure

        def progress(done: int, total: int) -> None:
            self.listener.on(told.Measuring(what="points", done=done, total=total))

        return measure(self.comparison, self.root, self.placement, split, points, progress, evaluators=self.evaluators)
