"""The deciding metric over the swept options: a map of two of them with marginals beside it, and a panel per option."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from raychains.core.validation import is_number
from raychains.evaluation.evaluation import Metric
from raychains.inference.sweep_data import Sweep, label, short
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, WAITING, shown
from raychains.plotting.layout import COUNT, dot_entry, entry, grid, legend, log_axis, sentence
from raychains.plotting.style import HUES, INK, LINES, MUTED, PAPER, WIDTH, Drawing
from raychains.plotting.tables import with_error

LONGEST = 14
"""Values of an option up to which the map has cells."""
STEEP = 20.0
"""Ratio of an option's ends above which its axis is logarithmic."""
SHARES = ("exploration", "momentum", "temperature_ramp")
"""Options between 0 and 1, whose axes are plain however near 0 they come."""
FAR = 3.0
"""Times the distance from the best value to the median of whole chains, beyond which the colours of values end."""
NAMES = {FINISHED: "whole chains", STOPPED: "stopped by the scheduler", FAILED: "failed", WAITING: "not finished"}
HATCHES = {STOPPED: "////", FAILED: "xxxx", WAITING: "...."}
MARKERS = {FINISHED: "o", STOPPED: "s", FAILED: "X", WAITING: "P"}
MARGINALS: Mapping[str, Mapping[str, Any]] = {
    "best": {"color": HUES[0], "marker": "o", "markersize": 4.5, "linewidth": 1.4},
    "mean": {"color": HUES[1], "marker": "s", "markersize": 4, "linewidth": 1.2, "linestyle": LINES[1]},
}
RING: dict[str, Any] = {"marker": "o", "linestyle": "", "markerfacecolor": "none"}
RING |= {"markeredgecolor": INK, "markeredgewidth": 1.8, "gid": "best"}


def drawing(sweep: Sweep) -> Drawing | None:
    """The map; None unless two options or more were swept and some point has a value."""
    if len(sweep.options) < 2 or sweep.best is None:
        return None
    y, x, *others = sweep.options  # M lies along the width
    metric, lengths = sweep.metric, (len(sweep.options[x]), len(sweep.options[y]))
    points = sweep.points.drop_duplicates([x, y])  # the best of each pair
    cells = max(lengths) <= LONGEST and 2 * len(points) >= math.prod(lengths)
    points = points if cells else sweep.points
    text = f"{metric.label} on the split {sweep.split}, mean over the repeats"
    where = f", at whatever {sentence([short(o) for o in others])} is best there" if cells and others else ""
    text = f"Each cell: {text}{where}. Framed" if cells else f"A dot per point, coloured by {text}. Ringed"
    text += (
        ": the best point. Beside: all points of whole chains against one option, where values repeat with the "
        "best and the mean."
    )
    if beyond(points[metric.name], span(points, metric)) != "neither":
        text += " Values beyond the colour bar's end share its last colour."
    if sweep.points["status"].isin([STOPPED, FAILED]).any():
        text += " A point that was stopped early shows what it was worth then, after fewer gradients than the others."
    return Drawing(
        name="map",
        title=f"{metric.label} over {short(x)} and {short(y)}",
        caption=text,
        alt=f"{metric.label} for each pair of {label(x)} and {label(y)}; the best is at "
        f"{sweep.text(sweep.best, (x, y))}",
        draw=lambda: _map(sweep, points, x, y, cells),
        data=_data(sweep, "se", "repeats", "best"),
    )


