"""On how many inputs two samples of an arm predict different classes, as a heat map by chain and cycle."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report import results
from raychains.report.figures.arms import first_groups, heat, maps, present, title
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme

ENDS = ("i", "j", "chain_i", "chain_j", "cycle_i", "cycle_j")


def drawing(material: Material) -> Drawing | None:
    """None unless the diversity of a classifier's samples was measured."""
    table = results.read_rows(
        material.store, "disagreement", texts=("arm", "variable_i", "variable_j"),
        numbers=("group", "disagreement", "total_variation", *ENDS),
    )  # fmt: skip
    if table is None:
        return None
    table = first_groups(table)
    arms = present(material, table)
    if not arms:
        return None
    means = table.groupby("arm")["disagreement"].mean()
    told = "; ".join(f"{a.label} {100 * means[a.name]:.1f} %" for a in arms)
    return Drawing(
        name="disagreement",
        title="Disagreement of samples",
        caption=(
            "Share of the inputs on which two samples of an arm predict different classes, samples in the order of "
            f"chains and cycles; thick lines part chains{_variables(table)}, thin ones cycles. Mean over pairs: {told}."
        ),
        alt="Heat maps of the pairwise disagreement of each arm's samples",
        draw=lambda theme: _draw(arms, table, theme),
        data=table.to_dict("records"),
    )


def _variables(table: pd.DataFrame) -> str:
    return " and θ from θₐ" if table["variable_j"].nunique() > 1 else ""


def _draw(arms: list[Arm], table: pd.DataFrame, theme: Theme) -> Figure:
    figure, axes = maps(arms, 2.5)
    most = 100 * float(table["disagreement"].max()) or 1.0
    image = None
    for axis, arm in zip(axes, arms, strict=True):
        mine = table[table["arm"] == arm.name]
        values = _matrix(mine)
        image = axis.imshow(
            100 * values, cmap=heat(theme), vmin=0, vmax=most, interpolation="nearest", extent=_extent(len(values))
        )
        _borders(axis, mine, theme)
        axis.set_title(title(arm), fontsize=8.5)
        axis.grid(False)
        axis.set_xlabel("Sample")
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(MaxNLocator(4, integer=True))
    axes[0].set_ylabel("Sample")
    assert image is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, panchor=False)
    bar.set_label("Different class (%)")
    bar.outline.set_visible(False)
    return figure


def _matrix(rows: pd.DataFrame) -> Array:
    """[samples, samples], nan where a pair lacks."""
    pairs = rows.pivot_table(index="i", columns="j", values="disagreement")
    order = sorted({*pairs.index, *pairs.columns})
    upper = pairs.reindex(index=order, columns=order).to_numpy()
    values = np.where(np.isnan(upper), upper.T, upper)
    np.fill_diagonal(values, 0)
    return values


def _borders(axis: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    samples = _ends(rows)
    for k in range(1, len(samples)):
        before, now = samples.iloc[k - 1], samples.iloc[k]
        apart = bool((before[["variable", "chain"]] != now[["variable", "chain"]]).any())
        if apart or before["cycle"] != now["cycle"]:
            for line in (axis.axhline, axis.axvline):
                line(k + 0.5, color=theme.ink if apart else theme.muted, linewidth=1.2 if apart else 0.5)


def _extent(n: int) -> tuple[float, float, float, float]:
    """Samples are numbered from 1."""
    return (0.5, n + 0.5, n + 0.5, 0.5)


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Each sample once, in order."""
    names = {"i": ["i", "variable_i", "chain_i", "cycle_i"], "j": ["j", "variable_j", "chain_j", "cycle_j"]}
    both = [rows[columns].set_axis(["at", "variable", "chain", "cycle"], axis=1) for columns in names.values()]
    return pd.concat(both).drop_duplicates("at").sort_values("at")
