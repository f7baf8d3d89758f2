"""The predictive's metrics (or the mode coverage) against the samples, or the whole cycles, that it averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from raychains import schedules
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array, Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.layout import COUNT, legend, log_axis, panels
from raychains.plotting.style import MUTED, Drawing, records
from raychains.report.reference_values import MODES, expected_modes, is_mixture

ONE_PER_CYCLE = ("atmc", "sgnht")
"""Samplers of the paper that shows cycles: they keep one sample a cycle."""


@dataclass(frozen=True)
class Curve:
    """One arm's ensembles under one metric, unscaled."""

    arm: Arm
    metric: Metric
    x: Array
    """Samples, draws or cycles."""
    mean: Array
    """Mean over repeats of the ensemble of the first x of all chains."""
    error: Array
    """Its standard error; nan with one repeat."""
    single: tuple[float, float] | None = None
    """Mean and standard deviation of single samples, where they were evaluated."""

    def rows(self, x: str) -> list[dict[str, Any]]:
        """The curve's numbers; ``x`` names the first."""
        about = {"arm": self.arm.name, "metric": self.metric.name}
        return records({**about, x: self.x, "mean": self.mean, "standard_error": self.error})


def drawing(run: RunData) -> Drawing | None:
    """Metrics against the number of samples; None before any arm is evaluated."""
    if not (curves := list(_curves(run))):
        return None
    band = " Bands: ± one standard error over the repeats." if run.results.groupby("arm").size().max() > 1 else ""
    names = " and ".join(dict.fromkeys(c.metric.label for c in curves))
    mixture = is_mixture(run.comparison)
    of = "first n kept draws" if run.by_blocks else "predictive that averages the first n samples"
    text = (
        f"{names} of the {of}{run.over_repeats}. Chains contribute in turn: the first samples of all chains come first."
    )
    if mixture:
        text = (
            f"Modes covered by the first n kept draws{run.over_repeats}; chains of an arm contribute "
            "their draws in turn. Dotted: the exact theory's expectation for all of an arm's cycles or "
            "chains."
        )
    return Drawing(
        name="samples",
        title=f"{'Modes' if mixture else names} against {'draws' if run.by_blocks else 'the number of samples'}",
        caption=text + band,
        alt=f"{names} against the number of samples for every arm",
        draw=lambda: _samples(run, curves),
        data=[row for curve in curves for row in curve.rows("draws" if run.by_blocks else "samples")],
    )


def cycles(run: RunData) -> Drawing | None:
    """Metrics against the number of whole cycles.

    None for densities, whose draws are kept in blocks that span cycles, for arms without cycles, and where single
    samples were not evaluated and no sampler keeps one a cycle.
    """
    if run.by_blocks:
        return None
    curves = _of_cycles(run)
    if not any(c.single or c.arm.sampler in ONE_PER_CYCLE for c in curves):
        return None
    names = " and ".join(dict.fromkeys(c.metric.label for c in curves))
    text = f"{names} of the predictive that averages the samples of the first m cycles of all chains{run.over_repeats}."
    if any(np.isfinite(c.error).any() for c in curves):
        text += " Vertical bars: ± one standard error over them."
    if any(c.single for c in curves):
        text += (
            " Bands: single samples, their mean ± one standard deviation over samples, "
            f"chains{' and repeats' if run.repeated else ''}."
        )
    else:
        text += " raychains evaluate RUN --views samples adds the band of single samples."
    return Drawing(
        name="cycles",
        title="Ensembles of the first cycles and single samples",
        caption=text,
        alt=f"{names} against the number of cycles for every arm, beside single samples",
        draw=lambda: _cycles(run, curves),
        data=[
            {**row, **dict(zip(("single_mean", "single_sd"), c.single or (None, None), strict=True))}
            for c in curves
            for row in c.rows("cycles")
        ],
    )


