"""How the predictive (or the mode coverage) improves with the number of samples that it averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains import schedules
from raychains.evaluation.base import Array, Metric
from raychains.planning import Arm
from raychains.report.figures.layout import COUNT, handle, legend, log_axis, panels
from raychains.report.looks import Look
from raychains.report.material import Material
from raychains.report.reference import MODES, expected_modes, is_mixture
from raychains.report.style import Drawing, Theme, line


def drawing(material: Material) -> Drawing | None:
    """None before any arm is evaluated."""
    metrics = [m for m in material.metrics if m.name in material.curves.columns]
    if not metrics:
        return None
    band = " Bands: ± one standard error over the repeats." if material.results.groupby("arm").size().max() > 1 else ""
    names = " and ".join(m.label for m in metrics)
    if is_mixture(material.comparison):
        what = (
            "Modes covered by the first n kept draws, mean over the repeats; chains of an arm contribute "
            "their draws in turn. Dotted: the exact theory's expectation for all of an arm's cycles or "
            "chains."
        )
    else:
        what = (
            f"{names} of the predictive that averages the first n samples, mean over the repeats. Chains "
            "contribute in turn: the first samples of all chains come first."
        )
    return Drawing(
        name="samples",
        title="Modes against draws"
        if is_mixture(material.comparison)
        else "Error and NLL against the number of samples",
        caption=what + band,
        alt=f"{names} against the number of samples for every arm",
        draw=lambda theme: _draw(material, metrics, theme),
        data=[row for arm in material.comparison.arms for m in metrics for row in _points(material, arm, m)],
    )


def _points(material: Material, arm: Arm, metric: Metric) -> list[dict[str, Any]]:
    """One curve's numbers."""
    mine = material.of(material.curves, arm)
    if not len(mine):
        return []
    n, mean, error = mean_and_error(mine, metric.name)
    x = draws_of(arm, n) if material.by_blocks else n
    what = "draws" if material.by_blocks else "samples"
    return [
        {"arm": arm.name, "metric": metric.name, what: int(at), "mean": float(m), "standard_error": float(e)}
        for at, m, e in zip(x, mean, error, strict=True)
    ]


def _draw(material: Material, metrics: list[Metric], theme: Theme) -> Figure:
    looks = material.looks
    figure, axes = panels(len(metrics), len(looks.panels), 2.4 if len(metrics) > 1 else 3.0, sharex="col", sharey="row")
    drawn: dict[Look, None] = {}
    for row, metric in enumerate(metrics):
        for column, panel in enumerate(looks.panels):
            axis = axes[row][column]
            for arm in panel.arms:
                if _curve(axis, material, arm, metric, theme):
                    drawn[looks[arm]] = None
            if material.by_blocks:
                axis.xaxis.set_major_formatter(COUNT)
                axis.set_ylim(0, max(MODES * 1.04, axis.get_ylim()[1]))
            else:
                axis.set_xscale("log")
                log_axis(axis.xaxis)
            if row == 0:
                axis.set_title(panel.title)
            if row == len(metrics) - 1:
                axis.set_xlabel("Draws of all chains" if material.by_blocks else "Samples of all chains")
            if column == 0:
                axis.set_ylabel(metric.label)
    legend(figure, [handle(theme, look) for look in looks.all() if look in drawn])
    return figure


def _curve(axis: Axes, material: Material, arm: Arm, metric: Metric, theme: Theme) -> bool:
    """Draw one arm's curve, if it has one."""
    mine = material.of(material.curves, arm)
    if not len(mine):
        return False
    n, mean, error = mean_and_error(mine, metric.name)
    x = draws_of(arm, n) if material.by_blocks else n
    look = material.looks[arm]
    colour = theme.colour(look)
    axis.plot(x, mean * metric.scale, color=colour, linestyle=line(look))
    if np.isfinite(error).any():
        axis.fill_between(
            x,
            (mean - error) * metric.scale,
            (mean + error) * metric.scale,
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
    expected = expected_modes(arm) if is_mixture(material.comparison) and metric.name == "modes" else None
    if expected is not None:
        axis.plot([0, x[-1]], [expected] * 2, color=colour, linestyle=":", linewidth=1, zorder=1)
    return True


def mean_and_error(curves: pd.DataFrame, metric: str) -> tuple[Array, Array, Array]:
    """Numbers of samples, mean over repeats and its standard error (nan with one repeat)."""
    by = curves.groupby("samples")[metric]
    mean, error = by.mean(), by.std(ddof=1) / np.sqrt(by.size())
    return mean.index.to_numpy(), mean.to_numpy(), error.to_numpy()


def draws_of(arm: Arm, blocks: Array) -> Array:
    """Draws in an arm's first n blocks: all are full but the last of each chain, and chains take turns."""
    spec, chains = arm.chains[0][0], len(arm.chains[0])
    kept = schedules.build(spec.schedule).kept
    full = kept // spec.block_draws * chains
    return np.minimum(blocks, full) * spec.block_draws + np.maximum(blocks - full, 0) * (kept % spec.block_draws)
