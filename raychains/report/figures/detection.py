"""How well other sets' inputs are detected: AUROC, AUPR and FPR at 95 % by each score and arm."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.evaluation import ood
from raychains.report import results
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme

MEASURES = {"auroc": "AUROC (%)   → better", "aupr": "AUPR (%)   → better", "fpr95": "FPR at 95 % (%)   ← better"}
LABELS = {
    "entropy": "predictive entropy",
    "mutual_information": "mutual information",
    "max_probability": "maximum probability",
}


def drawing(material: Material) -> Drawing | None:
    """None unless other sets' inputs were evaluated."""
    table = results.read_rows(
        material.store, "ood", texts=("arm", "companion", "score"), numbers=("group", "inside", "outside", *MEASURES)
    )
    if table is None:
        return None
    chance = "; ".join(
        f"{companion} {100 * rows['outside'].iloc[0] / (rows['outside'].iloc[0] + rows['inside'].iloc[0]):.0f} %"
        for companion, rows in table.groupby("companion", sort=False)
    )
    return Drawing(
        name="detection",
        title="Detection of other sets' inputs",
        caption=(
            "How well a threshold on each score tells another set's inputs (the positives) from the run's own. By chance "
            f"the AUROC is 50 %, the FPR 95 % and the AUPR the share of the other set's inputs: {chance}. FPR: share of the "
            "own inputs that are flagged where 95 % of the others are. Mean over the repeats ± one standard error."
        ),
        alt="Areas under curves and false positive rates of every arm, by score, a row of panels for every set of inputs",
        draw=lambda theme: _draw(material, table, theme),
        data=table[["arm", "group", "companion", "score", *MEASURES]].to_dict("records"),
    )


def _draw(material: Material, table: pd.DataFrame, theme: Theme) -> Figure:
    arms = [arm for arm in material.comparison.arms if arm.name in set(table["arm"])]
    companions = list(dict.fromkeys(table["companion"]))
    figure = Figure(figsize=(WIDTH, len(companions) * (0.3 * len(arms) + 0.75) + 0.5))
    axes = figure.subplots(len(companions), len(MEASURES), squeeze=False, sharey=True, sharex="col")
    looks = dict(zip(ood.SCORES, _score_styles(theme), strict=True))
    for row, companion in zip(axes, companions, strict=True):
        for axis, (measure, label) in zip(row, MEASURES.items(), strict=True):
            for y, arm in enumerate(arms):
                for i, score in enumerate(ood.SCORES):
                    chosen = (table["arm"] == arm.name) & (table["companion"] == companion) & (table["score"] == score)
                    _dot(axis, 100 * table.loc[chosen, measure].to_numpy(), y + 0.22 * (i - 1), *looks[score])
            axis.set_xlabel(label)
            axis.tick_params(labelbottom=True)
            axis.set_ylim(len(arms) - 0.5, -0.5)
            axis.set_yticks(range(len(arms)), [_wrapped(arm.label) for arm in arms])
            axis.grid(False, axis="y")
            axis.tick_params(axis="y", length=0)
            axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.margins(x=0.08)
            for y in range(len(arms) - 1):
                axis.axhline(y + 0.5, color=theme.grid, linewidth=0.7)
        row[0].set_title(companion)
    legend(
        figure,
        [
            Line2D([], [], color=colour, marker=mark, linestyle="", markersize=6, label=LABELS[score])
            for score, (colour, mark) in looks.items()
        ],
        columns=3,
    )
    return figure


def _score_styles(theme: Theme) -> list[tuple[str, str]]:
    return [
        (theme.families["cyclical"][0], "o"),
        (theme.families["decreasing"][0], "s"),
        (theme.families["other"][0], "^"),
    ]


def _dot(axis: Axes, values: np.ndarray, y: float, colour: str, mark: str) -> None:
    if not len(values):
        return
    if len(values) > 1:
        error = values.std(ddof=1) / np.sqrt(len(values))
        axis.plot([values.mean() - error, values.mean() + error], [y, y], color=colour, linewidth=1.2, zorder=2)
    axis.plot(values.mean(), y, mark, color=colour, markersize=5.5, markeredgewidth=0, zorder=3)


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 22)[:2]) or label
