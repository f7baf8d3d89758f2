"""How much of the draws each mode of a mixture holds, beside its exact mass."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains.report.figures.dots import DASHED, handle, wrapped
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.results import read_rows
from raychains.report.style import WIDTH, Drawing, Theme

NAMED = 8
"""Modes up to which each is named; of more every fifth."""


def drawing(material: Material) -> Drawing | None:
    """None of a target without modes, and before chains are diagnosed."""
    table = read_rows(
        material.store, "modes", texts=("arm", "mode"), numbers=("repeat", "number", "draws", "share", "exact")
    )
    if table is None:
        return None
    tempered = not np.isfinite(table["exact"]).all()
    return Drawing(
        name="modes",
        title="Masses of the modes",
        caption=(
            "Share of the draws that each mode holds: a dot per repeat, all chains of the arm together, the bar their mean. "
            "Dashed: the mode's exact mass"
            + (", known at temperature 1 only" if tempered else "")
            + ". No gradient sees it: "
            "the Stein discrepancy is blind to these shares."
        ),
        alt="Share of the draws in each mode for every arm and repeat, with the exact masses",
        draw=lambda theme: _draw(material, table, theme),
        data=table.to_dict("records"),
    )


def _draw(material: Material, table: pd.DataFrame, theme: Theme) -> Figure:
    arms = [a for a in material.comparison.arms if (table["arm"] == a.name).any()]
    columns = min(2, len(arms))
    rows = -(-len(arms) // columns)
    figure = Figure(figsize=(WIDTH, 1.9 * rows + 0.5))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for i, axis in enumerate(axes.flat):
        if i >= len(arms):
            axis.set_axis_off()
            continue
        mine = table[table["arm"] == arms[i].name]
        _panel(axis, mine, theme.colour(material.looks[arms[i]]), theme)
        axis.set_title(wrapped(arms[i].label, 40), fontsize=8.5)
        if i % columns == 0:
            axis.set_ylabel("Share of draws")
        if i + columns >= len(arms):
            axis.set_xlabel("Mode")
            axis.tick_params(labelbottom=True)
    axes.flat[0].set_ylim(bottom=0)
    legend(
        figure,
        [
            handle("a repeat", color=theme.muted, marker="o", linestyle="", markersize=4),
            handle("mean", color=theme.muted, linewidth=5, alpha=0.35),
            handle("exact mass", color=theme.ink, linestyle=DASHED, linewidth=0.9),
        ],
        columns=3,
    )
    return figure


def _panel(axis: Axes, rows: pd.DataFrame, colour: str, theme: Theme) -> None:
    names = rows.drop_duplicates("number").sort_values("number")
    for number, exact in zip(names["number"], names["exact"], strict=True):
        shares = rows[rows["number"] == number]["share"].to_numpy()
        apart = np.linspace(-0.22, 0.22, len(shares)) if len(shares) > 1 else np.zeros(1)
        axis.bar(number, shares.mean(), 0.72, color=colour, alpha=0.35, linewidth=0)
        axis.plot(
            number + apart, shares, "o", color=colour, markersize=2.8 if len(names) > NAMED else 4.5, markeredgewidth=0
        )
        if np.isfinite(exact):
            axis.hlines(exact, number - 0.45, number + 0.45, color=theme.ink, linestyle=DASHED, linewidth=0.9, zorder=4)
    step = 1 if len(names) <= NAMED else 5
    axis.set_xticks(names["number"].iloc[::step], names["mode"].iloc[::step])
    axis.grid(False, axis="x")
