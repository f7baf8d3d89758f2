"""By how much accuracy misses confidence in bins of equally many predictions, all arms of a sampler in one panel."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from raychains.analyses.calibration import MASS
from raychains.report.figures.binned import Diagram, diagrams
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme, line, marker

SUREST = 1e-5
"""Confidences are shown up to 1 − SUREST: beyond it they round to 1."""
TICKS = (0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997, 0.999, 0.9999)


def drawing(material: Material) -> Drawing | None:
    """None unless the run's rows are predictions."""
    found = diagrams(material, MASS)
    if not found:
        return None
    errors = "; ".join(f"{d.arm.label}: {100 * d.error:.1f} %" for d in found)
    return Drawing(
        name="calibration",
        title="Calibration in bins of equal mass",
        caption=(
            f"Accuracy minus mean confidence in {found[0].bins} bins of equally many predictions, all repeats together: "
            "above 0 the predictive is under-confident, below it over-confident. Upright lines are Wilson's 95 % intervals "
            "over as many predictions as one repeat has. Confidence is shown on the scale of its log odds. "
            f"Expected calibration errors over these bins: {errors}."
        ),
        alt="Accuracy minus confidence against confidence for every arm, with the line of perfect calibration",
        draw=lambda theme: _draw(material, found, theme),
        data=[row for diagram in found for row in diagram.rows()],
    )


def _draw(material: Material, found: list[Diagram], theme: Theme) -> Figure:
    looks = material.looks
    by_arm = {diagram.arm.name: diagram for diagram in found}
    shown = [panel for panel in looks.panels if any(arm.name in by_arm for arm in panel.arms)]
    figure, axes = panels(1, len(shown), 2.9, sharey=True)
    lowest = min(d.confidence.min() for d in found)
    highest = min(max(d.confidence.max() for d in found), 1 - SUREST)
    for axis, panel in zip(axes[0], shown, strict=True):
        for arm in panel.arms:
            if arm.name in by_arm:
                _line(axis, by_arm[arm.name], material, theme)
        axis.axhline(0, color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
        axis.set_xscale("logit")
        low, high = (_odds(p) for p in (max(lowest, SUREST), highest))
        edge = 0.05 * max(high - low, 1.0)
        axis.set_xlim(*(1 / (1 + np.exp(-v)) for v in (low - edge, high + edge)))
        axis.xaxis.set_major_locator(FixedLocator(_ticks(low - edge, high + edge)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(lambda p, _: f"{p:g}")
        axis.set_xlabel("Confidence")
        axis.set_title(panel.title)
    axes[0][0].set_ylabel("Accuracy − confidence (%)")
    drawn = {looks[d.arm]: None for d in found}
    perfect = Line2D([], [], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, label="perfect calibration")
    legend(figure, [*(handle(theme, look, markers=True) for look in looks.all() if look in drawn), perfect])
    return figure


def _line(axis: Axes, diagram: Diagram, material: Material, theme: Theme) -> None:
    look = material.looks[diagram.arm]
    colour = theme.colour(look)
    x = np.clip(diagram.confidence, SUREST, 1 - SUREST)
    gap = 100 * (diagram.accuracy - diagram.confidence)
    axis.plot(x, gap, color=colour, linestyle=line(look), marker=marker(look), markersize=4.5, zorder=3)
    low, high = (100 * (end - diagram.confidence) for end in (diagram.low, diagram.high))
    axis.vlines(x, low, high, color=colour, linewidth=1, alpha=0.7, zorder=2)


def _odds(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _ticks(low: float, high: float) -> list[float]:
    """Those of `TICKS` between two log odds that leave room for their labels."""
    found: list[float] = []
    for tick in TICKS:
        if low <= _odds(tick) <= high and (not found or _odds(tick) - _odds(found[-1]) >= (high - low) / 8):
            found.append(tick)
    return found
