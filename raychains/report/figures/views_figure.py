"""The whole ensemble beside single samples, cycles and chains, and beside itself without one chain."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.evaluation import Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.layout import apart, dot_entry, entry, legend, measure, panels
from raychains.plotting.style import INK, MUTED, Drawing
from raychains.report.run_tables import Kind, kinds, view_metrics

PANELS = 2
"""Metrics that are drawn: the first ones, for classifiers error and NLL."""
MANY = 60
"""Dots of a row from which on they are small."""


def drawing(run: RunData) -> Drawing | None:
    """None where no parts of the ensembles were evaluated."""
    metrics, found = view_metrics(run)[:PANELS], kinds(run)
    if not metrics or all(kind.ensemble for kind in found):
        return None
    names = " and ".join(m.label for m in metrics)
    columns = ["arm", "group", "repeat", "view", "kind", "weighting", "samples"]
    columns += [column for m in metrics for column in (m.name, *ends(m))]
    return Drawing(
        name="views",
        title="The ensemble and its parts",
        caption=(
            f"One dot per view{' and repeat' if run.repeated else ''}, in the order of samples, cycles or chains; the "
            f"upright line is the ensemble of all samples, equally weighted{run.over_repeats}. What lies right of it "
            "in a panel whose lower values are better is worse than the ensemble. Bars: 95 % bootstrap intervals over "
            "the test points, samples held."
        ),
        alt=f"{names} of the predictives of single samples, cycles and chains of every arm, beside the ensemble's",
        draw=lambda: _draw(run, found, metrics),
        data=run.views[[c for c in columns if c in run.views.columns]].to_dict("records"),
    )


def _draw(run: RunData, found: list[Kind], metrics: tuple[Metric, ...]) -> Figure:
    arms: dict[str, list[Kind]] = {}
    for kind in found:
        arms.setdefault(kind.arm.name, []).append(kind)
    count = len(found) + len(arms)
    figure, (axes,) = panels(1, len(metrics), 0.24 * count + 0.6, sharey=True)
    ticks: list[tuple[float, str]] = []
    heads: list[tuple[float, str]] = []
    y = 0
    for own in arms.values():
        heads.append((y, own[0].arm.label))
        for i, kind in enumerate(own, start=1):
            ticks.append((y + i, kind.label))
            for axis, metric in zip(axes, metrics, strict=True):
                _dots(axis, kind, metric, y + i, run.arm_styles[kind.arm].colour)
        for axis, metric in zip(axes, metrics, strict=True):
            if (value := ensemble(run, own[0].arm, metric)) is not None:
                ends_at = (y + 0.5, y + len(own) + 0.5)
                axis.plot([value * metric.scale] * 2, ends_at, color=INK, linewidth=1.4, zorder=2)
        y += len(own) + 1
    for axis, metric in zip(axes, metrics, strict=True):
        axis.set_xlabel(measure(metric))
        axis.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
        axis.set_ylim(count - 0.4, -0.6)
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
                axis.axhline(at - 0.5, color=MUTED, linewidth=0.7)
    legend(figure, [dot_entry("a view"), entry("all samples, equal weights", color=INK, linewidth=1.4)])
    return figure


def _dots(axis: Axes, kind: Kind, metric: Metric, y: float, colour: str) -> None:
    values = kind.rows[metric.name].to_numpy(dtype=float) * metric.scale
    at = y + apart(len(values), 0.22)
    size = 3.0 if len(values) > MANY else 4.5
    axis.plot(values, at, "o", color=colour, alpha=0.7, markersize=size, markeredgewidth=0, zorder=3)

    low, high = ends(metric)
    if low in kind.rows and high in kind.rows:
        between = kind.rows[[low, high]].to_numpy(dtype=float) * metric.scale
        known = np.isfinite(between).all(axis=1)
        if known.any():
            bar: Any = {"color": colour, "linewidth": 1.3, "alpha": 0.8}
            axis.hlines(at[known], between[known, 0], between[known, 1], **bar)


def ends(metric: Metric) -> tuple[str, str]:
    """The columns of a metric's interval."""
    return f"{metric.name}_low", f"{metric.name}_high"


def ensemble(run: RunData, arm: Arm, metric: Metric) -> float | None:
    """The metric of all samples, equally weighted, mean over the repeats; None where it is not known."""
    views = run.of(run.views, arm)
    views = views[(views["kind"] == "all") & (views["weighting"] == "equal")]
    values = views if len(views) else run.of(run.results, arm)
    value = float(values[metric.name].mean()) if metric.name in values else float("nan")
    return value if np.isfinite(value) else None
