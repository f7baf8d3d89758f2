"""Reliability diagrams: accuracy against confidence in equal-width bins, with their counts below."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from raychains.analyses.calibration import WIDTH as EQUAL_WIDTH
from raychains.report.figures.binned import Diagram, diagrams
from raychains.report.figures.layout import legend
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme

COLUMNS = 4
FEW = 10
"""Bins with fewer predictions are drawn pale: their accuracy is mostly chance."""


def drawing(material: Material) -> Drawing | None:
    """None unless the run's rows are predictions."""
    found = diagrams(material, EQUAL_WIDTH)
    if not found:
        return None
    return Drawing(
        name="reliability",
        title="Reliability",
        caption=(
            f"Accuracy of the predictions in {found[0].bins} equal-width bins of confidence, all repeats together; upright "
            "lines are Wilson's 95 % intervals over as many predictions as one repeat has. Hatched: the gap between "
            "accuracy and mean confidence, above the bar where the predictive is over-confident. Bins with fewer than "
            f"{FEW} predictions are pale. Below: predictions per bin (logarithmic)."
        ),
        alt="Accuracy against confidence for every arm, with the diagonal of perfect calibration",
        draw=lambda theme: _draw(material, found, theme),
        data=[row for diagram in found for row in diagram.rows()],
    )


def _draw(material: Material, found: list[Diagram], theme: Theme) -> Figure:
    columns = min(COLUMNS, max(len(found), 2))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(WIDTH, rows * 2.9 + 0.4))
    grid = figure.subplots(
        2 * rows, columns, squeeze=False, sharex=True, gridspec_kw={"height_ratios": [3.4, 1] * rows}
    )
    most = max(diagram.count.max() for diagram in found)
    for i, diagram in enumerate(found):
        row, column = divmod(i, columns)
        above, below = grid[2 * row][column], grid[2 * row + 1][column]
        colour = theme.colour(material.looks[diagram.arm])
        _diagram(above, diagram, colour, theme)
        _counts(below, diagram, colour, most)
        title = _wrapped(diagram.arm.label)
        if "ece" in material.summary.columns:
            title += f"\nECE {100 * material.summary.loc[diagram.arm.name, 'ece']:.1f} %"
        above.set_title(title, fontsize=8.5)
        if column == 0:
            above.set_ylabel("Accuracy")
            below.set_ylabel("Count")
        else:
            above.tick_params(labelleft=False)
            below.tick_params(labelleft=False)
        above.tick_params(labelbottom=False)
        below.tick_params(labelbottom=True)
        below.set_xlabel("Confidence")
    for spare in range(len(found), rows * columns):
        row, column = divmod(spare, columns)
        grid[2 * row][column].set_axis_off()
        grid[2 * row + 1][column].set_axis_off()
    legend(
        figure,
        [
            Patch(facecolor=theme.muted, alpha=0.6, label="accuracy"),
            Line2D([], [], color=theme.ink, linewidth=1.2, label="its 95 % interval"),
            Patch(
                facecolor="none",
                edgecolor=theme.ink,
                hatch="/////",
                linewidth=0.6,
                label="gap to mean confidence",
            ),
            Line2D([], [], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, label="perfect calibration"),
        ],
        columns=4,
    )
    return figure


def _diagram(axis: Axes, diagram: Diagram, colour: str, theme: Theme) -> None:
    width = 1 / diagram.bins
    for i, middle in enumerate((diagram.bin + 0.5) * width):
        accuracy, confidence = diagram.accuracy[i], diagram.confidence[i]
        pale = 0.35 if diagram.count[i] < FEW else 1.0
        axis.bar(middle, accuracy, width * 0.88, color=colour, alpha=0.6 * pale, linewidth=0)
        axis.bar(
            middle, confidence - accuracy, width * 0.88, bottom=accuracy,
            facecolor="none", edgecolor=theme.ink, hatch="/////", linewidth=0.6, alpha=pale,
        )  # fmt: skip
        ends = [diagram.low[i], diagram.high[i]]
        axis.plot([middle, middle], ends, color=theme.ink, linewidth=1.2, alpha=pale, zorder=4)
    axis.plot([0, 1], [0, 1], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9)
    axis.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _counts(axis: Axes, diagram: Diagram, colour: str, most: int) -> None:
    width = 1 / diagram.bins
    axis.bar((diagram.bin + 0.5) * width, diagram.count, width * 0.88, color=colour)
    axis.set_yscale("log")
    axis.set_ylim(0.8, most * 2)
    decades = [10**k for k in range(0, int(np.log10(most)) + 1, 2)]
    axis.set_yticks(decades, [f"{d:,}" for d in decades])
    axis.set_yticks([], minor=True)


def _wrapped(label: str, width: int = 26) -> str:
    return "\n".join(textwrap.wrap(label, width)) or label