def _of_cycles(run: RunData) -> list[Curve]:
    found = []
    for arm in run.comparison.arms:
        mine, views = run.of(run.curves, arm), run.of(run.views, arm)
        cycles = schedules.build(arm.chains[0][0].schedule).cycle_count
        if cycles < 2 or not len(mine):
            continue
        mine = mine[mine.groupby("repeat")["samples"].transform("max") == mine["samples"].max()]  # no dropped chains
        per_cycle, rest = divmod(int(mine["samples"].max()), cycles)
        if rest or not per_cycle:  # the last cycle is shorter than the others: prefixes end inside of cycles
            continue
        whole = mine[mine["samples"] % per_cycle == 0]
        for metric in run.metrics:
            if metric.name in whole.columns:
                n, mean, error = mean_and_error(whole, metric.name)
                known = len(views) and metric.name in views.columns
                values = views.loc[views["kind"] == "samples", metric.name].to_numpy(dtype=float) if known else []
                single = (float(np.mean(values)), float(np.std(values, ddof=1))) if len(values) > 1 else None
                found.append(Curve(arm, metric, n // per_cycle, mean, error, single))
    return found


def _panels(run: RunData, curves: Sequence[Curve]) -> tuple[Figure, dict[int, Axes], list[list[Axes]]]:
    """A row per metric and a column per sampler: the figure, each curve's panel, and all panels."""
    metrics = list(dict.fromkeys(c.metric for c in curves))
    shown = [p for p in run.arm_styles.panels if any(c.arm in p.arms for c in curves)]
    figure, axes = panels(len(metrics), len(shown), 2.4 if len(metrics) > 1 else 3.0, sharex="col", sharey="row")
    column = {arm.name: i for i, panel in enumerate(shown) for arm in panel.arms}
    for panel, axis in zip(shown, axes[0], strict=True):
        axis.set_title(panel.title)
    for metric, row in zip(metrics, axes, strict=True):
        row[0].set_ylabel(metric.label)
    return figure, {i: axes[metrics.index(c.metric)][column[c.arm.name]] for i, c in enumerate(curves)}, axes


def _curves(run: RunData) -> Iterator[Curve]:
    for arm in run.comparison.arms:
        mine = run.of(run.curves, arm)
        for metric in run.metrics if len(mine) else ():
            if metric.name in mine.columns:
                n, mean, error = mean_and_error(mine, metric.name)
                x = draws_of(run.chains(arm) or arm.chains[0], n) if run.by_blocks else n
                yield Curve(arm, metric, x, mean, error)


def _samples(run: RunData, curves: Sequence[Curve]) -> Figure:
    figure, places, axes = _panels(run, curves)
    for i, curve in enumerate(curves):
        axis, style, scale = places[i], run.arm_styles[curve.arm], curve.metric.scale
        colour = style.colour
        lone = style.marker if len(curve.x) == 1 else ""
        axis.plot(curve.x, curve.mean * scale, color=colour, linestyle=style.line, marker=lone)
        if np.isfinite(curve.error).any():
            low, high = ((curve.mean + sign * curve.error) * scale for sign in (-1, 1))
            axis.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)
        expected = expected_modes(curve.arm) if is_mixture(run.comparison) and curve.metric.name == "modes" else None
        if expected is not None:
            axis.plot([0, curve.x[-1]], [expected] * 2, color=colour, linestyle=":", linewidth=1, zorder=1)
    for axis in chain(*axes):
        if run.by_blocks:
            axis.xaxis.set_major_formatter(COUNT)
            axis.set_ylim(0, max(MODES * 1.04 if is_mixture(run.comparison) else 0.0, axis.get_ylim()[1]))
        else:
            axis.set_xscale("log")
            log_axis(axis.xaxis)
    for axis in axes[-1]:
        axis.set_xlabel("Draws of all chains" if run.by_blocks else "Samples of all chains")
    legend(figure, [style.handle() for style in run.arm_styles.among(c.arm for c in curves)])
    return figure


def _cycles(run: RunData, curves: Sequence[Curve]) -> Figure:
    figure, places, axes = _panels(run, curves)
    for i, curve in enumerate(curves):
        axis, style, scale = places[i], run.arm_styles[curve.arm], curve.metric.scale
        colour, error = style.colour, curve.error * scale if np.isfinite(curve.error).any() else None
        marks: dict[str, Any] = {"marker": style.marker, "markersize": 3.5, "linestyle": style.line}
        axis.errorbar(curve.x, curve.mean * scale, yerr=error, elinewidth=0.9, color=colour, **marks)
        if curve.single is not None:
            mean, sd = (v * scale for v in curve.single)
            axis.axhspan(mean - sd, mean + sd, color=colour, alpha=0.14, linewidth=0, zorder=0)
            axis.axhline(mean, color=colour, linewidth=0.9, linestyle=style.line, alpha=0.8, zorder=1)
    for axis in axes[-1]:
        axis.set_xlabel("Cycles of each chain")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    entries: list[Any] = [k.handle(markers=True) for k in run.arm_styles.among(c.arm for c in curves)]
    if any(c.single for c in curves):
        entries.append(Patch(color=MUTED, alpha=0.25, linewidth=0, label="single samples, mean ± sd"))
    legend(figure, entries)
    return figure


def mean_and_error(curves: pd.DataFrame, metric: str) -> tuple[Array, Array, Array]:
    """Numbers of samples, mean over repeats and its standard error (nan with one repeat); nan where a repeat has
    none."""
    by = curves.groupby("samples")[metric]
    whole = by.count() == by.size()
    mean, error = by.mean().where(whole), (by.std(ddof=1) / np.sqrt(by.size())).where(whole)
    return mean.index.to_numpy(), mean.to_numpy(), error.to_numpy()


def draws_of(specs: Sequence[ChainSpec], blocks: Array) -> Array:
    """Draws in the first n blocks of these chains: all are full but the last of each chain, and chains take turns."""
    spec, chains = specs[0], len(specs)
    kept = schedules.build(spec.schedule).kept
    full = kept // spec.block_draws * chains
    return np.minimum(blocks, full) * spec.block_draws + np.maximum(blocks - full, 0) * (kept % spec.block_draws)
