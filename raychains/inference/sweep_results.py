"""Tables of a sweep and the options of its best point, from the reports in its folder: who ran which chain makes no
difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raychains.inference.sweep_data import Sweep
from raychains.planning.sweep_plan import FINISHED, WAITING, Point, SweepPlan, state_of
from raychains.planning.sweep_points import Planned
from raychains.store import ChainStore, SweepStore, initial_states


def report_of(plan: SweepPlan, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's result, `raychains.orchestration.tune.tune_trainable.ChainTrainable`, as a sweep's folder keeps
    reports."""
    return {
        "cycle": int(result["cycle"]),
        "epoch": float(result["epoch"]),
        "gradients": int(result["gradient_evaluations"]),
        "samples": int(result["samples"]),
        "metrics": {m.name: float(result[m.name]) for m in plan.metrics if m.name in result},
    }


def result_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's result of a report: inverse of `report_of`."""
    return {
        **report["metrics"],
        **{key: report[key] for key in ("cycle", "epoch", "samples")},
        "gradient_evaluations": report["gradients"],
    }


def publish_trial(
    folder: SweepStore, plan: SweepPlan, point: Point, digest: str, rows: Sequence[Mapping[str, Any]], *, failed: bool
) -> None:
    """Store the reports of a trial of the user's own experiment as those of a sweep's chain.

    Args:
        folder: the sweep's.
        plan: the experiment as a sweep.
        point: the trial's.
        digest: its chain.
        rows: its results, one or more; one that is not ``failed`` and ended before its chain's end was stopped.
    """
    reports = [report_of(plan, row) for row in rows]
    for report in reports:
        folder.publish_report(digest, report)
    if not failed and state_of(reports, None, point.length) == WAITING:
        folder.publish_stopped_at(digest, reports[-1])


def write(
    folder: SweepStore, planned: Planned, points: Sequence[Point], failed: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Write results.parquet, reports.parquet and best.json; return the rows of the first.

    Args:
        folder: the sweep's.
        planned: the sweep.
        points: all of its points.
        failed: chains that were given up, by digest, and why.
    """
    plan = planned.plan
    stopped, metrics = folder.stopped(), [metric.name for metric in plan.metrics]
    results: list[dict[str, Any]] = []
    reports: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: p.number):
        for repeat, spec in enumerate(point.specs):
            reported, stop, why = folder.reports(spec.digest), stopped.get(spec.digest), failed.get(spec.digest)
            status = state_of(reported, stop, point.length, why)
            reason = plan.reason(point, status, stop, why)
            about = {**_columns(point), "repeat": repeat, "digest": spec.digest}
            reports += [_row(about, report, point.cycles, metrics) for report in reported]
            last = _row(about, reported[-1] if reported else {}, point.cycles, metrics)
            seconds = ChainStore(folder.root, spec.digest).seconds()
            results.append({**last, "status": status, "reason": reason, "seconds": seconds})
    missing = {name for name in metrics if all(row[name] is None for row in results)}
    for name, table in (("reports", reports), ("results", results)):
        if table:
            folder.write_table(name, [{k: v for k, v in row.items() if k not in missing} for row in table])
    _write_best(folder, planned, points)
    return results


def _write_best(folder: SweepStore, planned: Planned, points: Sequence[Point]) -> None:
    """Write the options of the best point, once all of its chains are finished."""
    found = Sweep.of(folder)
    if found.best is None or found.points.at[found.best, "status"] != FINISHED:
        return
    best = next(point for point in points if point.number == found.best)
    options, start = planned.best_options(best.values), best.specs[0].start
    if start is not None:
        options["init_from"] = folder.root.location(initial_states.file_of(start))
    folder.write_best(options)


def _columns(point: Point) -> dict[str, Any]:
    values = {k: v if isinstance(v, bool | int | float | str) or v is None else str(v) for k, v in point.values.items()}
    return {"point": point.number, **values, "sampler": point.sampler}


def _row(about: Mapping[str, Any], report: Mapping[str, Any], cycles: int, metrics: Sequence[str]) -> dict[str, Any]:
    """Return a table's row; a swept option, such as ``cycles``, takes precedence over the chain's own number."""
    spent = {key: report.get(key) for key in ("epoch", "gradients", "samples")}
    measured = {name: report.get("metrics", {}).get(name) for name in metrics}
    return {**about, "cycle": report.get("cycle"), "cycles": cycles, **spent, **measured, **about}
