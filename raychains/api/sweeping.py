"""`sweep`: plan the points, run them by Ray Tune, tell which is the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raychains.api import listening
from raychains.api.driving import connected, placement
from raychains.api.sampling import options_and_task
from raychains.data.root import rooted
from raychains.errors import ChainsFailed, Interrupted, UserError, require
from raychains.listeners import Listeners
from raychains.options import Sweep
from raychains.planning import space
from raychains.planning.sweeping import SweepDone, SweepPlan, SweepPlanned
from raychains.store import ChainStore, Root, SweepStore, opening, starts

if TYPE_CHECKING:
    import pandas as pd

    from raychains.experiments.sweeps import Planned
    from raychains.orchestration.tuning import SweepOutcome
    from raychains.planning.sweeping import Point
    from raychains.tasks import Task

KEYS = ("cycle", "cycles", "epoch", "gradients", "samples")
"""Of a report, beside its metrics."""


@dataclass(frozen=True)
class SweepResult:
    """A sweep in its store: its table, its best point, its files."""

    store: SweepStore
    failed: Mapping[str, str]
    """Chains that were given up in this session, and why."""

    @property
    def path(self) -> str:
        """STORE/sweeps/NAME."""
        return self.store.location()

    @property
    def report(self) -> str:
        """Where the HTML page lies."""
        return self.store.location("report.html")

    @property
    def best(self) -> dict[str, Any]:
        """Options of the best point as `raychains.run` takes them; empty where no point ran to its end."""
        return self.store.best() or {}

    def table(self) -> pd.DataFrame:
        """One row per point and repeat: its options, its metrics on the split val, what it cost and how it ended."""
        return self._read("results")

    def reports(self) -> pd.DataFrame:
        """One row per report: a chain's metrics after each of its cycles."""
        return self._read("reports")

    def _read(self, name: str) -> pd.DataFrame:
        import pandas as pd

        found = self.store.table(name)
        return found.to_pandas() if found is not None else pd.DataFrame()


def sweep(
    options: Sweep | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    space: Mapping[str, Any] | Sequence[str] = (),
    listener: Any = None,
    **settings: Any,
) -> SweepResult:
    """Find good settings by a sweep over the split val; see `raychains.options.Sweep` for the settings.

    Args:
        options: all settings in one, instead of by name.
        grid: values of options, as in ``{"exploration": [0, .25, .5], "cycles": [2, 4, 8]}``.
        space: ranges of options, as in ``{"lr": "log:1e-3:1", "sampler": ["csgld", "csghmc"]}``.
        listener: one or several, told what happens: `raychains.planning.sweeping` has the events.
        settings: of `raychains.options.Sweep`, by name.

    Example: ``rc.sweep(task="digits", epochs=80, grid={"exploration": [0, .5], "cycles": [2, 4]}).best``

    Raises:
        UserError: a setting out of range, or a name that another living driver works on.
        Interrupted: the person stopped the sweep; what was computed is kept.
        ChainsFailed: some points were given up; everything else is written.
    """
    from raychains.experiments import sweeps

    given = {"grid": _entries(grid), "space": _entries(space)}
    entered = {name: entries for name, entries in given.items() if entries}
    options = dataclasses.replace(options, **entered) if options is not None else None  # type: ignore[arg-type]
    options, task = options_and_task(Sweep, options, {**settings, **entered})
    with rooted(options.data_root):
        planned = sweeps.plan(options, task)
        with Listeners(listener) as listeners:
            return _execute(options, planned, listeners, task)


def _entries(given: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, Mapping):
        return tuple(space.as_text(name, values) for name, values in given.items())
    return (given,) if isinstance(given, str) else tuple(given)


def _execute(options: Sweep, planned: Planned, listener: Any, task: Task | None) -> SweepResult:
    from raychains.orchestration import luggage, session
    from raychains.orchestration.lease import Lease
    from raychains.orchestration.tuning import SweepDriver

    plan, root = planned.plan, Root(options.store)
    place = placement(options)  # whatever is wrong is said before anything is written or started
    alone = place.workers_per_chain == 1
    require(alone, "workers_per_chain", place.workers_per_chain, "be left out of a sweep: its chains are one worker's")
    listening.check(options)
    if plan.search == "optuna":
        from raychains.orchestration.tuning.search import check_installed

        check_installed()
    session.look(options.address, object_store_memory=options.object_store_memory)
    if task is not None:
        luggage.check(planned.task)
    folder = SweepStore(root, options.name or f"{_folder_name(plan.task)}-{plan.digest[:8]}")
    _check_folder(folder, plan, options.resume)
    with Lease(root, f"sweep:{folder.name}", patient=options.resume) as lease:
        _check_folder(folder, plan, options.resume)
        listening.listen(listener, options, folder, lease.driver_id)
        listener.on(_told(plan, folder, root))
        if not folder.exists():
            folder.write_plan(plan.to_json())
        if planned.start is not None:
            starts.publish(root, planned.start)
        with connected(options):
            lease.confirm()
            outcome = SweepDriver(
                plan, make=planned.points.make, space=space.read_space(options.space), root=root, folder=folder,
                placement=place, listener=listener, lease=lease,
            ).run()  # fmt: skip
        if lease.lost:
            raise UserError(f"{lease.lost}; this driver stopped, its chains go on from their last checkpoints")
        rows = _write(folder, planned, outcome)
        if outcome.stopped:
            ended = sum(row["status"] in ("finished", "stopped") for row in rows)
            raise Interrupted(
                f"stopped with {ended} of {plan.count * plan.repeats} points' chains through; the others go on from their last "
                f"checkpoints. To go on: the same command with --resume --name {folder.name}"
            )
        return _publish(folder, outcome, listener)


