"""The deciding metric over two swept options: a heat map where they form a grid, else a dot per point; marginals beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from raychains.evaluation.base import Array
from raychains.report.figures.layout import legend
from raychains.report.style import WIDTH, Drawing, Theme
from raychains.report.sweeps import shades
from raychains.report.sweeps.material import FAILED, FINISHED, STOPPED, WAITING, Option, Point, Sweep, shown

CELL = 0.52
"""Inches of a row."""


def drawing(sweep: Sweep) -> Drawing | None:
    """None unless two options or more were swept and some point has a value."""
    if len(sweep.options) < 2 or sweep.best is None:
        return None
    # x and y: M lies along the width, as in the paper's figure of the error against it.
    y, x = sweep.options[:2]
    grid = shades.one_value_each(sweep, [x.name, y.name])
    others = f", at whatever {_names(sweep.options[2:])} is best there" if len(sweep.options) > 2 else ""
    label = sweep.metric.label
    text = (
        f"Each cell: {label} on the split val, mean over the repeats{others}. "
        if grid
        else f"A dot per point, coloured by {label} on the split val, mean over the repeats. "
    )
    text += (
        "Framed: the best point. Beside: the best and the mean over the other "
        if grid
        else "Ringed: the best point. Beside: the same values against one "
    )
    text += "option, of whole chains only."
    values = [v for p in sweep.points if math.isfinite(v := p.mean[sweep.metric.name])]
    norm = shades.span(values, sweep.metric)
    if min(values) < norm.vmin or max(values) > norm.vmax:  # type: ignore[operator]
        text += " Values beyond the colour bar's end share its last colour."
    if any(p.status in (STOPPED, FAILED) for p in sweep.points):
        text += " A point that was stopped early shows what it was worth then, after fewer gradients than the others."
    return Drawing(
        name="map",
        title=f"{label} over {x.short} and {y.short}",
        caption=text,
        alt=f"{label} for each pair of {x.label} and {y.label}; the best is at {_at(sweep.best, (x, y))}",
        draw=lambda theme: (_cells if grid else _dots)(sweep, x, y, theme),
        data=[_row(sweep, p) for p in sweep.points],
    )


def _names(options: Sequence[Option]) -> str:
    return " and ".join(o.short for o in options)


def _at(point: Point, options: Sequence[Option]) -> str:
    return ", ".join(f"{o.short} = {shown(point.values[o.name])}" for o in options)


def _row(sweep: Sweep, point: Point) -> dict[str, Any]:
    name = sweep.metric.name
    return {
        "point": point.number, **point.values, "status": point.status, "mean": point.mean[name], "se": point.error[name],
        "repeats": point.counted, "best": point is sweep.best,
    }  # fmt: skip


def cells(sweep: Sweep, x: Option, y: Option) -> dict[tuple[int, int], Point]:
    """The best point of each cell (column, row), whole chains before those that were cut short."""
    found: dict[tuple[int, int], Point] = {}
    for point in sweep.ranked:
        vx, vy = point.values[x.name], point.values[y.name]
        if vx in x.values and vy in y.values:
            found.setdefault((x.values.index(vx), y.values.index(vy)), point)
    return found


def marginal(sweep: Sweep, option: Option) -> tuple[Array, Array]:
    """Per value of an option: the best and the mean of its points of whole chains, nan where there is none."""
    best, mean = np.full(len(option.values), np.nan), np.full(len(option.values), np.nan)
    for i, value in enumerate(option.values):
        there = [p for p in sweep.points if p.complete and p.values[option.name] == value]
        found = [p.mean[sweep.metric.name] for p in there if math.isfinite(sweep.badness(p))]
        if found:
            best[i] = max(found) if sweep.metric.better == "higher" else min(found)
            mean[i] = float(np.mean(found))
    return best, mean


def _panels(height: float, theme: Theme) -> tuple[Figure, dict[str, Axes]]:
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplot_mosaic(
        [["top", "corner"], ["main", "side"]],
        width_ratios=[3.4, 1.0],
        height_ratios=[1.0, max(1.0, (height - 2.1) / 1.15)],
    )
    axes["corner"].set_axis_off()
    axes["top"].tick_params(labelbottom=False)
    axes["side"].tick_params(labelleft=False)
    for name in ("top", "side"):
        axes[name].margins(0.12)
    return figure, axes


def _bar(figure: Figure, axes: dict[str, Axes], sweep: Sweep, norm: Any, theme: Theme) -> None:
    """The colours' key in the free corner; an arrow where values lie behind its end."""
    inset = axes["corner"].inset_axes((0.12, 0.52, 0.76, 0.16))
    values = [p.mean[sweep.metric.name] for p in sweep.points if math.isfinite(p.mean[sweep.metric.name])]
    behind = ("min" if min(values) < norm.vmin else "neither", "max" if max(values) > norm.vmax else "neither")
    extend = next((e for e in behind if e != "neither"), "neither")
    mappable = ScalarMappable(norm, shades.colours(sweep.metric, theme))
    bar = figure.colorbar(mappable, cax=inset, orientation="horizontal", extend=extend)
    bar.outline.set_linewidth(0.5)
    ends = (norm.vmin, norm.vmax)
    inset.set_xticks(ends, [shades.number(sweep.metric, v) for v in ends])
    inset.tick_params(labelsize=7.5, length=2)
    inset.set_title(sweep.metric.label, fontsize=8.5, fontweight="normal", loc="center", pad=4)


