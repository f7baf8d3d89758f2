"""Figures of several runs in one: every repeat, entropies of companion sets, maps of the samples."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.report import results
from raychains.report.figures.layout import legend, measure
from raychains.report.material import Material
from raychains.report.style import MARKERS, WIDTH, Drawing, Theme

HUES = (("cyclical", 0), ("decreasing", 0), ("other", 0), ("decreasing", 1), ("other", 1), ("cyclical", 1))
"""Places in the palette, one per run."""
LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""One per arm of a run."""

NAMES = {"inside": "the runs' own split"}
"""What companion sets are called, where not by their own names."""


def colour(theme: Theme, run: int) -> str:
    """A run's colour; runs are told apart by their markers too."""
    family, rank = HUES[run % len(HUES)]
    return theme.families[family][rank]


def _handles(names: Sequence[str], theme: Theme) -> list[Line2D]:
    return [
        Line2D([], [], color=colour(theme, i), marker=MARKERS[i % len(MARKERS)], markersize=5, label=_short(name))
        for i, name in enumerate(names)
    ]


def _short(name: str) -> str:
    """A name that fits into a legend: its end tells stores apart."""
    return name if len(name) <= 48 else "…" + name[-47:]


def spread(runs: Sequence[Material], names: Sequence[str]) -> Drawing:
    """Every repeat of every arm of every run, with mean and standard error."""
    metrics = {m.name: m for run in runs for m in run.metrics}
    return Drawing(
        name="spread",
        title="Every repeat of every run",
        caption="One point per repeat; the bar is the mean, its ends ± one standard error.",
        alt="Each metric's value in every repeat of every arm of the runs",
        draw=lambda theme: _spread(runs, names, list(metrics), theme),
        data=[
            {"run": name, "arm": row["arm"], "repeat": row["repeat"], **{m: row[m] for m in metrics if m in row}}
            for run, name in zip(runs, names, strict=True)
            for row in run.results.to_dict("records")
        ],
    )


def _spread(runs: Sequence[Material], names: Sequence[str], metrics: list[str], theme: Theme) -> Figure:
    known = {m.name: m for run in runs for m in run.metrics}
    lines = [(i, run, arm) for i, run in enumerate(runs) for arm in run.comparison.arms]
    columns = min(len(metrics), 2)
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(WIDTH, rows * (0.34 * len(lines) + 0.75) + 0.4))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for k, name in enumerate(metrics):
        axis, metric = axes[k // columns][k % columns], known[name]
        for y, (i, run, arm) in enumerate(lines):
            mine = run.of(run.results, arm)
            values = mine[name].to_numpy(dtype=float) * metric.scale if name in mine else np.empty(0)
            _repeats(axis, values, y, colour(theme, i), MARKERS[i % len(MARKERS)], theme)
        for y in np.cumsum([len(run.comparison.arms) for run in runs])[:-1]:
            axis.axhline(y - 0.5, color=theme.muted, linewidth=0.7)
        axis.set_xlabel(measure(metric))
        axis.set_yticks(range(len(lines)), [_wrapped(arm.label) for _, _, arm in lines])
        axis.set_ylim(len(lines) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0, labelleft=k % columns == 0)
        axis.xaxis.set_major_locator(MaxNLocator(6))
        axis.margins(x=0.06)
    for spare in range(len(metrics), rows * columns):
        axes[spare // columns][spare % columns].set_axis_off()
    handles = _handles(names, theme)
    for handle in handles:
        handle.set_linestyle("")
    handles.append(Line2D([], [], color=theme.ink, marker="|", linewidth=1.2, markersize=9, label="mean ± s.e."))
    legend(figure, handles, columns=3)
    return figure


def _repeats(axis: Axes, values: Any, y: float, hue: str, shape: str, theme: Theme) -> None:
    if not len(values):
        return
    # Equal values would hide each other: points are set apart in the order of the repeats.
    apart = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(1)
    axis.plot(values, y + apart, shape, color=hue, alpha=0.75, markersize=4.5, markeredgewidth=0)
    if len(values) > 1:
        bar: dict[str, Any] = {"color": theme.ink, "linewidth": 1.2, "capsize": 3, "capthick": 1.2, "zorder": 4}
        axis.errorbar(values.mean(), y, xerr=values.std(ddof=1) / np.sqrt(len(values)), **bar)
        axis.plot(values.mean(), y, "|", color=theme.ink, markersize=11, markeredgewidth=1.6, zorder=4)


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 22)[:3]) or label


def _tables(
    runs: Sequence[Material], names: Sequence[str], table: str, texts: Sequence[str], numbers: Sequence[str]
) -> list[tuple[int, Material, pd.DataFrame]]:
    """The runs that have an analysis's table, by their place."""
    found = [results.read_rows(run.store, table, texts=texts, numbers=numbers) for run in runs]
    return [(i, runs[i], rows) for i, rows in enumerate(found) if rows is not None]


