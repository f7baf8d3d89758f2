"""A sweep's points as lines of a table, for the page and the terminal alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from raychains.report.sweeps.material import FAILED, FINISHED, STOPPED, Point, Sweep, shown
from raychains.report.table import DASH, Cell, head
from raychains.report.table import shown as with_error


@dataclass(frozen=True)
class Row:
    """One point."""

    rank: str
    cells: list[Cell]
    best: bool
    status: str


def columns(sweep: Sweep, metrics: int | None = None) -> list[str]:
    """Heads: swept options, metrics (the first so many), cost, what became of the point."""
    swept = [o.short for o in sweep.options]
    heads = [head(m) for m in sweep.metrics[:metrics]]
    return [*swept, *heads, "Status", "Gradients", "Chain seconds"]


def build(sweep: Sweep, metrics: int | None = None) -> list[Row]:
    """One row per point, the best first; those without a value have no rank."""
    return [_row(sweep, point, n, metrics) for n, point in enumerate(sweep.ranked, start=1)]


def _row(sweep: Sweep, point: Point, place: int, metrics: int | None) -> Row:
    best = point is sweep.best
    cells = [Cell(shown(point.values[o.name])) for o in sweep.options]
    cells += [
        Cell(with_error(point.mean[m.name], point.error[m.name], m), best and m.name == sweep.metric.name)
        for m in sweep.metrics[:metrics]
    ]
    cells += [
        Cell(status(sweep, point)),
        Cell(f"{point.gradients:,.0f}"),
        Cell(f"{point.seconds:,.0f}" if point.seconds >= 100 else f"{point.seconds:.1f}"),
    ]
    ranked = point.complete and math.isfinite(sweep.badness(point))
    return Row(str(place) if ranked else DASH, cells, best, point.status)


def status(sweep: Sweep, point: Point) -> str:
    """``finished``; ``stopped after 20 of 80 epochs``; ``failed (1 of 3 repeats)`` where only some of the repeats did."""
    n = point.counts[point.status]
    if n < point.repeats and point.status != FINISHED:
        return f"{point.status} ({n} of {point.repeats} repeats)"
    return f"{point.status} {sweep.after(point)}" if point.status != FINISHED and point.epoch else point.status


def caption(sweep: Sweep) -> list[str]:
    """What the table's columns mean."""
    spread = "Mean ± standard error over the repeats" if sweep.repeated else "A single repeat: no standard errors"
    out = [
        f"{spread}, on the split “{sweep.split}”. Gradients and seconds: of all repeats together. Ranked by "
        f"{sweep.metric.label}; only points with whole chains have a rank."
    ]
    if any(p.status in (STOPPED, FAILED) for p in sweep.points):
        out.append("Points that were cut short show their last values, which cost less than the others'.")
    return out
