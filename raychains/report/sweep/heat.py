"""The deciding metric over the swept options: a map of two of them, and a panel per option."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_rgb

from raychains.core.validation import is_number
from raychains.evaluation.evaluation import Metric
from raychains.inference.sweep_data import Sweep, label, short
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, WAITING, shown
from raychains.plotting.charts import DOT, HOLLOW, Axis, Bars, Chart, Line, Mark, Note, Panel, Style
from raychains.plotting.layout import sentence
from raychains.plotting.style import HUES, INK, LINES, MUTED, PAPER, Drawing
from raychains.plotting.tables import with_error

LONGEST = 14
"""Values of an option up to which the map has cells."""
STEEP = 20.0
"""Ratio of an option's ends above which its axis is logarithmic."""
SHARES = ("exploration", "momentum", "temperature_ramp")
"""Options between 0 and 1, whose axes are plain however near 0 they come."""
FEW = 6
"""Values of an option up to which each has a tick."""
FAR = 3.0
"""Times the distance from the best value to the median of whole chains, beyond which the colours of values end."""
NAMES = {FINISHED: "whole chains", STOPPED: "stopped by the scheduler", FAILED: "failed", WAITING: "not finished"}
HATCHES = {STOPPED: "////", FAILED: "xxxx", WAITING: "...."}
MARKERS = {FINISHED: "o", STOPPED: "s", FAILED: "X", WAITING: "P"}
MARGINALS: Mapping[str, Style] = {
    "best": {"color": HUES[0], "marker": "o", "markersize": 4.5, "linewidth": 1.4},
    "mean": {"color": HUES[1], "marker": "s", "markersize": 4, "linewidth": 1.2, "linestyle": LINES[1]},
}
RING: Style = {"marker": "o", "linestyle": "", "markerfacecolor": "none", "markersize": 11, "clip_on": False}
RING = {**RING, "markeredgecolor": INK, "markeredgewidth": 1.8, "zorder": 4, "gid": "best"}
PATCH: Style = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.7}
MIDDLE: Style = {"xytext": (0, 0), "ha": "center", "va": "center", "fontsize": 8}


def drawing(sweep: Sweep) -> Drawing | None:
    """The map; None unless two options or more were swept and some point has a value."""
    if len(sweep.options) < 2 or sweep.best is None:
        return None
    y, x, *others = sweep.options  # M lies along the width
    lengths = (len(sweep.options[x]), len(sweep.options[y]))
    points = sweep.points.drop_duplicates([x, y])  # the best of each pair
    cells = max(lengths) <= LONGEST and 2 * len(points) >= math.prod(lengths)
    points = points if cells else sweep.points
    metric = sweep.metric
    text = f"{metric.label} on the split {sweep.split}, mean over the repeats"
    where = f", at whatever {sentence([short(o) for o in others])} is best there" if cells and others else ""
    text = f"Each cell: {text}{where}. Framed" if cells else f"A dot per point: {text}. Ringed"
    text += ": the best point. The darker, the better; values that are far from the best share the lightest colour."
    if (sweep.points["status"] != FINISHED).any():
        text += " A point that did not finish shows the mean of its repeats that did, else its last value."
    return Drawing(
        name="map",
        title=f"{metric.label} over {short(x)} and {short(y)}",
        caption=text,
        alt=f"{metric.label} for each pair of {label(x)} and {label(y)}; the best is at "
        f"{sweep.text(sweep.best, (x, y))}",
        draw=_map(sweep, points, x, y, cells),
        data=_data(sweep, "se", "repeats", "best"),
    )