def entropies(runs: Sequence[Material], names: Sequence[str]) -> Drawing | None:
    """Entropy's distribution on each companion set; None where fewer than two runs were measured on any."""
    found = _tables(runs, names, "entropy_cdf", ("arm", "companion"), ("entropy", "cdf"))
    if len(found) < 2:
        return None
    return Drawing(
        name="entropies",
        title="Predictive entropy on companion sets",
        caption=(
            "Share of the examples whose predictive entropy is below the value on the axis, mean over the repeats. Colours are runs, line "
            "styles the arms of each in their order. On sets unlike the training data a curve that stays low is better."
        ),
        alt="Cumulative distribution of the predictive entropy on every companion set, by run and arm",
        draw=lambda theme: _entropies(found, names, theme),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _entropies(found: list[tuple[int, Material, pd.DataFrame]], names: Sequence[str], theme: Theme) -> Figure:
    companions = list(dict.fromkeys(c for _, _, rows in found for c in rows["companion"]))
    columns = min(len(companions), 3)
    lines = -(-len(companions) // columns)
    figure = Figure(figsize=(WIDTH, 2.7 * lines + 0.5))
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for k, companion in enumerate(companions):
        axis = axes[k // columns][k % columns]
        for i, run, rows in found:
            for a, arm in enumerate(run.comparison.arms):
                mine = run.of(rows, arm)
                curve = mine[mine["companion"] == companion].groupby("entropy")["cdf"].mean()  # over the repeats
                axis.plot(curve.index, curve, color=colour(theme, i), linestyle=LINES[a % len(LINES)])
        axis.set(title=NAMES.get(companion, companion), xlabel="Predictive entropy (nats)", ylim=(0, 1.02))
        axis.set_xlim(left=0)
        if k % columns == 0:
            axis.set_ylabel("Share of examples below")
    for spare in range(len(companions), lines * columns):
        axes[spare // columns][spare % columns].set_axis_off()
    handles = _handles(names, theme)
    for handle in handles:
        handle.set_marker("")
    legend(figure, [handles[i] for i, _, _ in found], columns=2)
    return figure


def embeddings(runs: Sequence[Material], names: Sequence[str]) -> Drawing | None:
    """Each run's map of its samples; None where fewer than two runs have one."""
    found = _tables(runs, names, "embedding", ("arm",), ("group", "x", "y"))
    if len(found) < 2:
        return None
    return Drawing(
        name="embeddings",
        title="Maps of the samples",
        caption=(
            "Multidimensional scaling of the distances between samples in weight space, first group of repeats. Every panel "
            "is a map of its own: directions and positions mean nothing across panels, distances share one scale."
        ),
        alt="Two-dimensional maps of the samples of each run, side by side",
        draw=lambda theme: _embeddings([map_ for each in found for map_ in _maps(*each)], names, theme),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _maps(i: int, run: Material, rows: pd.DataFrame) -> list[tuple[int, Material, pd.DataFrame]]:
    """The maps of a run's first group of repeats: arms of different networks have maps of their own."""
    first = rows[rows["group"] == rows["group"].min()]
    if "map" not in first:
        return [(i, run, first)]
    return [(i, run, part) for _, part in first.groupby("map")]


def _embeddings(found: list[tuple[int, Material, pd.DataFrame]], names: Sequence[str], theme: Theme) -> Figure:
    columns = min(len(found), 3)
    lines = -(-len(found) // columns)
    figure = Figure(figsize=(WIDTH, (8.0 / columns) * lines + 0.5))
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    most = 0
    limit = 1.1 * max(float(np.nanmax(np.abs(rows[["x", "y"]].to_numpy(dtype=float)))) for _, _, rows in found)
    axes[0][0].set(xlim=(-limit, limit), ylim=(-limit, limit))
    for k, (i, run, rows) in enumerate(found):
        axis = axes[k // columns][k % columns]
        for a, arm in enumerate(run.comparison.arms):
            mine = run.of(rows, arm)
            most = max(most, a + 1 if len(mine) else 0)
            filled = {"markerfacecolor": colour(theme, i) if a < len(MARKERS) else "none"}
            axis.plot(mine["x"], mine["y"], MARKERS[a % len(MARKERS)], color=colour(theme, i), alpha=0.8, **filled)
        axis.set_title(textwrap.shorten(_short(names[i]), 40, placeholder="…"))
        axis.set_aspect("equal")
        if k % columns == 0:
            axis.set_ylabel("MDS axis 2")
        if k >= len(found) - columns:
            axis.set_xlabel("MDS axis 1")
            axis.tick_params(labelbottom=True)
    for spare in range(len(found), lines * columns):
        axes[spare // columns][spare % columns].set_axis_off()
    handles = []
    for a in range(most):
        filled = {"markerfacecolor": theme.muted if a < len(MARKERS) else "none"}
        shape: dict[str, Any] = {"marker": MARKERS[a % len(MARKERS)], "linestyle": "", **filled}
        handles.append(Line2D([], [], color=theme.muted, label=f"arm {a + 1} of its run", **shape))
    legend(figure, handles if most > 1 else [], columns=4)
    return figure


MAKERS: Mapping[str, Callable[[Sequence[Material], Sequence[str]], Drawing | None]] = {
    "spread": spread,
    "entropies": entropies,
    "embeddings": embeddings,
}
"""By the figure's name, in the page's order."""