def _cells(sweep: Sweep, x: Option, y: Option, theme: Theme) -> Figure:
    nx, ny = len(x.values), len(y.values)
    figure, axes = _panels(2.1 + max(1.6, CELL * ny), theme)
    main, metric = axes["main"], sweep.metric
    there = cells(sweep, x, y)
    norm, colours = shades.span([p.mean[metric.name] for p in there.values()], metric), shades.colours(metric, theme)
    small = 8.5 if nx <= 7 else 7.5 if nx <= 10 else 6.5
    for (i, j), point in there.items():
        value = point.mean[metric.name]
        known = math.isfinite(value)
        shade = colours(norm(value)) if known else theme.paper
        box = Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor=shade, edgecolor=theme.paper, linewidth=1.2)
        main.add_patch(box)
        if point.status != FINISHED:
            over = shades.readable(shade) if known else theme.muted
            hatch = Rectangle(
                (i - 0.5, j - 0.5),
                1,
                1,
                fill=False,
                hatch=shades.HATCHES[point.status],
                edgecolor=over,
                linewidth=0,
                alpha=0.55,
            )
            hatch.set_gid(f"{point.status}-{i}-{j}")
            main.add_patch(hatch)
        if known:
            text = main.text(
                i,
                j,
                shades.number(metric, value),
                ha="center",
                va="center",
                fontsize=small,
                color=shades.readable(shade),
            )
            if point.status != FINISHED:  # numbers stay readable over a hatch
                text.set_bbox({"facecolor": shade, "edgecolor": "none", "pad": 1.5})
    main.set(xlim=(-0.5, nx - 0.5), ylim=(-0.5, ny - 0.5), xlabel=x.label, ylabel=y.label)
    main.set_xticks(range(nx), [shown(v) for v in x.values])
    main.set_yticks(range(ny), [shown(v) for v in y.values])
    main.grid(False)
    main.tick_params(length=0)
    best = next((cell for cell, p in there.items() if p is sweep.best), None)
    if best is not None:
        _frame(main, best, theme)
    axes["top"].set_xlim(main.get_xlim())
    axes["side"].set_ylim(main.get_ylim())
    axes["top"].set_xticks(range(nx))
    axes["side"].set_yticks(range(ny))
    for option, axis, upright in ((x, axes["top"], True), (y, axes["side"], False)):
        for values, style in zip(marginal(sweep, option), _styles(theme), strict=True):
            places = np.arange(len(option.values))
            pair = (places, values * metric.scale) if upright else (values * metric.scale, places)
            axis.plot(*pair, **style)
    _marginal_labels(axes, sweep)
    _bar(figure, axes, sweep, norm, theme)
    kinds = [s for s in (STOPPED, FAILED, WAITING) if any(p.status == s for p in there.values())]
    lines = [Line2D([], [], label=n, **style) for n, style in zip(("best", "mean"), _styles(theme), strict=True)]
    handles = [_best_handle(theme), *lines, *(shades.patch(s, theme, _partly(there.values(), s)) for s in kinds)]
    legend(figure, handles, columns=3 if len(handles) == 5 else 4)
    return figure


def _partly(points: Iterable[Point], status: str) -> bool:
    """Whether a value stands in a cell of this status because other repeats finished."""
    return any(p.status == status and p.complete for p in points)


