"""Regression: predictive intervals against targets, the PIT's histogram and the coverage of intervals, from a run's
rows."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy import stats

from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.planning import Arm
from raychains.plotting import layout
from raychains.plotting.style import ALARM, INK, MUTED, Drawing

NEEDED = ("target", "mean", "std", "pit")
SHOWN = 150
"""Examples at most whose intervals are drawn: more would hide each other."""
LEVEL = 0.9
PIT_BINS = 10
LEVELS = tuple(k / 20 for k in range(1, 20))


@dataclass(frozen=True)
class Predicted:
    """What one arm's first group predicts of a split: all of shape [examples, outputs]."""

    arm: Arm
    target: Array
    mean: Array
    std: Array
    pit: Array

    @property
    def pits(self) -> Array:
        """The finite PIT values of all outputs, [n]."""
        values = self.pit.reshape(-1)
        return values[np.isfinite(values)]


def predicted(run: RunData) -> list[Predicted]:
    """Return every arm's predictions, none unless the run's rows are those of a regression."""
    rows = run.rows
    if rows is None or not {*NEEDED, "arm", "group"} <= set(rows.column_names):
        return []
    found = []
    for arm in run.comparison.arms:
        mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
        if len(mine):
            mine = mine.filter(pc.equal(mine["group"], pc.min(mine["group"])))
            columns = (np.array(mine[name].to_pylist(), dtype=float).reshape(len(mine), -1) for name in NEEDED)
            found.append(Predicted(arm, *columns))
    return [one for one in found if len(one.pits)]


def intervals(run: RunData) -> Drawing | None:
    """Draw intervals against the targets; None unless the run is a regression."""
    found = predicted(run)
    if not found:
        return None
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    chosen = {one.arm.name: _chosen(one) for one in found}
    data: list[dict[str, Any]] = []
    for one in found:
        for i in chosen[one.arm.name].tolist():
            target, mean, std = (float(values[i, 0]) for values in (one.target, one.mean, one.std))
            row = {"arm": one.arm.name, "example": i, "target": target, "mean": mean}
            data.append({**row, "low": mean - z * std, "high": mean + z * std})
    some = (
        f"{SHOWN} of the {len(found[0].target):,} examples, spread over the predictive means"
        if any(len(one.target) > SHOWN for one in found)
        else "all examples"
    )
    first = " of the first output" if found[0].target.shape[1] > 1 else ""
    return Drawing(
        name="intervals",
        title="Predictions against targets",
        caption=(
            f"Mean and {LEVEL:.0%} interval (mean ± {z:.2f} standard deviations) of the predictive{first} against the "
            f"target, {some}{_of_one(run)}. Intervals that do not reach the diagonal miss their target."
        ),
        alt="Predictive intervals against targets for every arm, with the diagonal of exact predictions",
        draw=lambda: _draw_intervals(run, found, data),
        data=data,
    )


def _of_one(run: RunData) -> str:
    return ", of the first repeat" if run.repeated else ""


def _chosen(one: Predicted) -> Array:
    """Return the examples that are drawn: all, or some evenly spread over the predictive means."""
    order = np.argsort(one.mean[:, 0], kind="stable")
    order = order[np.isfinite(one.mean[order, 0] + one.std[order, 0])]
    return order[np.unique(np.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().astype(int))]


def _draw_intervals(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Figure:
    figure, axes = layout.grid(len(found), panels.COLUMNS if len(found) > 2 else 2, 2.9, sharex=True, sharey=True)
    for axis, one in zip(axes, found, strict=True):
        mine = [row for row in data if row["arm"] == one.arm.name]
        for inside, colour in ((True, run.arm_styles[one.arm].colour), (False, ALARM)):
            some = [row for row in mine if (row["low"] <= row["target"] <= row["high"]) == inside]
            x, mean, low, high = ([row[name] for row in some] for name in ("target", "mean", "low", "high"))
            axis.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.5)
            axis.plot(x, mean, "o", color=colour, markersize=2.6)
        targets = [row["target"] for row in mine]
        ends = [min(targets), max(targets)]
        axis.plot(ends, ends, color=INK, linestyle=layout.DASHED, linewidth=0.9, zorder=1)
        axis.set(xlabel="Target", title=layout.wrapped(one.arm.label, 26, 9))
    axes[0].set_ylabel("Predicted")
    handles = [
        layout.dot_entry("mean, and interval with the target"),
        layout.dot_entry("without it", color=ALARM),
        layout.dashed_entry("exact predictions"),
    ]
    layout.legend(figure, handles, columns=3)
    return figure