def options(sweep: Sweep) -> Drawing | None:
    """A panel per option; None where no option has two values, and where no point has a value."""
    varied = [name for name, values in sweep.options.items() if len(values) > 1]
    if not varied or sweep.best is None:
        return None
    metric = sweep.metric
    text = (
        f"{metric.label} on the split {sweep.split} of every point against one option at a time, whatever the "
        "others were; mean over the repeats. Lines: the best and the mean of the whole chains at each value, where "
        "values repeat. Ringed: the best point."
    )
    if (sweep.points["status"] == STOPPED).any():
        text += " Crosses: stopped early, after fewer gradients."
    values = value_axis(metric, sweep.points[metric.name])
    axes = {name: _axis(sweep, name) for name in varied}
    panels = [Panel(marks=_against(sweep, name, at), x=axis, y=values) for name, (axis, at) in axes.items()]
    return Drawing(
        name="options",
        title=f"{metric.label} by each option",
        caption=text,
        alt=f"{metric.label} of every point against {', '.join(map(label, varied))}",
        draw=Chart(panels=panels, columns=3, height=2.7, share_y=True, legend_columns=5),
        data=_data(sweep),
    )


def _data(sweep: Sweep, *also: str) -> list[dict[str, Any]]:
    points = sweep.points.sort_index().reset_index()
    mean, se = points[sweep.metric.name], points[f"{sweep.metric.name}_se"]
    points = points.assign(mean=mean, se=se, repeats=points["counted"].astype(int), best=points["point"] == sweep.best)
    return points[["point", *sweep.options, "status", "mean", *also]].to_dict("records")


# Colours and axes of the metric, which learning curves have too


def colours(metric: Metric) -> Colormap:
    """Viridis without its ends: perceptually uniform, safe for colour-blind readers; no line is lost on light or dark
    paper."""
    worse_last = colormaps["viridis"](np.linspace(0.25, 0.85, 256))
    return ListedColormap(worse_last[::-1] if metric.better == "higher" else worse_last).with_extremes(bad=PAPER)


def span(points: pd.DataFrame, metric: Metric) -> Normalize:
    """From the best to the worst value; those that are far out share the last colour instead of taking all others'
    range.

    What is far out is decided by whole chains, where their values differ.
    """
    sign = -1 if metric.better == "higher" else 1
    values = sign * points[metric.name].dropna()
    whole = values[points["whole"]]
    best, middle = values.min(), (whole if whole.nunique() > 1 else values).median()
    worst = min(values.max(), best + FAR * (middle - best)) if middle > best else values.max()
    low, high = sorted((sign * best, sign * worst))
    return Normalize(low, high if high > low else low + max(abs(low), 1.0) * 1e-3, clip=True)


def readable(shade: Any) -> str:
    """Black or white, whichever has more contrast on a shade: at least 4.5 : 1 as WCAG measures it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(shade)]
    return "#000000" if np.dot((0.2126, 0.7152, 0.0722), linear) > 0.179 else "#fefefe"


def value_axis(metric: Metric, values: pd.Series) -> Axis:
    """A metric's axis: logarithmic where values differ much, so that one far out leaves the others apart."""
    low, high = values.min(), values.max()
    return Axis(label=f"{metric.label}, validation", scale="log" if low > 0 and high >= 4 * low else "linear")


# The map


def _map(sweep: Sweep, points: pd.DataFrame, x: str, y: str, cells: bool) -> Chart:
    (across, at_x), (up, at_y) = _axis(sweep, x, apart=cells), _axis(sweep, y, apart=cells)
    norm, colour = span(points, sweep.metric), colours(sweep.metric)
    marks: list[Mark] = []
    for number, point in points[::-1].iterrows():  # the best lie on top
        if point[x] in at_x and point[y] in at_y:
            shade = colour(norm(point[sweep.metric.name]))
            best = number == sweep.best
            marks += (_cell if cells else _dot)(sweep, point, at_x[point[x]], at_y[point[y]], shade, best)
    found = [status for status in NAMES if (points["status"] == status).any()]
    if cells:
        legend = [(NAMES[s], {**PATCH, "hatch": HATCHES[s]}) for s in found if s in HATCHES]
        return Chart(panels=[Panel(marks=marks, x=across, y=up)], height=0.9 + 0.52 * len(at_y), legend=legend)
    legend = [(NAMES[s], {**DOT, **HOLLOW, "marker": MARKERS[s], "markersize": 7}) for s in found]
    return Chart(panels=[Panel(marks=marks, x=across, y=up)], height=4.2, legend=legend, legend_columns=5)


