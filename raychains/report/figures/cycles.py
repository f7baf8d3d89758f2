"""What averaging over more cycles gains: the ensemble of the first m cycles beside single samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from raychains import schedules
from raychains.evaluation.base import Array, Metric
from raychains.planning import Arm
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.figures.samples import mean_and_error
from raychains.report.looks import Look
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme, line, marker

ONE_EACH = ("atmc", "sgnht")
"""Samplers of the paper that has this figure: they keep one sample a cycle."""


@dataclass(frozen=True)
class Curve:
    """One arm's ensembles under one metric, unscaled."""

    arm: Arm
    metric: Metric
    cycles: Array
    """1 … M"""
    mean: Array
    """Of the ensemble of the first m cycles of all chains, over repeats."""
    error: Array
    """Its standard error; nan with one repeat."""
    single: tuple[float, float] | None
    """Mean and standard deviation of single samples, where they were evaluated."""


def drawing(material: Material) -> Drawing | None:
    """None for arms without cycles, and where nobody asked for single samples and no sampler keeps one a cycle."""
    curves = _curves(material)
    if not curves or not (any(c.single for c in curves) or any(c.arm.sampler in ONE_EACH for c in curves)):
        return None
    names = " and ".join(dict.fromkeys(c.metric.label for c in curves))
    repeated = bool(any(np.isfinite(c.error).any() for c in curves))
    text = (
        f"{names} of the predictive that averages the samples of the first m cycles of all chains, mean over the repeats."
        + " Vertical bars: ± one standard error over them." * repeated
    )
    if any(c.single for c in curves):
        text += " Bands: single samples, their mean ± one standard deviation over samples, chains and repeats."
    else:
        text += " raychains evaluate RUN --views samples adds the band of single samples."
    return Drawing(
        name="cycles",
        title="Ensembles of the first cycles and single samples",
        caption=text,
        alt=f"{names} against the number of cycles for every arm, beside single samples",
        draw=lambda theme: _draw(material, curves, theme),
        data=[row for c in curves for row in _rows(c)],
    )


def _curves(material: Material) -> list[Curve]:
    found = []
    for arm in material.comparison.arms:
        mine = material.of(material.curves, arm)
        cycles = schedules.build(arm.chains[0][0].schedule).cycle_count
        if cycles < 2 or not len(mine):
            continue
        per_cycle, rest = divmod(int(mine["samples"].max()), cycles)
        if rest or not per_cycle:  # the last cycle is shorter than the others: prefixes end inside of cycles
            continue
        whole = mine[mine["samples"] % per_cycle == 0]
        for metric in material.metrics:
            if metric.name in whole.columns:
                n, mean, error = mean_and_error(whole, metric.name)
                found.append(Curve(arm, metric, n // per_cycle, mean, error, _single(material, arm, metric)))
    return found


def _single(material: Material, arm: Arm, metric: Metric) -> tuple[float, float] | None:
    """Mean and standard deviation over an arm's single samples."""
    views: pd.DataFrame = material.of(material.views, arm)
    if not len(views) or metric.name not in views.columns:
        return None
    values = views.loc[views["kind"] == "samples", metric.name].to_numpy(dtype=float)
    return (float(values.mean()), float(values.std(ddof=1))) if len(values) > 1 else None


def _rows(curve: Curve) -> list[dict[str, Any]]:
    mean, sd = curve.single if curve.single is not None else (None, None)
    return [
        {
            "arm": curve.arm.name, "metric": curve.metric.name, "cycles": int(m), "mean": float(y), "standard_error": float(e),
            "single_mean": mean, "single_sd": sd,
        }
        for m, y, e in zip(curve.cycles, curve.mean, curve.error, strict=True)
    ]  # fmt: skip


def _draw(material: Material, curves: list[Curve], theme: Theme) -> Figure:
    looks = material.looks
    metrics = list(dict.fromkeys(c.metric for c in curves))
    shown = [p for p in looks.panels if any(c.arm in p.arms for c in curves)]
    figure, axes = panels(len(metrics), len(shown), 2.4 if len(metrics) > 1 else 3.0, sharex="col", sharey="row")
    drawn: dict[Look, None] = {}
    for curve in curves:
        column = next(i for i, panel in enumerate(shown) if curve.arm in panel.arms)
        _curve(axes[metrics.index(curve.metric)][column], curve, looks[curve.arm], theme)
        drawn[looks[curve.arm]] = None
    for column, panel in enumerate(shown):
        axes[0][column].set_title(panel.title)
        axes[-1][column].set_xlabel("Cycles of each chain")
        axes[-1][column].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    for row, metric in enumerate(metrics):
        axes[row][0].set_ylabel(metric.label)
    bands = [Patch(color=theme.muted, alpha=0.25, linewidth=0, label="single samples, mean ± sd")]
    legend(figure, [handle(theme, k, markers=True) for k in drawn] + bands * any(c.single for c in curves))
    return figure


def _curve(axis: Axes, curve: Curve, look: Look, theme: Theme) -> None:
    colour, scale = theme.colour(look), curve.metric.scale
    style = {"color": colour, "linestyle": line(look), "marker": marker(look), "markersize": 3.5}
    finite = np.isfinite(curve.error).any()
    axis.errorbar(
        curve.cycles, curve.mean * scale, yerr=curve.error * scale if finite else None, elinewidth=0.9, **style
    )
    if curve.single is not None:
        mean, sd = (v * scale for v in curve.single)
        axis.axhspan(mean - sd, mean + sd, color=colour, alpha=0.14, linewidth=0, zorder=0)
        axis.axhline(mean, color=colour, linewidth=0.9, linestyle=line(look), alpha=0.8, zorder=1)
