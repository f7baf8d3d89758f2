"""Every repeat as a point beside its arm's mean: how far the repeats spread, which a table hides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.evaluation import Array, Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.layout import apart, dot_entry, entry, legend, measure, per_arm
from raychains.plotting.style import ALARM, INK, Drawing
from raychains.report.reference_values import expected_modes, is_mixture


@dataclass(frozen=True)
class Repeats:
    """One arm's values, each by the metric's name, and how they are drawn."""

    label: str
    colour: str
    marker: str
    values: Mapping[str, Array]
    published: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)


POINTS = "One point per repeat; the bar is the mean, its ends ± one standard error. "


def drawing(run: RunData) -> Drawing | None:
    """None before anything is evaluated, and for a single value, which the table shows."""
    if not run.metrics or len(run.results) < 2:
        return None
    measured = "; ".join(m.label + (f", {m.better} is better" if m.better != "neither" else "") for m in run.metrics)
    return Drawing(
        name="spread",
        title="Every repeat" if run.repeated else "Every arm",
        caption=(POINTS if run.repeated else "") + f"{measured}.",
        alt="Each metric's value in every repeat of every arm, with mean and standard error",
        draw=lambda: _draw(run),
        data=[
            {"arm": row["arm"], "repeat": row["repeat"], **{m.name: row[m.name] for m in run.metrics}}
            for row in run.results.to_dict("records")
        ],
    )


def of_arm(run: RunData, arm: Arm, colour: str, shape: str) -> Repeats:
    """The values of one arm, unscaled, for the run's metrics that it has."""
    mine = run.of(run.results, arm)
    values = {m.name: mine[m.name].to_numpy(dtype=float) for m in run.metrics if m.name in mine}
    return Repeats(arm.label, colour, shape, values)


def _draw(run: RunData) -> Figure:
    arms = []
    for arm in run.comparison.arms:
        style = run.arm_styles[arm]
        published = {name: value for name, text in arm.published.items() if (value := number(text)) is not None}
        modes = expected_modes(arm) if is_mixture(run.comparison) else None
        own = of_arm(run, arm, style.colour, style.marker)
        arms.append(replace(own, published=published, expected={} if modes is None else {"modes": modes}))
    figure, _ = draw(run.metrics, arms)
    names = {m.name for m in run.metrics}
    marks = [dot_entry("a repeat")]
    if any(len(values) > 1 for arm in arms for values in arm.values.values()):
        marks.append(entry("mean ± standard error", color=INK, marker="|", markersize=9, linewidth=1.2))
    if any(names & set(arm.published) for arm in arms):
        marks.append(dot_entry("published", color=ALARM, marker="x", markersize=6))
    if any(names & set(arm.expected) for arm in arms):
        marks.append(dot_entry("exact theory", color=INK, marker="D", markerfacecolor="none", markersize=6))
    legend(figure, marks, columns=4)
    return figure


def draw(metrics: Sequence[Metric], arms: Sequence[Repeats]) -> tuple[Figure, list[Axes]]:
    """A panel per metric with a line per arm: repeats, mean ± standard error, published and expected values."""
    figure, axes = per_arm([arm.label for arm in arms], len(metrics))
    for axis, metric in zip(axes, metrics, strict=True):
        for y, arm in enumerate(arms):
            _arm(axis, y, arm, metric)
        axis.set_xlabel(measure(metric))
        axis.xaxis.set_major_locator(MaxNLocator(6))
        axis.margins(x=0.06)
    return figure, axes


def _arm(axis: Axes, y: int, arm: Repeats, metric: Metric) -> None:
    values = arm.values.get(metric.name, np.empty(0)) * metric.scale
    dots: dict[str, Any] = {"alpha": 0.75, "markersize": 4.5, "markeredgewidth": 0}
    axis.plot(values, y + apart(len(values), 0.16), arm.marker, color=arm.colour, **dots)
    if len(values) > 1:
        error = values.std(ddof=1) / np.sqrt(len(values))
        axis.errorbar(values.mean(), y, xerr=error, color=INK, linewidth=1.2, capsize=3, capthick=1.2, zorder=4)
        axis.plot(values.mean(), y, "|", color=INK, markersize=11, markeredgewidth=1.6, zorder=4)
    if metric.name in arm.published:
        axis.plot(arm.published[metric.name], y, "x", color=ALARM, markersize=6, markeredgewidth=1.5, zorder=5)
    if metric.name in arm.expected:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 7, "markeredgewidth": 1}
        axis.plot(arm.expected[metric.name], y, "D", color=INK, zorder=5, **hollow)


def number(text: str) -> float | None:
    """The value in a published "6.7 ± 0.52"."""
    match = re.match(r"\s*(-?\d*\.?\d+)", text)
    return float(match[1]) if match else None