def _frame(axis: Axes, cell: tuple[int, int], theme: Theme) -> None:
    """Two lines, so that one of them stands out from every shade."""
    for width, colour in ((4.6, theme.ink), (1.2, theme.paper)):
        box = Rectangle(
            (cell[0] - 0.5, cell[1] - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=width, zorder=5, clip_on=False
        )
        box.set_gid("best")
        axis.add_patch(box)


def _best_handle(theme: Theme) -> Line2D:
    return Line2D(
        [], [], marker="s", linestyle="", markersize=9, markerfacecolor="none", markeredgecolor=theme.ink,
        markeredgewidth=2, label="best point",
    )  # fmt: skip


def _styles(theme: Theme) -> tuple[dict[str, Any], dict[str, Any]]:
    blue, orange = theme.families["cyclical"][0], theme.families["decreasing"][0]
    return (
        {"color": blue, "marker": "o", "markersize": 4.5, "linewidth": 1.4},
        {"color": orange, "marker": "s", "markersize": 4, "linewidth": 1.2, "linestyle": (0, (5, 1.6))},
    )


def _marginal_labels(axes: dict[str, Axes], sweep: Sweep) -> None:
    axes["top"].set_ylabel(sweep.metric.label, fontsize=8.5)
    axes["side"].set_xlabel(sweep.metric.label, fontsize=8.5)
    axes["top"].locator_params(axis="y", nbins=4)
    axes["side"].locator_params(axis="x", nbins=3)
    axes["side"].tick_params(axis="x", labelsize=7.5)


def _dots(sweep: Sweep, x: Option, y: Option, theme: Theme) -> Figure:
    figure, axes = _panels(5.2, theme)
    main, metric = axes["main"], sweep.metric
    norm, colours = shades.span([p.mean[metric.name] for p in sweep.points], metric), shades.colours(metric, theme)
    at_x, at_y = shades.scale(main, "x", x), shades.scale(main, "y", y)
    tops, sides = shades.scale(axes["top"], "x", x), shades.scale(axes["side"], "y", y)
    axes["top"].set_xlabel("")
    axes["side"].set_ylabel("")
    for point in reversed(sweep.ranked):  # the best lie on top
        value = point.mean[metric.name]
        px, py = at_x(point.values[x.name]), at_y(point.values[y.name])
        _dot(main, px, py, point, colours(norm(value)) if math.isfinite(value) else "none", theme, point is sweep.best)
        if point.complete and math.isfinite(value):
            shade = colours(norm(value))
            _dot(
                axes["top"], tops(point.values[x.name]), value * metric.scale, point, shade, theme, point is sweep.best
            )
            _dot(
                axes["side"],
                value * metric.scale,
                sides(point.values[y.name]),
                point,
                shade,
                theme,
                point is sweep.best,
            )
    main.margins(0.06)
    axes["top"].set_xlim(main.get_xlim())
    axes["side"].set_ylim(main.get_ylim())
    _marginal_labels(axes, sweep)
    _bar(figure, axes, sweep, norm, theme)
    kinds = [s for s in (FINISHED, STOPPED, FAILED, WAITING) if any(p.status == s for p in sweep.points)]
    legend(figure, [_ring(theme), *(_dot_handle(s, theme) for s in kinds)], columns=4)
    return figure


MARKERS = {FINISHED: "o", STOPPED: "s", FAILED: "X", WAITING: "P"}


def _dot(axis: Axes, x: float, y: float, point: Point, shade: Any, theme: Theme, best: bool) -> None:
    axis.plot(
        [x], [y], marker=MARKERS[point.status], linestyle="", markersize=7, markerfacecolor=shade,
        markeredgecolor=theme.muted, markeredgewidth=0.6, clip_on=False, zorder=3,
    )  # fmt: skip
    if best:
        (ring,) = axis.plot(
            [x], [y], marker="o", linestyle="", markersize=12.5, markerfacecolor="none", markeredgecolor=theme.ink,
            markeredgewidth=1.8, clip_on=False, zorder=4,
        )  # fmt: skip
        ring.set_gid("best")


def _ring(theme: Theme) -> Line2D:
    return Line2D(
        [], [], marker="o", linestyle="", markersize=9, markerfacecolor="none", markeredgecolor=theme.ink,
        markeredgewidth=1.8, label="best point",
    )  # fmt: skip


def _dot_handle(status: str, theme: Theme) -> Line2D:
    return Line2D(
        [], [], marker=MARKERS[status], linestyle="", markersize=7, markerfacecolor="none", markeredgecolor=theme.muted,
        label=shades.SAID.get(status, "whole chains"),
    )  # fmt: skip
