"""How far draws are from the exact target: mean, standard deviations, W₂ between fitted Gaussians, Stein discrepancy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.report.figures.dots import DASHED, dots, grid, handle, wanted
from raychains.report.figures.layout import legend, log_axis
from raychains.report.material import Material
from raychains.report.results import read_rows
from raychains.report.style import Drawing, Theme

NUMBERS = ("repeat", "chains", "draws", "temperature", "mean_error", "sd_ratio", "sd_ratio_smallest", "sd_ratio_largest",
    "gaussian_w2", "ksd", "ksd_p", "ksd_draws")  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One measure."""

    column: str
    label: str
    log: bool = False
    wanted: float | None = None
    """Drawn as a dashed line: what is right, or a threshold."""


PANELS = (
    Panel("mean_error", "Largest error of the mean (reference sd)   ← better", log=True),
    Panel("sd_ratio", "Draws' sd over the reference's (median)", wanted=1.0),
    Panel("gaussian_w2", "W₂ between fitted Gaussians   ← better", log=True),
    Panel("ksd_p", "p of the Stein discrepancy (blind to mode weights)", wanted=0.05),
)


def drawing(material: Material) -> Drawing | None:
    """None of a task without a reference, and before it was asked for."""
    table = read_rows(material.store, "reference", texts=("arm",), numbers=NUMBERS)
    if table is None:
        return None
    panels = [p for p in PANELS if np.isfinite(table[p.column]).any()]
    if not panels:
        return None
    return Drawing(
        name="reference",
        title="Distance from the exact target",
        caption=(
            "A dot per repeat, all chains of the arm together, burn-in included where it was kept. Means and standard deviations "
            "are of all kept draws. W₂ is the closed form between the Gaussians fitted to draws and target: it sees nothing but "
            "mean and covariance. Kernel Stein discrepancy: inverse multiquadric kernel, β −½, c 1, at most 2,000 thinned draws; "
            "p by a wild bootstrap, small where draws do not follow the target's gradient, which knows nothing of how mass divides "
            "between modes that lie apart. Bars: smallest and largest ratio over coordinates. Dashed: 1, and the level of 5 %."
        ),
        alt="Errors of mean and standard deviation, W2 between fitted Gaussians and p-values for every arm and repeat",
        draw=lambda theme: _draw(material, table, panels, theme),
        data=table.to_dict("records"),
    )


def _draw(material: Material, table: pd.DataFrame, panels: list[Panel], theme: Theme) -> Figure:
    arms = material.comparison.arms
    figure, axes = grid(arms, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for line, arm in enumerate(arms):
            mine = table[table["arm"] == arm.name].sort_values("repeat")
            colour = theme.colour(material.looks[arm])
            dots(axis, line, mine[panel.column].to_numpy(), color=colour)
            if panel.column == "sd_ratio" and len(mine):
                low, high = mine["sd_ratio_smallest"].min(), mine["sd_ratio_largest"].max()
                axis.hlines(line, low, high, color=colour, linewidth=1, alpha=0.6)
        _scale(axis, panel, theme)
    legend(
        figure,
        [
            handle("a repeat", color=theme.muted, marker="o", linestyle="", markersize=4.5),
            handle("what is right, or the level of 5 %", color=theme.ink, linestyle=DASHED, linewidth=0.9),
        ],
    )
    return figure


def _scale(axis: Axes, panel: Panel, theme: Theme) -> None:
    if panel.log:
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        log_axis(axis.xaxis, subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0))
    elif panel.column == "ksd_p":
        axis.set_xlim(-0.03, 1.03)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6))
    if panel.wanted is not None:
        wanted(axis, panel.wanted, theme)
    axis.set_xlabel(panel.label)
