"""Traces of a few quantities along the chains of each arm, with their autocorrelation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.planning import Arm
from raychains.report.figures.dots import handle
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.results import read_rows
from raychains.report.style import LINES, WIDTH, Drawing, Theme
from raychains.sample import THETA

QUANTITIES = 2
"""Whose traces are drawn, per arm."""
MOST_CHAINS = 6
"""Chains that are drawn, per arm: more lines hide one another."""
FEWEST = 4
"""Points of a trace, at least."""
TEXTS = ("arm", "variable", "quantity")


def drawing(material: Material) -> Drawing | None:
    """None before chains are diagnosed, and where no chain has more than a few draws."""
    traces = read_rows(material.store, "traces", texts=TEXTS, numbers=("repeat", "chain", "draw", "cycle", "value"))
    if traces is None:
        return None
    traces = traces[traces["variable"] == THETA]
    shown = _shown(traces, material.comparison.arms)
    if not shown:
        return None
    lags = read_rows(material.store, "autocorrelation", texts=TEXTS, numbers=("repeat", "lag", "value"))
    lags = traces.iloc[:0] if lags is None else lags[lags["variable"] == THETA]
    more = max(len(arm.chains[0]) for arm in material.comparison.arms) > MOST_CHAINS
    most = f", of at most {MOST_CHAINS} chains an arm" if more else ""
    drawn = {(arm.name, q) for arm, quantities in shown for q in quantities}
    return Drawing(
        name="traces",
        title="Traces and autocorrelation",
        caption=(
            f"The first repeat{most}: a line per chain, along its kept draws. Right: autocorrelation of the same quantities, the "
            "mean over the chains, each about its own mean; 0 at once is independence. Draws of a cyclical schedule start "
            "anew in every cycle."
        ),
        alt="Traces of two quantities for each arm's chains, and their autocorrelation against the lag",
        draw=lambda theme: _draw(material, shown, traces, lags, theme),
        data=[r for r in traces.to_dict("records") if (r["arm"], r["quantity"]) in drawn],
    )


def _shown(traces: pd.DataFrame, arms: Sequence[Arm]) -> list[tuple[Arm, list[str]]]:
    """Arms with the quantities that are drawn, in the table's order."""
    found = []
    for arm in arms:
        mine = traces[traces["arm"] == arm.name]
        names = list(dict.fromkeys(mine["quantity"]))
        if names and mine["draw"].nunique() >= FEWEST:
            found.append((arm, names[:QUANTITIES]))
    return found


def _draw(
    material: Material,
    shown: list[tuple[Arm, list[str]]],
    traces: pd.DataFrame,
    lags: pd.DataFrame,
    theme: Theme,
) -> Figure:
    columns = max(len(names) for _, names in shown) + 1
    figure = Figure(figsize=(WIDTH, 1.55 * len(shown) + 0.5))
    widths = [1.5] * (columns - 1) + [1.0]
    axes = figure.subplots(len(shown), columns, squeeze=False, gridspec_kw={"width_ratios": widths})
    chains: set[int] = set()
    for row, (arm, names) in zip(axes, shown, strict=True):
        mine = traces[traces["arm"] == arm.name]
        for axis, name in zip(row, names, strict=False):
            chains |= _traces(axis, mine[mine["quantity"] == name], theme)
            axis.set_ylabel(name)
        for axis in row[len(names) : -1]:
            axis.set_axis_off()
        _correlation(row[-1], lags[lags["arm"] == arm.name], names, theme)
        row[0].set_title(arm.label, fontsize=8.5)
    for axis in axes[-1][:-1]:
        axis.set_xlabel("Kept draw")
    axes[-1][-1].set_xlabel("Lag (draws)")
    entries = [handle(f"chain {c + 1}", color=_colour(theme, c), linewidth=1.6) for c in sorted(chains)]
    entries += [
        handle(f"of the {word} trace", color=theme.muted, linestyle=LINES[i], linewidth=1.4)
        for i, word in zip(range(columns - 1), ("left", "right"), strict=False)
    ]
    legend(figure, entries, columns=4)
    return figure


def _colour(theme: Theme, chain: int) -> str:
    """Colours that are told apart without seeing red and green; lines of one colour never share a panel."""
    families = theme.families
    order = [
        families["cyclical"][0], families["decreasing"][0], families["other"][0], families["decreasing"][1],
        families["cyclical"][1], families["decreasing"][2],
    ]  # fmt: skip
    return order[chain % len(order)]


def _traces(axis: Axes, rows: pd.DataFrame, theme: Theme) -> set[int]:
    drawn = sorted(rows["chain"].unique())[:MOST_CHAINS]
    for c in drawn:
        mine = rows[rows["chain"] == c].sort_values("draw")
        style: dict[str, Any] = {"linewidth": 0.7 if len(mine) > 60 else 1.3}
        if len(mine) <= 60:
            style |= {"marker": "o", "markersize": 3}
        axis.plot(mine["draw"], mine["value"], color=_colour(theme, int(c)), alpha=0.8, **style)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.margins(x=0.02)
    return {int(c) for c in drawn}


def _correlation(axis: Axes, rows: pd.DataFrame, names: Sequence[str], theme: Theme) -> None:
    axis.axhline(0, color=theme.muted, linewidth=0.7)
    last = 1.0
    for i, name in enumerate(names):
        mine = rows[rows["quantity"] == name].sort_values("lag")
        if len(mine):
            axis.plot(mine["lag"], mine["value"], color=theme.ink, linestyle=LINES[i % len(LINES)], linewidth=1.2)
            last = max(last, _settled(mine["lag"].to_numpy(), mine["value"].to_numpy()))
    axis.set_xlim(0, last)
    axis.set_ylim(-0.55, 1.05)
    axis.set_yticks([-0.5, 0, 0.5, 1])
    axis.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axis.set_ylabel("Autocorrelation")


def _settled(lags: Any, values: Any) -> float:
    """Where to end the axis: three times as far as the first lag at which little is left, or all of it."""
    below = np.flatnonzero(np.abs(values) < 0.1)
    return float(min(lags[-1], max(10, 3 * lags[below[0]]))) if len(below) else float(lags[-1])