def pit(run: RunData) -> Drawing | None:
    """Draw the PIT's histogram; None unless the run is a regression."""
    found = predicted(run)
    if not found:
        return None
    data: list[dict[str, Any]] = []
    for one in found:
        counts, edges = np.histogram(one.pits, bins=PIT_BINS, range=(0, 1))
        low, high = stats.binom.interval(0.95, len(one.pits), 1 / PIT_BINS)
        for k, count in enumerate(counts.tolist()):
            row = {"arm": one.arm.name, "lower": float(edges[k]), "upper": float(edges[k + 1]), "count": count}
            data.append({**row, "low": float(low), "high": float(high)})
    return Drawing(
        name="pit",
        title="PIT: the predictive's distribution function at the targets",
        caption=(
            f"Targets in {PIT_BINS} intervals of equal predicted probability{_of_one(run)}: uniform where the "
            "predictive is calibrated. A hump in the middle: intervals are too wide; high ends: too narrow; a slope: predictions "
            "are shifted. Grey: where 95 % of the counts of a calibrated predictive lie."
        ),
        alt="Histogram of the probability integral transform for every arm, with the band of a calibrated predictive",
        draw=lambda: _draw_pit(run, found, data),
        data=data,
    )


def _draw_pit(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Figure:
    figure, axes = layout.grid(len(found), panels.COLUMNS if len(found) > 2 else 2, 2.3, sharex=True)
    for axis, one in zip(axes, found, strict=True):
        mine = [row for row in data if row["arm"] == one.arm.name]
        axis.axhspan(mine[0]["low"], mine[0]["high"], color=MUTED, alpha=0.25, linewidth=0)
        middles = [(row["lower"] + row["upper"]) / 2 for row in mine]
        axis.bar(middles, [row["count"] for row in mine], 0.88 / PIT_BINS, color=run.arm_styles[one.arm].colour)
        axis.axhline(len(one.pits) / PIT_BINS, color=INK, linestyle=layout.DASHED, linewidth=0.9)
        axis.set(xlim=(0, 1), xlabel="Predicted probability of less", title=layout.wrapped(one.arm.label, 26, 9))
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0].set_ylabel("Targets")
    handles = [
        layout.dashed_entry("calibrated, on average"),
        Patch(color=MUTED, alpha=0.25, label="and 95 % of the time"),
    ]
    layout.legend(figure, handles)
    return figure


def coverage(run: RunData) -> Drawing | None:
    """Draw the share of targets in central intervals against the nominal one; None unless the run is a regression."""
    found = predicted(run)
    if not found:
        return None
    data = [
        {"arm": one.arm.name, "nominal": level, "covered": float((np.abs(2 * one.pits - 1) <= level).mean())}
        for one in found
        for level in LEVELS
    ]
    return Drawing(
        name="coverage",
        title="Coverage of intervals",
        caption=(
            f"Share of the targets in the predictive's central intervals, by their nominal probability{_of_one(run)}: "
            "above the diagonal intervals are too wide, below it too narrow. Grey: where 95 % of the shares of a "
            "calibrated predictive lie, at each probability by itself."
        ),
        alt="Covered share of targets against the nominal probability of intervals for every arm, with the diagonal",
        draw=lambda: _draw_coverage(run, found, data),
        data=data,
    )


def _draw_coverage(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Figure:
    looks = run.arm_styles
    by_arm = {one.arm.name: one for one in found}
    shown = [panel for panel in looks.panels if any(arm.name in by_arm for arm in panel.arms)]
    figure, axes = layout.panels(1, len(shown), 2.9, sharey=True)
    for axis, panel in zip(axes[0], shown, strict=True):
        mine = [by_arm[arm.name] for arm in panel.arms if arm.name in by_arm]
        _band(axis, min(len(one.pits) for one in mine))
        for one in mine:
            shares = [row["covered"] for row in data if row["arm"] == one.arm.name]
            looks[one.arm].plot(axis, LEVELS, shares, size=3.5)
        axis.plot([0, 1], [0, 1], color=INK, linestyle=layout.DASHED, linewidth=0.9, zorder=1)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="Nominal probability", title=panel.title)
    axes[0][0].set_ylabel("Share of targets inside")
    handles = [look.handle(markers=True) for look in looks.among(one.arm for one in found)]
    layout.legend(figure, [*handles, layout.dashed_entry("calibrated")])
    return figure


def _band(axis: Axes, count: int) -> None:
    low, high = stats.binom.interval(0.95, count, np.array(LEVELS))
    axis.fill_between(LEVELS, low / count, high / count, color=MUTED, alpha=0.25, linewidth=0)
