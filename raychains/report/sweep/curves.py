"""A sweep's curves: the metric after every cycle against gradients spent, and, as cSG-MCMC's Fig. 3c, the error against
M."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import EngFormatter

from raychains.core.validation import is_number
from raychains.evaluation.evaluation import Metric
from raychains.inference.sweep_data import Sweep, short
from raychains.planning.sweep_plan import FAILED, STOPPED
from raychains.plotting.charts import DOT, Axis, Chart, Line, Panel
from raychains.plotting.layout import sentence
from raychains.plotting.style import INK, LINES, MARKERS, MUTED, Drawing, hue
from raychains.report.sweep import heat
from raychains.samplers import METHODS

ENDS = {STOPPED: "x", FAILED: "X"}
"""Marks at the ends of what did not run to its end."""


def progress(sweep: Sweep) -> Drawing | None:
    """Learning curves of the ensembles so far; None where nothing was reported."""
    found = learning(sweep)
    if not len(found):
        return None
    label, statuses = sweep.metric.label, set(sweep.points["status"])
    ends = [text for status, text in ((STOPPED, "stopped (×)"), (FAILED, "failed (✖)")) if status in statuses]
    return Drawing(
        name="progress",
        title="Learning curves of the ensembles",
        caption=(
            f"{label} on the split {sweep.split} after every cycle, of the samples so far, against gradient "
            "evaluations of one chain; a line per point, mean over the repeats that came as far. Colours by the last "
            "value, thick the best point." + (f" Marks: {' and '.join(ends)}." if ends else "")
        ),
        alt=f"{label} against gradient evaluations, a line for each of {found['point'].nunique()} points",
        draw=_progress(sweep, found),
        data=found.to_dict("records"),
    )


def learning(sweep: Sweep) -> pd.DataFrame:
    """Per point and cycle that was reported with a number: gradients, the mean over the repeats, and their number."""
    name, reports = sweep.metric.name, sweep.reports
    if name not in reports:
        return pd.DataFrame()
    values = pd.to_numeric(reports[name], errors="coerce").astype(float)
    by = reports.assign(value=values)[np.isfinite(values)].groupby(["point", "cycle"])
    found = by.agg(gradients=("gradients", "mean"), repeats=("value", "size"), mean=("value", "mean"))
    return found.droplevel("cycle").reset_index()


def _progress(sweep: Sweep, found: pd.DataFrame) -> Chart:
    metric, points = sweep.metric, sweep.points
    norm, shade = heat.span(points, metric), heat.colours(metric)
    there, lines = points[points.index.isin(found["point"])], []
    for number, point in there[::-1].iterrows():
        curve, best, last = found[found["point"] == number], number == sweep.best, point[metric.name]
        x, y = curve["gradients"], curve["mean"] * metric.scale
        if best:  # an edge, so that it stands out from its own shade's neighbours
            lines.append(Line(x=x, y=y, style={"color": INK, "linewidth": 4.2, "zorder": 4}))
        style: dict[str, Any] = {"color": MUTED if pd.isna(last) else shade(norm(last)), "marker": "o"}
        look = {"linewidth": 2.4, "markersize": 4.5, "zorder": 5} if best else {"linewidth": 1.1, "markersize": 2.6}
        lines.append(Line(x=x, y=y, style={**style, **look}))
        if point["status"] in ENDS:
            cross = {**style, "marker": ENDS[point["status"]], "markersize": 7, "markeredgecolor": INK, "zorder": 6}
            lines.append(Line(x=x[-1:], y=y[-1:], style={**cross, "markeredgewidth": 1.3, "linestyle": ""}))
    handles = [("other points", {"color": MUTED, "linewidth": 1.1, "marker": "o", "markersize": 3})]
    if sweep.best is not None:
        handles.insert(0, (f"best: {sweep.text(sweep.best)}", {"color": INK, "linewidth": 3.4, "marker": "o"}))
    for status, mark in ENDS.items():
        if (there["status"] == status).any():
            handles.append((heat.NAMES[status], {**DOT, "color": INK, "marker": mark, "markersize": 7}))
    x_axis = Axis(label="Gradient evaluations of a chain", low=0, text=EngFormatter())
    y_axis = heat.value_axis(metric, found["mean"])
    return Chart(panels=[Panel(marks=lines, x=x_axis, y=y_axis)], height=3.5, legend=handles, legend_columns=4)


def cycles(sweep: Sweep) -> Drawing | None:
    """The error against M; None unless M was swept and the best setting of some sampler has whole chains at two M."""
    metric = next((m for m in sweep.metrics if m.name in ("error", "label_error", "rmse")), sweep.metric)
    found = by_cycles(sweep, metric)
    if not len(found) or not found["sampler"].duplicated().any():
        return None
    rest = [short(name) for name in sweep.options if name not in ("cycles", "sampler")]
    where = f" at each sampler's best {sentence(rest)}" if rest else ""
    bars = ", bars ± one standard error" if sweep.points["counted"].max() > 1 else ""
    return Drawing(
        name="cycles",
        title="Error against the number of cycles",
        caption=(
            f"{metric.label} on the split {sweep.split} of the ensemble of all cycles' samples against the number of "
            f"cycles M, at equal gradient evaluations{where}. Mean over the repeats{bars}; whole chains only. As "
            "cSG-MCMC's Fig. 3c, which has it on the test split."
        ),
        alt=f"{metric.label} against the number of cycles for {' and '.join(map(_label, found['sampler'].unique()))}",
        draw=_cycles(found, metric),
        data=found.to_dict("records"),
    )


def by_cycles(sweep: Sweep, metric: Metric) -> pd.DataFrame:
    """A row per M with whole chains of each sampler's setting with the best point."""
    tried = sweep.options.get("cycles", [])
    points = sweep.points[sweep.points["whole"]].dropna(subset=sweep.metric.name)
    if len(tried) < 2 or not all(map(is_number, tried)) or not len(points):
        return pd.DataFrame()
    others = [name for name in sweep.options if name not in ("cycles", "sampler")]
    line = points.groupby(["sampler", *others], sort=False, dropna=False).ngroup()
    points = points[line == line.groupby(points["sampler"]).transform("min")]
    label, order = points["sampler"].map(_label), list(sweep.points.sort_index()["sampler"].unique())
    setting = [f"{label[n]} ({sweep.text(n, others)})" if others else label[n] for n in points.index]
    values = {"cycles": points["cycles"].astype(float), "mean": points[metric.name], "se": points[f"{metric.name}_se"]}
    found = pd.DataFrame({"sampler": points["sampler"], "setting": setting, **values})
    return found.sort_values(["sampler", "cycles"], key=lambda c: c.map(order.index) if c.name == "sampler" else c)


def _label(sampler: str) -> str:
    return METHODS[sampler].label if sampler in METHODS else sampler


def _cycles(found: pd.DataFrame, metric: Metric) -> Chart:
    lines = []
    for rank, (setting, line) in enumerate(found.groupby("setting", sort=False)):
        m, mean, error = line["cycles"], line["mean"] * metric.scale, line["se"].fillna(0.0) * metric.scale
        style: dict[str, Any] = {"color": hue(rank), "linestyle": LINES[rank % len(LINES)]}
        style |= {"marker": MARKERS[rank % len(MARKERS)], "markersize": 6}
        ends = (mean - error, mean + error) if error.any() else None
        lines.append(Line(x=m, y=mean, style=style, label=str(setting), upright=ends))
    every = sorted(set(found["cycles"]))
    ticks = {v: f"{v:g}" for v in every[:: -(-len(every) // 12)]}
    x = Axis(
        label="Number of cycles M", scale="log" if every[-1] / every[0] >= 6 else "linear", ticks=ticks, margin=0.05
    )
    return Chart(panels=[Panel(marks=lines, x=x, y=Axis(label=f"{metric.label}, validation"))], height=3.1)