def _cell(sweep: Sweep, point: pd.Series, i: float, j: float, shade: Any, best: bool) -> Iterator[Mark]:
    """Yield a pair's cell with its value: hatched where it did not finish, framed where it is the best."""
    metric, status, value = sweep.metric, point["status"], point[sweep.metric.name]
    ink = MUTED if pd.isna(value) else readable(shade)
    box = Bars(
        x=[i], height=[1], width=1, bottom=j - 0.5, style={"facecolor": shade, "edgecolor": PAPER, "linewidth": 1.2}
    )
    yield box
    if status != FINISHED:
        yield replace(box, style={"fill": False, "hatch": HATCHES[status], "edgecolor": ink, "alpha": 0.55})
    if pd.notna(value):
        back = {"facecolor": shade, "edgecolor": "none", "pad": 1.5}  # readable over a hatch
        yield Note(x=i, y=j, text=with_error(value, math.nan, metric), style={"color": ink, "bbox": back, **MIDDLE})
    for width, edge in ((4.6, INK), (1.2, PAPER)) if best else ():  # two: one of them stands out from every shade
        frame = {"edgecolor": edge, "linewidth": width, "zorder": 5, "clip_on": False, "gid": "best"}
        yield replace(box, style={"fill": False, **frame})


def _dot(sweep: Sweep, point: pd.Series, x: float, y: float, shade: Any, best: bool) -> Iterator[Mark]:
    """Yield a point's dot, ringed where it is the best."""
    edge = {"markeredgecolor": MUTED, "markeredgewidth": 0.6, "markersize": 7, "clip_on": False, "zorder": 3}
    yield Line(x=[x], y=[y], style={**DOT, **edge, "color": shade, "marker": MARKERS[point["status"]]})
    if best:
        yield Line(x=[x], y=[y], style=RING, label="best point")


# A panel per option


def _against(sweep: Sweep, option: str, at: Mapping[Any, float]) -> list[Mark]:
    """Return points against one option; where most values repeat, also the best and the mean of whole chains."""
    points, metric = sweep.points, sweep.metric
    place, value, whole = points[option].map(at), points[metric.name] * metric.scale, points["whole"]
    marks: list[Mark] = [Line(x=place[whole], y=value[whole], style={**DOT, "alpha": 0.75}, label="points")]
    if value[~whole].notna().any():
        crosses = {**DOT, "marker": "x", "alpha": 0.75}
        marks.append(Line(x=place[~whole], y=value[~whole], style=crosses, label="stopped early"))
    if 2 * len(at) <= len(points):
        by = value[whole].groupby(points[option])
        for name, found in (("best", by.max() if metric.better == "higher" else by.min()), ("mean", by.mean())):
            marks.append(Line(x=list(at.values()), y=found.reindex(list(at)), style=MARGINALS[name], label=name))
    return [*marks, Line(x=place[[sweep.best]], y=value[[sweep.best]], style=RING, label="best point")]


def _axis(sweep: Sweep, option: str, apart: bool = False) -> tuple[Axis, dict[Any, float]]:
    """Return an option's axis and the places of its values on it.

    Numbers over a wide range have a logarithmic axis, other numbers a plain one; texts a place each, and all values
    ``apart``.
    """
    values = sweep.options[option]
    if apart or not all(map(is_number, values)):
        ticks = {float(place): shown(value) for place, value in enumerate(values)}
        room: dict[str, Any] = {"low": -0.5, "high": len(values) - 0.5} if apart else {"margin": 0.08}
        return Axis(label=label(option), ticks=ticks, grid=not apart, **room), dict(zip(values, ticks, strict=True))
    steep = option not in SHARES and min(values) > 0 and max(values) / min(values) >= STEEP
    few = {float(value): shown(value) for value in values} if len(values) <= FEW else 8
    whole = all(isinstance(value, int) for value in values)
    axis = Axis(label=label(option), scale="log" if steep else "linear", ticks=few, whole=whole, margin=0.08)
    return axis, {value: float(value) for value in values}
