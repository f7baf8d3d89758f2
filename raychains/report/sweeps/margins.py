"""The deciding metric against every swept option by itself, where a map of two does not tell all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.report.figures.layout import legend, panels
from raychains.report.style import Drawing, Theme
from raychains.report.sweeps import shades
from raychains.report.sweeps.heat import marginal
from raychains.report.sweeps.material import STOPPED, Option, Sweep

MARKERS = {True: "o", False: "x"}


def drawing(sweep: Sweep) -> Drawing | None:
    """None with two options, whose map has these beside it, and where no point has a value."""
    options = [o for o in sweep.options if len(o.values) > 1]
    if not options or sweep.best is None or len(sweep.options) == 2:
        return None
    name = sweep.metric.name
    return Drawing(
        name="options",
        title=f"{sweep.metric.label} by each option",
        caption=(
            f"{sweep.metric.label} on the split val of every point against one option at a time, whatever the others were; mean "
            "over the repeats. Lines: the best and the mean of the whole chains at each value, where values repeat. Ringed: "
            "the best point."
            + (
                " Crosses: stopped early, after fewer gradients."
                if any(p.status == STOPPED for p in sweep.points)
                else ""
            )
        ),
        alt=f"{sweep.metric.label} of every point against {', '.join(o.label for o in options)}",
        draw=lambda theme: _draw(sweep, options, theme),
        data=[{"point": p.number, **p.values, "status": p.status, "mean": p.mean[name]} for p in sweep.points],
    )


def _draw(sweep: Sweep, options: list[Option], theme: Theme) -> Figure:
    columns = min(3, len(options))
    rows = -(-len(options) // columns)
    figure, axes = panels(rows, columns, 2.7, sharey=True)
    flat = [axis for row in axes for axis in row]
    for axis in flat[len(options) :]:
        axis.set_axis_off()
    for i, (axis, option) in enumerate(zip(flat, options, strict=False)):
        _panel(axis, sweep, option, theme)
        if i % columns == 0:
            axis.set_ylabel(sweep.metric.label)
    blue, orange = theme.families["cyclical"][0], theme.families["decreasing"][0]
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=9, markerfacecolor="none", markeredgecolor=theme.ink, markeredgewidth=1.8, label="best point"),
        Line2D([], [], marker="o", linestyle="", markersize=4, color=theme.muted, label="points"),
    ]  # fmt: skip
    if any(not p.complete and math.isfinite(sweep.badness(p)) for p in sweep.points):
        handles.append(Line2D([], [], marker="x", linestyle="", markersize=5, color=theme.muted, label="stopped early"))
    if any(_repeats(sweep, option) for option in options):
        handles += [
            Line2D([], [], color=blue, linewidth=1.4, label="best"),
            Line2D([], [], color=orange, linewidth=1.2, linestyle=(0, (5, 1.6)), label="mean"),
        ]
    legend(figure, handles, columns=5)
    return figure


def _repeats(sweep: Sweep, option: Option) -> bool:
    """Whether most of an option's values were tried more than once."""
    return 2 * len(option.values) <= len(sweep.points)


def _panel(axis: Axes, sweep: Sweep, option: Option, theme: Theme) -> None:
    metric = sweep.metric
    at = shades.scale(axis, "x", option)
    if option.numeric and len(option.values) <= 6:
        axis.set_xticks([at(v) for v in option.values], [f"{v:g}" for v in option.values])
        axis.minorticks_off()
    for whole in (True, False):
        mine = [p for p in sweep.points if p.complete is whole and math.isfinite(sweep.badness(p))]
        x = [at(p.values[option.name]) for p in mine]
        style: dict[str, Any] = {"marker": MARKERS[whole], "linestyle": "", "markersize": 4, "alpha": 0.75}
        axis.plot(x, [p.mean[metric.name] * metric.scale for p in mine], color=theme.muted, **style)
    if _repeats(sweep, option):
        best, mean = marginal(sweep, option)
        places = np.array([at(v) for v in option.values])
        axis.plot(places, best * metric.scale, color=theme.families["cyclical"][0], linewidth=1.4)
        axis.plot(
            places, mean * metric.scale, color=theme.families["decreasing"][0], linewidth=1.2, linestyle=(0, (5, 1.6))
        )
    point = sweep.best
    if point is not None:
        (ring,) = axis.plot(
            [at(point.values[option.name])], [point.mean[metric.name] * metric.scale], marker="o", linestyle="", markersize=11,
            markerfacecolor="none", markeredgecolor=theme.ink, markeredgewidth=1.8, zorder=4,
        )  # fmt: skip
        ring.set_gid("best")
    axis.margins(0.08)
    axis.yaxis.set_major_locator(MaxNLocator(6))
