"""What the ensemble so far was worth after every cycle, against the gradient evaluations that it took."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from raychains.report.figures.layout import legend, log_axis
from raychains.report.style import WIDTH, Drawing, Theme
from raychains.report.sweeps import shades
from raychains.report.sweeps.material import FAILED, STOPPED, Point, Sweep, said

ENDS = {STOPPED: ("x", "stopped by the scheduler"), FAILED: ("X", "failed")}
"""Marks at the ends of what did not run to its end."""


def drawing(sweep: Sweep) -> Drawing | None:
    """None where nothing was reported."""
    found = curves(sweep)
    if not found:
        return None
    metric = sweep.metric
    ends = [
        n for s, n in ((STOPPED, "stopped (×)"), (FAILED, "failed (✖)")) if any(p.status == s for p in sweep.points)
    ]
    return Drawing(
        name="progress",
        title="Learning curves of the ensembles",
        caption=(
            f"{metric.label} on the split val after every cycle, of the samples so far, against gradient evaluations of one "
            "chain; a line per point, mean over the repeats that came as far. Colours by the last value, thick the best point."
            + (f" Marks: {' and '.join(ends)}." if ends else "")
        ),
        alt=f"{metric.label} against gradient evaluations, a line for each of {len(found)} points",
        draw=lambda theme: _draw(sweep, found, theme),
        data=[
            {"point": n, "gradients": float(x), "repeats": int(k), "mean": float(y)}
            for n, curve in found.items()
            for x, k, y in curve[["gradients", "repeats", "mean"]].itertuples(index=False)
        ],
    )


def curves(sweep: Sweep) -> dict[int, pd.DataFrame]:
    """By point: gradients, mean over the repeats and their number after each cycle that was reported with a number."""
    name, reports = sweep.metric.name, sweep.reports
    if not len(reports) or name not in reports.columns:
        return {}
    table = reports.assign(value=pd.to_numeric(reports[name], errors="coerce"))
    table = table[np.isfinite(table["value"])]
    by = table.groupby(["point", "cycle"]).agg(
        gradients=("gradients", "mean"), mean=("value", "mean"), repeats=("value", "size")
    )
    return {int(n): part.reset_index(drop=True) for n, part in by.groupby(level="point")}


def _draw(sweep: Sweep, found: dict[int, pd.DataFrame], theme: Theme) -> Figure:
    metric = sweep.metric
    figure = Figure(figsize=(WIDTH, 4.0))
    axis = figure.subplots()
    points = [p for p in reversed(sweep.ranked) if p.number in found]
    norm, shade = shades.span([p.mean[metric.name] for p in points], metric), shades.colours(metric, theme)
    for point in points:
        curve = found[point.number]
        value = point.mean[metric.name]
        best = point is sweep.best
        colour: Any = shade(norm(value)) if math.isfinite(value) else theme.muted
        x, y = curve["gradients"].to_numpy(dtype=float), curve["mean"].to_numpy(dtype=float) * metric.scale
        if best:  # an edge, so that it stands out from its own shade's neighbours
            axis.plot(x, y, color=theme.ink, linewidth=4.2, zorder=4)
        axis.plot(
            x,
            y,
            color=colour,
            linewidth=2.4 if best else 1.1,
            marker="o",
            markersize=4.5 if best else 2.6,
            zorder=5 if best else 2,
        )
        if point.status in ENDS:
            axis.plot(
                x[-1:], y[-1:], marker=ENDS[point.status][0], markersize=7, color=colour if point.status == FAILED else theme.ink,
                markeredgecolor=theme.ink, markeredgewidth=1.3 if point.status == STOPPED else 0.6, linestyle="", zorder=6,
            )  # fmt: skip
    values = np.concatenate([c["mean"].to_numpy(dtype=float) for c in found.values()]) * metric.scale
    if values.min() > 0 and values.max() / values.min() >= 4:
        axis.set_yscale("log")
        log_axis(axis.yaxis, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if values.max() / values.min() < 20 else (1.0, 2.0, 5.0))
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _count(v)))
    axis.set(xlabel="Gradient evaluations of a chain", ylabel=f"{metric.label}, validation")
    handles = [Line2D([], [], color=theme.ink, linewidth=3.4, marker="o", label=_best(sweep))] if sweep.best else []
    handles.append(Line2D([], [], color=theme.muted, linewidth=1.1, marker="o", markersize=3, label="other points"))
    for status, (mark, text) in ENDS.items():
        if any(p.status == status for p in points):
            handles.append(Line2D([], [], color=theme.ink, marker=mark, linestyle="", markersize=7, label=text))
    legend(figure, handles, columns=4)
    return figure


def _best(sweep: Sweep) -> str:
    point: Point | None = sweep.best
    return "best" if point is None else f"best: {said(point, sweep.options)}"


def _count(value: float) -> str:
    for size, sign in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:,.3g}{sign}"
    return f"{value:,.0f}"
