"""Every repeat as a point beside its arm's mean: how far the repeats spread, which a table hides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raychains.evaluation.evaluation import Array, Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.charts import DOT, HOLLOW, Axis, Chart, Line, Mark, Rule, Style, dots, in_lines
from raychains.plotting.layout import measure
from raychains.plotting.style import ALARM, INK, MUTED, Drawing
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


MEAN: Style = {"color": INK, "linewidth": 1.2, "marker": "|", "markersize": 11, "markeredgewidth": 1.6, "zorder": 4}
PUBLISHED: Style = {**DOT, "color": ALARM, "marker": "x", "markersize": 6, "markeredgewidth": 1.5, "zorder": 5}
EXACT: Style = {**DOT, **HOLLOW, "color": INK, "marker": "D", "markersize": 7, "zorder": 5}
ENTRIES = {"mean ± standard error": MEAN, "published": PUBLISHED, "exact theory": EXACT}
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
        draw=_chart(run),
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


def _chart(run: RunData) -> Chart:
    arms = []
    for arm in run.comparison.arms:
        style = run.arm_styles[arm]
        published = {name: value for name, text in arm.published.items() if (value := number(text)) is not None}
        modes = expected_modes(arm) if is_mixture(run.comparison) else None
        own = of_arm(run, arm, style.colour, style.marker)
        arms.append(replace(own, published=published, expected={} if modes is None else {"modes": modes}))
    return chart(run.metrics, arms, [("a repeat", DOT)], legend_columns=4)


def chart(
    metrics: Sequence[Metric],
    arms: Sequence[Repeats],
    legend: Sequence[tuple[str, Style]],
    rules: Sequence[float] = (),
    **settings: Any,
) -> Chart:
    """A panel per metric with a line per arm: repeats, mean ± standard error, published and expected values.

    Args:
        metrics, arms: what is drawn.
        legend: entries of the repeats.
        rules: places between lines at which the panels are ruled.
        settings: of the chart.
    """
    of = [(m, [mark for line, arm in enumerate(arms) for mark in _marks(line, arm, m)]) for m in metrics]
    parted: list[Mark] = [Rule(at=place, style={"color": MUTED, "linewidth": 0.7}) for place in rules]
    shown = [(Axis(label=measure(metric), ticks=6), [*parted, *marks]) for metric, marks in of]
    styles = [mark.style for _, marks in of for mark in marks]
    entries = [(name, style) for name, style in ENTRIES.items() if any(style is drawn for drawn in styles)]
    return in_lines([arm.label for arm in arms], shown, legend=[*legend, *entries], **settings)


def _marks(line: int, arm: Repeats, metric: Metric) -> Iterator[Line]:
    values = arm.values.get(metric.name, np.empty(0)) * metric.scale
    yield dots(line, values, {"color": arm.colour, "marker": arm.marker}, apart=0.16)
    if len(values) > 1:
        mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
        ends, bars = (mean - error, mean + error), {"color": INK, "alpha": 1, "zorder": 4}
        yield Line(x=[mean], y=[line], style=MEAN, level=ends, bars=bars)
    for found, style in ((arm.published, PUBLISHED), (arm.expected, EXACT)):
        if metric.name in found:
            yield Line(x=[found[metric.name]], y=[line], style=style)


def number(text: str) -> float | None:
    """The value in a published "6.7 ± 0.52"."""
    match = re.match(r"\s*(-?\d*\.?\d+)", text)
    return float(match[1]) if match else None
