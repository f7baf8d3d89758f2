"""What each cycle counts in a weighted predictive, by method, and whether the weights rest on single draws."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.evaluation.weights import DOMINANT
from raychains.report import results
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.style import MARKERS, WIDTH, Drawing, Theme

NAMED = 24
"""Cycles up to which each has its name below the axis."""
CAPTION = (
    "Share of each cycle of each chain in the weighted average of the first repeat; where a method weighs samples, their "
    "sum. The line is what equal weights give."
)


def drawing(material: Material) -> Drawing | None:
    """None where only equal weights were asked for."""
    table = results.read_rows(
        material.store,
        "weights",
        texts=("arm", "weighting"),
        numbers=("repeat", "chain", "cycle", "samples", "weight", "dominance"),
    )
    if table is None:
        return None
    shares = by_cycle(table)
    return Drawing(
        name="weights",
        title="Weights of the cycles",
        caption=" ".join([CAPTION, *warnings(material, shares)]),
        alt="Share of every cycle in the predictive, by arm and by method of weighting",
        draw=lambda theme: _draw(material, shares, theme),
        data=shares.to_dict("records"),
    )


def by_cycle(table: pd.DataFrame) -> pd.DataFrame:
    """One row per arm, repeat, method and cycle of each chain: its samples, its share, the dominance of its sum."""
    by = table.groupby(["arm", "repeat", "weighting", "chain", "cycle"], sort=False)
    found = by.agg(samples=("samples", "sum"), share=("weight", "sum"), dominance=("dominance", "max")).reset_index()
    whole = found.groupby(["arm", "repeat", "weighting"])["samples"].transform("sum")
    return found.assign(equal=found["samples"] / whole)


def warnings(material: Material, table: pd.DataFrame) -> list[str]:
    """A sentence per arm and method in which a single draw carries more than a tenth of a cycle's sum of 1/L."""
    out = []
    for arm in material.comparison.arms:
        mine = material.of(table, arm)
        for weighting, rows in mine.groupby("weighting", sort=True):
            bad = rows[rows["dominance"] > DOMINANT]
            if len(bad):
                out.append(
                    f"Warning: {arm.label}, {weighting}: in {len(bad)} of {len(rows)} sums one draw carries more than "
                    f"{DOMINANT:.0%} (up to {bad['dominance'].max():.0%}), so that these weights rest on single draws; "
                    f"equal weights are safer."
                )
    return out


def _draw(material: Material, table: pd.DataFrame, theme: Theme) -> Figure:
    shown = table[table["repeat"] == table["repeat"].min()]
    arms = [a for a in material.comparison.arms if len(material.of(shown, a))]
    methods = sorted(set(shown["weighting"]))
    figure = Figure(figsize=(WIDTH, 2.1 * len(arms) + 0.5))
    axes: list[Axes] = list(figure.subplots(len(arms), 1, squeeze=False)[:, 0])
    dominated = False
    for axis, arm in zip(axes, arms, strict=True):
        dominated |= _panel(axis, material.of(shown, arm), methods, theme)
        axis.set_title(textwrap.shorten(arm.label, 90, placeholder="…"))
    axes[-1].set_xlabel("Chain : cycle")
    colours = _colours(theme)
    handles = [
        Line2D([], [], color=colours[m % len(colours)], marker=MARKERS[m % len(MARKERS)], linewidth=1.6, label=method)
        for m, method in enumerate(methods)
    ]
    handles.append(Line2D([], [], color=theme.muted, linewidth=0.9, linestyle=(0, (4, 2)), label="equal weights"))
    if dominated:
        ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "linestyle": "", "markersize": 9}
        handles.append(Line2D([], [], color=theme.alarm, label=f"one draw carries > {DOMINANT:.0%}", **ring))
    legend(figure, handles, columns=5)
    return figure


def _colours(theme: Theme) -> list[str]:
    return [theme.families[name][0] for name in ("cyclical", "decreasing", "other")]


def _panel(axis: Axes, mine: pd.DataFrame, methods: list[str], theme: Theme) -> bool:
    """One arm; whether any of its sums hangs on a single draw."""
    mine = mine.assign(name=[f"{chain}:{cycle}" for chain, cycle in zip(mine["chain"], mine["cycle"], strict=True)])
    names = list(dict.fromkeys(mine.sort_values(["chain", "cycle"])["name"]))
    at = {name: i for i, name in enumerate(names)}
    colours, dominated = _colours(theme), False
    for m, method in enumerate(methods):
        rows = mine[mine["weighting"] == method]
        middle = rows["name"].map(at).to_numpy(dtype=float)
        x, share = middle + (m - (len(methods) - 1) / 2) * 0.6 / len(methods), rows["share"].to_numpy()
        colour = colours[m % len(colours)]
        axis.vlines(x, 0, share, color=colour, linewidth=1.6, alpha=0.55)
        axis.plot(x, share, MARKERS[m % len(MARKERS)], color=colour, markersize=5, clip_on=False, zorder=3)
        axis.hlines(rows["equal"], middle - 0.5, middle + 0.5, color=theme.muted, linewidth=0.9, linestyle=(0, (4, 2)))
        bad = (rows["dominance"] > DOMINANT).to_numpy()
        if bad.any():
            dominated = True
            ring: Any = {"markerfacecolor": "none", "color": theme.alarm, "markersize": 10, "clip_on": False}
            axis.plot(x[bad], share[bad], "o", zorder=4, **ring)
    axis.set_ylabel("Share")
    axis.set_ylim(0, axis.get_ylim()[1])
    axis.grid(False, axis="x")
    axis.set_xlim(-0.6, len(names) - 0.4)
    if len(names) <= NAMED:
        axis.set_xticks(range(len(names)), names)
    else:
        axis.set_xticks([])
    return dominated
