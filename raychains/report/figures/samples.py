"""The predictive's metrics (or the mode coverage) against the samples, or the whole cycles, that it averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from raychains import schedules
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array, Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.charts import DOTTED, SHADE, Axis, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import Drawing, records
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
        draw=_samples(run, curves),
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
        draw=_cycles(run, curves),
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


def _chart(run: RunData, curves: Sequence[Curve], marks: Callable[[Curve], Iterable[Mark]], x: Axis, y: Axis) -> Chart:
    """A row per metric and a column per sampler."""
    metrics, shown = list(dict.fromkeys(c.metric for c in curves)), list[Panel]()
    of = [p for p in run.arm_styles.panels if any(c.arm in p.arms for c in curves)]
    for metric, panel in product(metrics, of):
        mine = [mark for c in curves if c.metric == metric and c.arm in panel.arms for mark in marks(c)]
        title = panel.title if metric is metrics[0] else ""
        shown.append(Panel(marks=mine, x=x, y=replace(y, label=metric.label), title=title))
    height = 2.4 if len(metrics) > 1 else 3.0
    return Chart(panels=shown, columns=len(of), height=height, share_x="col", share_y="row", legend_columns=2)


def _curves(run: RunData) -> Iterator[Curve]:
    for arm in run.comparison.arms:
        mine = run.of(run.curves, arm)
        for metric in run.metrics if len(mine) else ():
            if metric.name in mine.columns:
                n, mean, error = mean_and_error(mine, metric.name)
                x = draws_of(run.chains(arm) or arm.chains[0], n) if run.by_blocks else n
                yield Curve(arm, metric, x, mean, error)


def _samples(run: RunData, curves: Sequence[Curve]) -> Chart:
    mixture = is_mixture(run.comparison)

    def marks(curve: Curve) -> Iterator[Mark]:
        style, scale, band = run.arm_styles[curve.arm], curve.metric.scale, None
        if np.isfinite(curve.error).any():
            band = tuple((curve.mean + sign * curve.error) * scale for sign in (-1, 1))
        yield Line(x=curve.x, y=curve.mean * scale, style=style.style(), label=style.label, band=band)
        expected = expected_modes(curve.arm) if mixture and curve.metric.name == "modes" else None
        if expected is not None:
            yield Rule(at=expected, ends=(0, curve.x[-1]), style={**DOTTED, "color": style.colour, "zorder": 1})

    if not run.by_blocks:
        return _chart(run, curves, marks, Axis(label="Samples of all chains", scale="log", whole=True), Axis())
    most = max(float(np.nanmax(c.mean) * c.metric.scale) for c in curves)
    y = Axis(low=0, high=max(MODES * 1.04 if mixture else 0.0, 1.08 * most))
    return _chart(run, curves, marks, Axis(label="Draws of all chains", text="{:,.0f}".format), y)


def _cycles(run: RunData, curves: Sequence[Curve]) -> Chart:
    def marks(curve: Curve) -> Iterator[Mark]:
        style, scale, upright = run.arm_styles[curve.arm], curve.metric.scale, None
        if np.isfinite(curve.error).any():
            upright = tuple((curve.mean + sign * curve.error) * scale for sign in (-1, 1))
        look = style.style(size=3.5)
        yield Line(x=curve.x, y=curve.mean * scale, style=look, label=style.label, upright=upright)
        if curve.single is not None:
            mean, sd = (v * scale for v in curve.single)
            yield Rule(at=mean, width=2 * sd, style={"color": style.colour, "alpha": 0.14, "zorder": 0})
            yield Rule(
                at=mean, style={"color": style.colour, "linewidth": 0.9, "linestyle": style.dashes, "alpha": 0.8}
            )

    made = _chart(run, curves, marks, Axis(label="Cycles of each chain", ticks=8, whole=True), Axis())
    return replace(made, legend=[("single samples, mean ± sd", SHADE)] if any(c.single for c in curves) else [])


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
