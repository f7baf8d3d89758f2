"""`sweep`: plan the points, run them by Ray Tune, and report which is the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raychains.api import plans
from raychains.api.drivers import check_failed, origin, planned_otherwise, portable
from raychains.api.keywords import Call, SweepKeywords, accepts
from raychains.api.result import HEADLINES, InStore
from raychains.api.run_context import RunContext
from raychains.callbacks import CallbackList
from raychains.chain import proof
from raychains.core.config import Sweep
from raychains.core.errors import UserError
from raychains.inference import sweep_data
from raychains.planning import sweep_points
from raychains.planning.events import SweepPlanned
from raychains.planning.sweep_plan import FINISHED, STOPPED, SweepPlan
from raychains.plotting.tables import Table, with_error
from raychains.store import Storage, SweepStore, finished_chains, load_sweep

if TYPE_CHECKING:
    import pandas as pd

    from raychains.report.figures.mapping import Figures
    from raychains.tasks import Task


@dataclass(frozen=True, repr=False)
class SweepResult(InStore):
    """A sweep in its store: its table, its best point, its files."""

    _KEY_FIGURES = ("map", "options", "cycles")

    store: SweepStore
    failed: Mapping[str, str]
    """Chains that were given up in this session, and why."""

    @property
    def best(self) -> dict[str, Any]:
        """Options of the best point as `raychains.run` takes them; empty where no point ran to its end."""
        return self.store.best() or {}

    def table(self, *, full: bool = False) -> pd.DataFrame:
        """Return one row per point, the best first: swept options, metrics on the split val as texts, how it ended.

        Args:
            full: return one row per point and repeat instead: its options, its metrics as numbers, what it cost and how
                it ended.
        """
        return self._data().results if full else self._data().compact()

    def reports(self) -> pd.DataFrame:
        """One row per report: a chain's metrics after each of its cycles."""
        return self._data().reports

    @property
    def figures(self) -> Figures:
        """The figures of the sweep's page by name, each drawn when it is asked for."""
        from raychains.report.figures.mapping import Figures
        from raychains.report.sweep import sweep_page

        return Figures(sweep_page.FIGURES, self._data())

    def _data(self) -> sweep_data.Sweep:
        return sweep_data.Sweep.of(self.store)

    def _about(self) -> str:
        found = self._data()
        return f"task {found.plan['task']}, {len(found.points)} points"

    def _headlines(self) -> list[str]:
        found = self._data()
        if found.best is None:
            return ["no point has a result yet"]
        point = found.points.loc[found.best]
        values = [f"{m.label} {with_error(point[m.name], point[f'{m.name}_se'], m)}" for m in found.metrics[:HEADLINES]]
        return [f"best: {found.text(found.best)}: {', '.join(values)} on {found.split}"]

    def _page_table(self) -> Table:
        from raychains.report.sweep import rows

        return rows.build(self._data(), "Rank")


@accepts(Sweep, SweepKeywords)
def sweep(call: Call) -> SweepResult:
    """Find good settings by a sweep, judged on the split val; the test split is never read.

    ``grid`` and ``space`` are mappings, too: ``grid={"exploration": [0, .25, .5], "cycles": [2, 4, 8]}``,
    ``space={"lr": "log:1e-3:1", "sampler": ["csgld", "csghmc"]}``.

    Example: ``rc.sweep(task="digits", epochs=80, grid={"exploration": [0, .5], "cycles": [2, 4]}).best``

    Raises:
        UserError: a setting out of range, or a name that another living driver works on.
        Interrupted: the user stopped the sweep; what was computed is kept.
        ChainsFailed: some points were given up; everything else is written.
    """
    return _execute(call.options, plans.sweep(call.options, call.task), call.callback, call.task)


def _execute(options: Sweep, planned: sweep_points.Planned, callback: CallbackList, task: Task | None) -> SweepResult:
    from raychains.inference import sweep_results
    from raychains.orchestration.tune import sweep_experiment
    from raychains.orchestration.tune.optuna_search import import_optuna

    plan, root = planned.plan, Storage(options.store)
    if plan.search == "optuna":
        import_optuna()
    folder = SweepStore(root, options.name or plan.run_name)
    context = RunContext(options, folder, callback, task)
    if not folder.exists():
        point = plan.points[0] if plan.points else planned.points.make(0, {})
        found = proof.prove(point.specs[0], planned.points.start)
        plan = dataclasses.replace(plan, notes=(*plan.notes, *found.notes))
    with context.leased(lambda: _check_plan(folder, plan, options)) as lease:
        chains = {spec.digest: spec for point in plan.points for spec in point.specs}
        callback.on(SweepPlanned(plan=plan, folder=folder, there=len(finished_chains(root, chains))))
        resources = context.resources
        if not context.plan:
            folder.write_plan({**plan.to_json(), **origin("sweep", options), "bins": resources.bins})
        shared = portable(planned.points.options, planned.points.start)
        fresh = not context.plan and bool(chains)  # a search's chains are not known before
        with context.driving(lease, chains, fresh=fresh):
            outcome = sweep_experiment.run(planned, folder, resources, callback, lease, options=shared, task=task)
        rows = sweep_results.write(folder, planned, outcome.points, outcome.failed)
        if outcome.interrupted:
            ended = sum(row["status"] in (FINISHED, STOPPED) for row in rows)
            raise context.interrupted(f"{ended} of {plan.count * plan.repeats} points' chains through")
        return publish(folder, outcome.failed)


def publish(folder: SweepStore, failed: Mapping[str, str]) -> SweepResult:
    """Write the page of a sweep whose tables are written.

    Raises:
        ChainsFailed: some chains were given up; everything else is written.
    """
    from raychains.report.sweep import sweep_page

    sweep_page.write(folder)
    check_failed(failed, "chains of the sweep", folder)
    return SweepResult(folder, failed)


def draw(path: str) -> SweepResult:
    """Draw the page of STORE/sweeps/NAME again from its tables.

    Raises:
        UserError: no such sweep, or one without results.
    """
    from raychains.report.sweep import sweep_page

    folder = load_sweep(path)
    if not folder.exists() or folder.table("results") is None:
        raise UserError(f"run must be a run or a sweep with results, got {path!r}: continue it with `resume=True`")
    sweep_page.write(folder)
    return SweepResult(folder, {})


def _check_plan(folder: SweepStore, plan: SweepPlan, options: Sweep) -> None:
    """Refuse to continue a sweep that was planned otherwise."""
    before = sweep_data.read_plan(folder)
    same_bins = options.bins in (None, before.get("bins", options.bins))
    if before.get("digest") != plan.digest or not same_bins:
        raise planned_otherwise(folder)
