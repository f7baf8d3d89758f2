"""A sweep's points as a table, for the page and for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from raychains.inference.sweep_data import Sweep, short
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, shown
from raychains.plotting.tables import DASH, Cell, Row, Table, heads, seconds, terminal, with_error
from raychains.report.console import fitting
from raychains.report.run_tables import head
from raychains.store import SweepStore

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

METRICS = 2
"""That there is room for in a terminal: what decides and the next."""


def build(sweep: Sweep, corner: str, metrics: int | None = None) -> Table:
    """A row per point, the best first: swept options, metrics (the first so many), what became of it, its cost.

    Only points with whole chains and a value have a rank.
    """
    measured, rows = sweep.metrics[:metrics], []
    for place, (number, point) in enumerate(sweep.points.iterrows(), start=1):
        best = number == sweep.best
        means = [with_error(point[m.name], point[f"{m.name}_se"], m) for m in measured]
        cost = [_status(sweep, point), f"{point['gradients']:,.0f}", seconds(point["seconds"])]
        cells = [Cell(text) for text in (*(shown(point[name]) for name in sweep.options), *means, *cost)]
        cells[len(sweep.options)] = Cell(means[0], best)
        ranked = point["whole"] and pd.notna(point[sweep.metric.name])
        rows.append(Row((str(place) if ranked else DASH,), cells, css=f"{point['status']}{' chosen' * best}"))
    columns = [*map(short, sweep.options), *map(head, measured), "Status", "Gradients", "Chain seconds"]
    return Table(corner, heads(*columns), rows)


def _status(sweep: Sweep, point: pd.Series) -> str:
    """``finished``; ``stopped after 20 of 80 epochs``; ``failed (1 of 3 repeats)`` where only some of the repeats
    did."""
    kind: str = point["status"]
    if kind != FINISHED and point["ended"] < point["chains"]:
        return f"{kind} ({point['ended']} of {point['chains']} repeats)"
    return f"{kind} {sweep.after(point)}" if kind != FINISHED and point["epoch"] else kind


def caption(sweep: Sweep) -> list[str]:
    """Return the explanation of the table's columns."""
    repeated = sweep.points["counted"].max() > 1
    spread = "Mean ± standard error over the repeats" if repeated else "A single repeat: no standard errors"
    out = [
        f"{spread}, on the split “{sweep.split}”. Gradients and seconds: of all repeats together. Ranked by "
        f"{sweep.metric.label}; only points with whole chains have a rank."
    ]
    if sweep.points["status"].isin([STOPPED, FAILED]).any():
        out.append("Points that were cut short show their last values, which cost less than the others'.")
    return out


def shortened(console: Console, folder: SweepStore, *, most: int = 20) -> RichTable:
    """Return a sweep's points for a terminal, the best first, at most so many."""
    sweep = Sweep.of(folder)
    found = build(sweep, "#", METRICS)
    count, columns = len(found.rows), len(found.columns)
    more = f"and {count - most} more: results.parquet and the report have all" if count > most else ""
    title = f"{count} point{'s' * (count != 1)}, the best first"
    best = Table(found.corner, found.columns, found.rows[:most])
    # Costs go first, then the metrics that do not decide.
    order = [columns - 1, columns - 2, *range(columns - 4, len(sweep.options), -1)]
    return fitting(console, lambda left_out: terminal(best.without(left_out), title, more), order)
