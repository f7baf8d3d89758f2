"""Every repeat as a point beside its arm's mean: how far the repeats spread, which a table hides."""

from __future__ import annotations

import re
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.base import Metric
from raychains.report.figures.layout import legend, measure
from raychains.report.material import Material
from raychains.report.reference import expected_modes, is_mixture
from raychains.report.style import WIDTH, Drawing, Theme, marker


def drawing(material: Material) -> Drawing | None:
    """None before anything is evaluated, and for a single value, which the table shows."""
    if not material.metrics or len(material.results) < 2:
        return None
    measured = "; ".join(
        m.label + (f", {m.better} is better" if m.better != "neither" else "") for m in material.metrics
    )
    return Drawing(
        name="spread",
        title="Every repeat",
        caption=f"One point per repeat; the bar is the mean, its ends ± one standard error. {measured}.",
        alt="Each metric's value in every repeat of every arm, with mean and standard error",
        draw=lambda theme: _draw(material, theme),
        data=[
            {"arm": row["arm"], "repeat": row["repeat"], **{m.name: row[m.name] for m in material.metrics}}
            for row in material.results.to_dict("records")
        ],
    )


def _draw(material: Material, theme: Theme) -> Figure:
    shown, arms = material.metrics, material.comparison.arms
    columns = min(len(shown), 2)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(WIDTH, rows * (0.34 * len(arms) + 0.75) + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    handles: dict[str, Line2D] = {}
    for i, metric in enumerate(shown):
        axis = axes[i // columns][i % columns]
        _panel(axis, material, metric, theme, handles)
        axis.set_xlabel(measure(metric))
        axis.set_yticks(range(len(arms)), [_wrapped(a.label) for a in arms])
        axis.set_ylim(len(arms) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0, labelleft=i % columns == 0)
    for spare in range(len(shown), rows * columns):
        axes[spare // columns][spare % columns].set_axis_off()
    legend(figure, list(handles.values()), columns=4)
    return figure


def _panel(axis: Axes, material: Material, metric: Metric, theme: Theme, handles: dict[str, Line2D]) -> None:
    for y, arm in enumerate(material.comparison.arms):
        look = material.looks[arm]
        colour = theme.colour(look)
        values = material.of(material.results, arm)[metric.name].to_numpy() * metric.scale
        if len(values):
            # Equal values would hide each other: points are set apart in the order of the repeats.
            apart = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(1)
            axis.plot(values, y + apart, marker(look), color=colour, alpha=0.75, markersize=4.5, markeredgewidth=0)
            _add(handles, "a repeat", color=theme.muted, marker="o", linestyle="", markersize=4.5)
        if len(values) > 1:
            error = values.std(ddof=1) / np.sqrt(len(values))
            axis.errorbar(
                values.mean(),
                y,
                xerr=error,
                color=theme.ink,
                linewidth=1.2,
                capsize=3,
                capthick=1.2,
                zorder=4,
            )
            axis.plot(values.mean(), y, "|", color=theme.ink, markersize=11, markeredgewidth=1.6, zorder=4)
            _add(
                handles,
                "mean ± standard error",
                color=theme.ink,
                marker="|",
                linestyle="-",
                markersize=9,
                linewidth=1.2,
            )
        published = number(arm.published.get(metric.name, ""))
        if published is not None:
            axis.plot(published, y, "x", color=theme.alarm, markersize=6, markeredgewidth=1.5, zorder=5)
            _add(handles, "published", color=theme.alarm, marker="x", linestyle="", markersize=6)
        expected = expected_modes(arm) if is_mixture(material.comparison) and metric.name == "modes" else None
        if expected is not None:
            axis.plot(
                expected,
                y,
                "D",
                markerfacecolor="none",
                color=theme.ink,
                markersize=7,
                markeredgewidth=1,
                zorder=5,
            )
            _add(
                handles,
                "exact theory",
                color=theme.ink,
                marker="D",
                markerfacecolor="none",
                linestyle="",
                markersize=6,
            )
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.margins(x=0.06)


def _add(handles: dict[str, Line2D], label: str, **style: object) -> None:
    handles.setdefault(label, Line2D([], [], label=label, **style))  # type: ignore[arg-type]


def number(text: str) -> float | None:
    """The value in a published "6.7 ± 0.52"."""
    match = re.match(r"\s*(-?\d*\.?\d+)", text)
    return float(match[1]) if match else None


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 22)[:3]) or label
