"""What single samples, cycles and chains are worth beside the whole ensemble, and what it is without one chain."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report.figures.layout import legend, measure
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme
from raychains.report.views import Kind, kinds, measured

PANELS = 2
"""Metrics that are drawn: the first ones, for classifiers error and NLL."""
MANY = 60
"""Dots of a row from which on they are small."""


def drawing(material: Material) -> Drawing | None:
    """None where no parts of the ensembles were evaluated."""
    metrics, found = measured(material)[:PANELS], kinds(material)
    if not metrics or all(kind.ensemble for kind in found):
        return None
    names = " and ".join(m.label for m in metrics)
    return Drawing(
        name="views",
        title="The ensemble and its parts",
        caption=(
            "One dot per view and repeat, in the order of samples, cycles or chains; the upright line is the ensemble "
            "of all samples, equally weighted (mean over the repeats). What lies right of it in a panel whose lower "
            "values are better is worse than the ensemble. Bars: 95 % bootstrap intervals over the test points, samples "
            "held."
        ),
        alt=f"{names} of the predictives of single samples, cycles and chains of every arm, beside the ensemble's",
        draw=lambda theme: _draw(material, found, metrics, theme),
        data=[
            {**{c: row[c] for c in ("arm", "group", "repeat", "view", "kind", "weighting", "samples")},
             **{name: row[name] for m in metrics for name in (m.name, *ends(m)) if name in row}}
            for row in material.views.to_dict("records")
        ],
    )  # fmt: skip


def _draw(material: Material, found: list[Kind], metrics: tuple[Metric, ...], theme: Theme) -> Figure:
    arms: dict[str, list[Kind]] = {}
    for kind in found:
        arms.setdefault(kind.arm.name, []).append(kind)
    lines = len(found) + len(arms)
    figure = Figure(figsize=(WIDTH, 0.24 * lines + 1.1))
    axes: list[Axes] = list(figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0])
    ticks: list[tuple[float, str]] = []
    heads: list[tuple[float, str]] = []
    y = 0
    for own in arms.values():
        heads.append((y, own[0].arm.label))
        for i, kind in enumerate(own, start=1):
            ticks.append((y + i, kind.label))
            for axis, metric in zip(axes, metrics, strict=True):
                _dots(axis, kind, metric, y + i, theme.colour(material.looks[kind.arm]))
        for axis, metric in zip(axes, metrics, strict=True):
            _ensemble(axis, material, own, metric, (y + 0.5, y + len(own) + 0.5), theme)
        y += len(own) + 1
    for axis, metric in zip(axes, metrics, strict=True):
        axis.set_xlabel(measure(metric))
        axis.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
        axis.set_ylim(lines - 0.4, -0.6)
        axis.grid(True, axis="y", linewidth=0.4)
        axis.tick_params(axis="y", length=0)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.margins(x=0.04)
        for at, label in heads:
            short = textwrap.shorten(label, 44, placeholder="…")
            text: Any = {"fontsize": 8.5, "fontweight": "bold", "va": "center", "ha": "left"}
            if axis is axes[0]:
                axis.text(0.005, at, short, transform=axis.get_yaxis_transform(), **text)
            if at:
                axis.axhline(at - 0.5, color=theme.muted, linewidth=0.7)
    legend(
        figure,
        [
            Line2D([], [], color=theme.muted, marker="o", linestyle="", markersize=4.5, label="a view"),
            Line2D([], [], color=theme.ink, linewidth=1.4, label="all samples, equal weights"),
        ],
    )
    return figure


def _dots(axis: Axes, kind: Kind, metric: Metric, y: float, colour: str) -> None:
    values = kind.rows[metric.name].to_numpy(dtype=float) * metric.scale
    # Equal values would hide each other: dots are set apart in their order.
    apart = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
    size = 3.0 if len(values) > MANY else 4.5
    axis.plot(values, y + apart, "o", color=colour, alpha=0.7, markersize=size, markeredgewidth=0, zorder=3)

    low, high = ends(metric)
    if low in kind.rows and high in kind.rows:
        between = kind.rows[[low, high]].to_numpy(dtype=float) * metric.scale
        known = np.isfinite(between).all(axis=1)
        if known.any():
            bar: Any = {"color": colour, "linewidth": 1.3, "alpha": 0.8}
            axis.hlines((y + apart)[known], between[known, 0], between[known, 1], **bar)


def ends(metric: Metric) -> tuple[str, str]:
    """The columns of a metric's interval."""
    return f"{metric.name}_low", f"{metric.name}_high"


def _ensemble(
    axis: Axes, material: Material, own: list[Kind], metric: Metric, between: tuple[float, float], theme: Theme
) -> None:
    value = ensemble(material, own[0].arm, metric)
    if value is not None:
        axis.plot([value * metric.scale] * 2, between, color=theme.ink, linewidth=1.4, zorder=2)


def ensemble(material: Material, arm: Arm, metric: Metric) -> float | None:
    """The metric of all samples, equally weighted, mean over the repeats; None where it is not known."""
    views = material.of(material.views, arm)
    views = views[(views["kind"] == "all") & (views["weighting"] == "equal")]
    values = views if len(views) else material.of(material.results, arm)
    value = float(values[metric.name].mean()) if metric.name in values else float("nan")
    return value if np.isfinite(value) else None
