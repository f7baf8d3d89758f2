"""Error and NLL of the networks between two samples (Fig. 3b): a hill between them says two modes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report import results
from raychains.report.figures.arms import measured, present
from raychains.report.figures.layout import legend, panels
from raychains.report.figures.styles import Style, styles
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme

KINDS = {
    "neighbouring cycles": "the last of two cycles in a row of one chain",
    "inside a cycle": "neighbours inside a cycle",
    "between chains": "the last of two chains",
    "θ and θₐ": "θ and its anchor θₐ",
}
"""What the ends of a line are to each other, in the order of the panels."""


def drawing(material: Material) -> Drawing | None:
    """None unless networks between samples were measured."""
    table = results.read_rows(material.store, "interpolation", texts=("arm", "kind"), numbers=("group", "pair", "t"))
    if table is None:
        return None
    metrics, arms = measured(material, table), present(material, table)
    kinds = [kind for kind in KINDS if kind in set(table["kind"])]
    if not metrics or not arms or not kinds:
        return None
    names = " and ".join(m.label for m in metrics)
    return Drawing(
        name="interpolation",
        title="Between two samples",
        caption=(
            f"{names} of the single network (1 − t)·θ₁ + t·θ₂ on {material.comparison.split}, for pairs of samples that "
            f"are {', or '.join(KINDS[kind] for kind in kinds)}. Thin: each pair; thick: their mean. A hill between the ends says that they lie in "
            "different modes."
        ),
        alt=f"{names} against the position on the line between two samples",
        draw=lambda theme: _draw(table, metrics, arms, kinds, theme),
        data=table.to_dict("records"),
    )


def _draw(table: pd.DataFrame, metrics: list[Metric], arms: list[Arm], kinds: list[str], theme: Theme) -> Figure:
    figure, axes = panels(len(metrics), len(kinds), 2.3, sharex=True, sharey="row")
    style = styles(arms, theme)
    for row, metric in zip(axes, metrics, strict=True):
        for axis, kind in zip(row, kinds, strict=True):
            for arm in arms:
                mine = table[(table["kind"] == kind) & (table["arm"] == arm.name)]
                if len(mine):
                    _lines(axis, mine, metric, style[arm.name])
        row[0].set_ylabel(metric.label)
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_title(kind if kind.startswith("θ") else kind[:1].upper() + kind[1:])
    for axis in axes[-1]:
        axis.set_xlabel("t, from θ₁ (0) to θ₂ (1)")
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    legend(figure, [style[arm.name].handle() for arm in arms])
    return figure


def _lines(axis: Axes, mine: pd.DataFrame, metric: Metric, style: Style) -> None:
    for _, pair in mine.groupby("pair"):
        axis.plot(pair["t"], metric.scale * pair[metric.name], color=style.colour, linewidth=0.7, alpha=0.45)
    mean = metric.scale * mine.groupby("t")[metric.name].mean()
    axis.plot(mean.index, mean, color=style.colour, linewidth=2, marker=style.marker, markersize=3.5, markevery=2)