def options(sweep: Sweep) -> Drawing | None:
    """A panel per option; None with two options, whose map has these beside it, and where no point has a value."""
    varied = [name for name, values in sweep.options.items() if len(values) > 1]
    if not varied or sweep.best is None or len(sweep.options) == 2:
        return None
    text = (
        f"{sweep.metric.label} on the split {sweep.split} of every point against one option at a time, whatever the "
        "others were; mean over the repeats. Lines: the best and the mean of the whole chains at each value, where "
        "values repeat. Ringed: the best point."
    )
    if (sweep.points["status"] == STOPPED).any():
        text += " Crosses: stopped early, after fewer gradients."
    return Drawing(
        name="options",
        title=f"{sweep.metric.label} by each option",
        caption=text,
        alt=f"{sweep.metric.label} of every point against {', '.join(map(label, varied))}",
        draw=lambda: _panels(sweep, varied),
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


def beyond(values: pd.Series, norm: Normalize) -> Any:
    """Return the end of the colours beyond which values lie, as matplotlib's ``extend``."""
    return "min" if values.min() < norm.vmin else "max" if values.max() > norm.vmax else "neither"


def readable(shade: Any) -> str:
    """Black or white, whichever has more contrast on a shade: at least 4.5 : 1 as WCAG measures it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(shade)]
    return "#000000" if np.dot((0.2126, 0.7152, 0.0722), linear) > 0.179 else "#fefefe"


def value_axis(axis: Any, values: pd.Series, bins: int | str = "auto") -> None:
    """Set up a metric's axis: logarithmic where values differ much, so that one far out leaves the others apart."""
    low, high = values.min(), values.max()
    if low > 0 and high / low >= 4:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        log_axis(axis, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 10 else (1.0, 2.0, 5.0))
    else:
        axis.axes.locator_params(axis=axis.axis_name, nbins=bins)


# The map


def _map(sweep: Sweep, points: pd.DataFrame, x: str, y: str, cells: bool) -> Figure:
    metric, norm = sweep.metric, span(points, sweep.metric)
    height = 2.1 + max(1.6, 0.52 * len(sweep.options[y])) if cells else 5.2
    figure = Figure(figsize=(WIDTH, height))
    ratios: dict[str, Any] = {"width_ratios": [3.4, 1.0], "height_ratios": [1.0, max(1.0, (height - 2.1) / 1.15)]}
    axes = figure.subplot_mosaic([["top", "key"], ["main", "side"]], **ratios)
    main, top, side, key = (axes[name] for name in ("main", "top", "side", "key"))
    top.sharex(main)
    side.sharey(main)
    at_x, at_y = _places(main.xaxis, sweep, x, apart=cells), _places(main.yaxis, sweep, y, apart=cells)
    handles = (_cells if cells else _dots)(main, sweep, points, points[x].map(at_x), points[y].map(at_y), norm)
    whole = sweep.points[sweep.points["whole"]]
    lines = _against(top, sweep, whole, x, at_x), _against(side, sweep, whole, y, at_y, upright=False)
    value_axis(top.yaxis, whole[metric.name] * metric.scale, 4)
    value_axis(side.xaxis, whole[metric.name] * metric.scale, 3)
    top.tick_params(labelbottom=False)
    side.tick_params(labelleft=False)
    side.tick_params(axis="x", labelsize=7.5)
    top.set_ylabel(metric.label, fontsize=8.5)
    side.set_xlabel(metric.label, fontsize=8.5)
    key.set_axis_off()
    inset, extend = key.inset_axes((0.12, 0.52, 0.76, 0.16)), beyond(points[metric.name], norm)
    bar = figure.colorbar(ScalarMappable(norm, colours(metric)), cax=inset, orientation="horizontal", extend=extend)
    bar.outline.set_linewidth(0.5)
    inset.set_xticks(inset.get_xlim(), [with_error(end, math.nan, metric) for end in inset.get_xlim()])
    inset.tick_params(labelsize=7.5, length=2)
    inset.set_title(metric.label, fontsize=8.5, fontweight="normal", loc="center", pad=4)
    handles += [entry(name, **style) for name, style in MARGINALS.items() if any(lines)]
    legend(figure, handles, columns=3 if len(handles) == 5 else 4)
    return figure


def _cells(main: Axes, sweep: Sweep, points: pd.DataFrame, x: pd.Series, y: pd.Series, norm: Normalize) -> list[Any]:
    """Draw a cell per pair of values; return the legend's entries."""
    metric, colour = sweep.metric, colours(sweep.metric)
    size = 8.5 if x.max() < 7 else 7.5 if x.max() < 10 else 6.5

    def box(i: float, j: float, **style: Any) -> None:
        main.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, **style))

    for number, point in points[x.notna() & y.notna()].iterrows():
        cell, value, status = (x[number], y[number]), point[metric.name], point["status"]
        shade = colour(norm(value))
        ink = MUTED if pd.isna(value) else readable(shade)
        box(*cell, facecolor=shade, edgecolor=PAPER, linewidth=1.2)
        if status != FINISHED:
            box(*cell, fill=False, hatch=HATCHES[status], edgecolor=ink, linewidth=0, alpha=0.55, gid="hatch")
        if pd.notna(value):
            text = main.text(*cell, with_error(value, math.nan, metric), ha="center", va="center", color=ink, size=size)
            if status != FINISHED:  # readable over a hatch
                text.set_bbox({"facecolor": shade, "edgecolor": "none", "pad": 1.5})
        if number == sweep.best:
            for width, edge in ((4.6, INK), (1.2, PAPER)):  # two, so that one of them stands out from every shade
                box(*cell, fill=False, edgecolor=edge, linewidth=width, zorder=5, clip_on=False, gid="best")
    main.set(xlim=(-0.5, x.max() + 0.5), ylim=(-0.5, y.max() + 0.5))
    main.grid(False)
    main.tick_params(length=0)
    handles: list[Any] = [entry("best point", **{**RING, "marker": "s"}, markersize=9)]
    for status, hatch in HATCHES.items():
        if (mine := points["status"] == status).any():
            value = " (its last value)" if status == STOPPED else ""
            value = " (value: of its other repeats)" if points.loc[mine, "whole"].any() else value
            handles.append(Patch(fc="none", ec=MUTED, hatch=hatch, linewidth=0.7, label=NAMES[status] + value))
    return handles


