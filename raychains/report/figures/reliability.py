"""Reliability diagrams: accuracy against confidence in equal-width bins, with their counts below."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from raychains.evaluation import metrics
from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme

COLUMNS = 4
COLUMNS_READ = ("confidence", "prediction", "label")
FEW = 10
"""Bins with fewer predictions are drawn pale: their accuracy is mostly chance."""


def drawing(material: Material) -> Drawing | None:
    """None unless the run's rows are predictions."""
    bins = {arm.name: b for arm in material.comparison.arms if (b := _bins(material, arm)) is not None}
    if not bins:
        return None
    return Drawing(
        name="reliability",
        title="Reliability",
        caption=(
            f"Accuracy of the predictions in {metrics.BINS} equal-width bins of confidence, all repeats "
            "together. Hatched: the gap between accuracy and mean confidence, above the bar where the "
            f"predictive is over-confident. Bins with fewer than {FEW} predictions are pale. Below: "
            "predictions per bin (logarithmic)."
        ),
        alt="Accuracy against confidence for every arm, with the diagonal of perfect calibration",
        draw=lambda theme: _draw(material, bins, theme),
    )


def _bins(material: Material, arm: Arm) -> dict[str, Array] | None:
    rows = material.rows
    if rows is None or not set(COLUMNS_READ) <= set(rows.column_names):
        return None
    mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
    if not mine.num_rows:
        return None
    return metrics.reliability({name: mine[name].to_numpy() for name in COLUMNS_READ})


def _draw(material: Material, bins: dict[str, dict[str, Array]], theme: Theme) -> Figure:
    arms = [a for a in material.comparison.arms if a.name in bins]
    columns = min(COLUMNS, max(len(arms), 2))
    rows = -(-len(arms) // columns)
    figure = Figure(figsize=(WIDTH, rows * 2.9 + 0.4))
    grid = figure.subplots(
        2 * rows, columns, squeeze=False, sharex=True, gridspec_kw={"height_ratios": [3.4, 1] * rows}
    )
    most = max(b["count"].max() for b in bins.values())
    for i, arm in enumerate(arms):
        row, column = divmod(i, columns)
        above, below = grid[2 * row][column], grid[2 * row + 1][column]
        _diagram(above, bins[arm.name], theme.colour(material.looks[arm]), theme)
        _counts(below, bins[arm.name], theme.colour(material.looks[arm]), most)
        above.set_title(_wrapped(arm.label), fontsize=8.5)
        if "ece" in material.summary.columns:
            value = material.summary.loc[arm.name, "ece"]
            above.text(
                0.04,
                0.95,
                f"ECE {100 * value:.1f} %",
                transform=above.transAxes,
                va="top",
                fontsize=8.5,
                bbox=_backed(theme),
            )
        if column == 0:
            above.set_ylabel("Accuracy")
            below.set_ylabel("Count")
        else:
            above.tick_params(labelleft=False)
            below.tick_params(labelleft=False)
        above.tick_params(labelbottom=False)
        below.tick_params(labelbottom=True)
        below.set_xlabel("Confidence")
    for spare in range(len(arms), rows * columns):
        row, column = divmod(spare, columns)
        grid[2 * row][column].set_axis_off()
        grid[2 * row + 1][column].set_axis_off()
    legend(
        figure,
        [
            Patch(facecolor=theme.muted, alpha=0.6, label="accuracy"),
            Patch(
                facecolor="none",
                edgecolor=theme.ink,
                hatch="/////",
                linewidth=0.6,
                label="gap to mean confidence",
            ),
            Line2D([], [], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, label="perfect calibration"),
        ],
        columns=3,
    )
    return figure


def _diagram(axis: Axes, bins: dict[str, Array], colour: str, theme: Theme) -> None:
    width = 1 / len(bins["count"])
    middle = (np.arange(len(bins["count"])) + 0.5) * width
    for i in np.flatnonzero(bins["count"]):
        accuracy, confidence = bins["accuracy"][i], bins["confidence"][i]
        pale = 0.35 if bins["count"][i] < FEW else 1.0
        axis.bar(middle[i], accuracy, width * 0.88, color=colour, alpha=0.6 * pale, linewidth=0)
        axis.bar(
            middle[i], confidence - accuracy, width * 0.88, bottom=accuracy,
            facecolor="none", edgecolor=theme.ink, hatch="/////", linewidth=0.6, alpha=pale,
        )  # fmt: skip
    axis.plot([0, 1], [0, 1], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9)
    axis.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _counts(axis: Axes, bins: dict[str, Array], colour: str, most: int) -> None:
    width = 1 / len(bins["count"])
    axis.bar((np.arange(len(bins["count"])) + 0.5) * width, bins["count"], width * 0.88, color=colour)
    axis.set_yscale("log")
    axis.set_ylim(0.8, most * 2)
    decades = [10**k for k in range(0, int(np.log10(most)) + 1, 2)]
    axis.set_yticks(decades, [f"{d:,}" for d in decades])
    axis.set_yticks([], minor=True)


def _backed(theme: Theme) -> dict[str, object]:
    """A box of paper behind text that bars may reach."""
    return {"facecolor": theme.paper, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}


def _wrapped(label: str, width: int = 26) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(label, width)) or label