def _publish(folder: SweepStore, outcome: SweepOutcome, listener: Any) -> SweepResult:
    from raychains.report import sweeps as pages

    pages.write(folder)
    listener.on(SweepDone(folder=folder))
    if outcome.failed:
        digest, reason = next(iter(outcome.failed.items()))
        raise ChainsFailed(
            f"{len(outcome.failed)} chains of the sweep failed, results of the others are in {folder.location()}; the first, "
            f"{digest[:12]}: {(reason.splitlines() or [''])[-1]}"
        )
    return SweepResult(folder, outcome.failed)


def _folder_name(task: str) -> str:
    import re

    return re.sub(r"[^A-Za-z0-9._]+", "-", task).strip("-._")[:80] or "task"


def _check_folder(folder: SweepStore, plan: SweepPlan, resume: bool) -> None:
    """Whether the name is free, or that of this plan's sweep, which goes on."""
    if not folder.exists():
        return
    if not resume:
        raise UserError(
            f"name must be a new one, got {folder.name!r}: the sweep exists; continue it with --resume or choose another --name"
        )
    if folder.plan().get("digest") != plan.digest:
        raise UserError(
            f"resume: sweep {folder.name!r} was planned with other settings; repeat its command or choose another --name"
        )


def _told(plan: SweepPlan, folder: SweepStore, root: Root) -> SweepPlanned:
    specs = {spec.digest: spec for point in plan.points for spec in point.specs}
    there = opening.finished(root, specs)
    stops = folder.stops()
    done = {d for d in specs if d in stops or _through(folder.reports(d), plan)}
    return SweepPlanned(plan=plan, name=folder.name, there=len(there), done=len(done))


def _through(reports: Sequence[Mapping[str, Any]], plan: SweepPlan) -> bool:
    return bool(reports) and reports[-1]["epoch"] >= plan.length


def _write(folder: SweepStore, planned: Planned, outcome: SweepOutcome) -> list[dict[str, Any]]:
    """Tables and best.json, from what the store holds: who computed it, and when, makes no difference."""
    plan = planned.plan
    stops = folder.stops()
    results, reports = [], []
    metrics = [m.name for m in planned.task.splits()[plan.split].metrics]
    for point in sorted(outcome.points, key=lambda p: p.number):
        for repeat, spec in enumerate(point.specs):
            told = folder.reports(spec.digest)
            about = {**_columns(point), "repeat": repeat, "digest": spec.digest}
            reports += [_row(about, _flat(report, metrics)) for report in told]
            status, reason = _status(spec.digest, told, stops, outcome, plan)
            last = _flat(told[-1], metrics) if told else dict.fromkeys([*KEYS, *metrics])
            seconds = ChainStore(folder.root, spec.digest).seconds()
            results.append({**_row(about, last), "status": status, "reason": reason, "seconds": seconds})
    measured = [m for m in metrics if any(row[m] is not None for row in results)]
    for name, rows in (("reports", reports), ("results", results)):
        if rows:
            folder.write_table(
                name, [{k: v for k, v in row.items() if k not in metrics or k in measured} for row in rows]
            )
    best = _best(results, outcome.points, plan)
    if best is not None:
        from raychains.experiments.sweeps import best_options

        folder.write_best(best_options(plan, planned.points, best.values))
    return results


def _row(about: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """A table's row; a swept option, such as ``cycles``, comes before a report's own word."""
    return {**about, **{name: value for name, value in report.items() if name not in about}}


def _columns(point: Point) -> dict[str, Any]:
    values = {k: v if isinstance(v, bool | int | float | str) or v is None else str(v) for k, v in point.values.items()}
    return {"point": point.number, **values, "sampler": point.sampler}


def _flat(report: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    return {**{key: report[key] for key in KEYS}, **{name: report["metrics"].get(name) for name in metrics}}


def _status(
    digest: str, told: Sequence[Mapping[str, Any]], stops: Mapping[str, Any], outcome: SweepOutcome, plan: SweepPlan
) -> tuple[str, str]:
    if digest in outcome.failed:
        return "failed", outcome.failed[digest]
    if digest in stops:
        return "stopped", f"stopped by ASHA after {stops[digest]['epoch']:g} of {plan.length} {plan.unit}"
    return ("finished", "") if _through(told, plan) else ("waiting", "")


def _best(rows: Sequence[Mapping[str, Any]], points: Sequence[Point], plan: SweepPlan) -> Point | None:
    """The point with the best mean over its repeats, of those that ran to their ends; of equal ones the first."""
    sign = 1 if plan.metric.better == "lower" else -1
    means: dict[int, float] = {}
    for point in points:
        mine = [row for row in rows if row["point"] == point.number]
        values = [row[plan.metric.name] for row in mine if row["status"] == "finished"]
        if values and len(values) == len(mine) and all(math.isfinite(v) for v in values):
            means[point.number] = sign * math.fsum(values) / len(values)
    if not means:
        return None
    number = min(means, key=lambda n: (means[n], n))
    return next(p for p in points if p.number == number)