def _dots(main: Axes, sweep: Sweep, points: pd.DataFrame, x: pd.Series, y: pd.Series, norm: Normalize) -> list[Any]:
    """Draw a dot per point; return the legend's entries."""
    handles = [entry("best point", **RING, markersize=9)]
    style: dict[str, Any] = {"cmap": colours(sweep.metric), "norm": norm, "plotnonfinite": True, "clip_on": False}
    style |= {"s": 49, "edgecolors": MUTED, "linewidths": 0.6, "zorder": 3}
    for status, marker in MARKERS.items():
        mine = points[points["status"] == status][::-1]  # the best lie on top
        if len(mine):
            main.scatter(x[mine.index], y[mine.index], c=mine[sweep.metric.name], marker=marker, **style)
            handles.append(dot_entry(NAMES[status], marker=marker, markerfacecolor="none", markersize=7))
    main.plot(x[[sweep.best]], y[[sweep.best]], **RING, markersize=12.5, clip_on=False)
    main.margins(0.06)
    return handles


# Options by themselves


def _panels(sweep: Sweep, varied: list[str]) -> Figure:
    metric, points = sweep.metric, sweep.points
    figure, axes = grid(len(varied), 3, 2.7, sharey=True)
    lines = []
    for axis, name in zip(axes, varied, strict=True):
        places = _places(axis.xaxis, sweep, name)
        if len(places) <= 6:
            axis.set_xticks(list(places.values()), map(shown, places))
            axis.minorticks_off()
        lines.append(_against(axis, sweep, points, name, places))
    value_axis(axes[0].yaxis, points[metric.name] * metric.scale, 6)
    for axis in axes[::3]:
        axis.set_ylabel(metric.label)
    handles = [entry("best point", **RING, markersize=9), dot_entry("points", markersize=4)]
    if points.loc[~points["whole"], metric.name].notna().any():
        handles.append(dot_entry("stopped early", marker="x", markersize=5))
    handles += [entry(name, **style) for name, style in MARGINALS.items() if any(lines)]
    legend(figure, handles, columns=5)
    return figure


def _against(
    axes: Axes, sweep: Sweep, points: pd.DataFrame, option: str, at: Mapping[Any, float], upright: bool = True
) -> bool:
    """Draw points against one option; where most values repeat also the best and the mean of whole chains, and return
    True."""
    metric = sweep.metric
    place, value = points[option].map(at), points[metric.name] * metric.scale

    def plot(across: Any, up: Any, **style: Any) -> None:
        axes.plot(*((across, up) if upright else (up, across)), **style)

    for whole, marker in ((True, "o"), (False, "x")):
        mine = points["whole"] == whole
        plot(place[mine], value[mine], color=MUTED, marker=marker, linestyle="", markersize=4, alpha=0.75)
    by = value[points["whole"]].groupby(points[option])
    repeated = 2 * len(at) <= len(sweep.points)
    for name in MARGINALS if repeated else ():
        found = by.mean() if name == "mean" else by.max() if metric.better == "higher" else by.min()
        plot(list(at.values()), found.reindex(list(at)), **MARGINALS[name])
    best = [n for n in points.index if n == sweep.best]
    plot(place[best], value[best], **RING, markersize=11, zorder=4)
    axes.margins(0.08)
    return repeated


def _places(axis: Any, sweep: Sweep, option: str, apart: bool = False) -> dict[Any, float]:
    """Set an axis up for an option; return the places of its values.

    Numbers over a wide range have a logarithmic axis, other numbers a plain one; texts a place each, and all values
    ``apart``.
    """
    axis.set_label_text(label(option))
    values = sweep.options[option]
    if apart or not all(map(is_number, values)):
        axis.set_ticks(range(len(values)), map(shown, values))
        return {value: float(place) for place, value in enumerate(values)}
    if option not in SHARES and min(values) > 0 and max(values) / min(values) >= STEEP:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        log_axis(axis, (1.0,) if max(values) / min(values) > 300 else (1.0, 2.0, 5.0))
    elif all(isinstance(value, int) for value in values):
        axis.set_major_locator(MaxNLocator(8, integer=True))
        axis.set_major_formatter(COUNT)
    return {value: float(value) for value in values}
