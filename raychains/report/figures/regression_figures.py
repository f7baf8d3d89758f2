"""Regression: predictive intervals against targets, the PIT's histogram and the coverage of intervals, from a run's
rows."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from scipy import stats

from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.planning import Arm
from raychains.plotting.charts import DASHED, DOT, SHADE, Axis, Bars, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import ALARM, MUTED, Drawing

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
        draw=_intervals(run, found, data),
        data=data,
    )


def _of_one(run: RunData) -> str:
    return ", of the first repeat" if run.repeated else ""


def _chosen(one: Predicted) -> Array:
    """Return the examples that are drawn: all, or some evenly spread over the predictive means."""
    order = np.argsort(one.mean[:, 0], kind="stable")
    order = order[np.isfinite(one.mean[order, 0] + one.std[order, 0])]
    return order[np.unique(np.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().astype(int))]


def _intervals(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Chart:
    shown = []
    for i, one in enumerate(found):
        mine = pd.DataFrame([row for row in data if row["arm"] == one.arm.name])
        inside = (mine["low"] <= mine["target"]) & (mine["target"] <= mine["high"])
        marks: list[Mark] = []
        for some, colour in ((mine[inside], run.arm_styles[one.arm].colour), (mine[~inside], ALARM)):
            style, bars = {**DOT, "color": colour, "markersize": 2.6}, {"linewidth": 0.9, "alpha": 0.5}
            marks.append(
                Line(x=some["target"], y=some["mean"], style=style, upright=(some["low"], some["high"]), bars=bars)
            )
        ends = [mine["target"].min(), mine["target"].max()]
        marks.append(Line(x=ends, y=ends, style=DASHED))
        y = Axis(label="" if i else "Predicted")
        shown.append(Panel(marks=marks, x=Axis(label="Target"), y=y, title=one.arm.label))
    legend = [
        ("mean, and interval with the target", DOT),
        ("without it", {**DOT, "color": ALARM}),
        ("exact predictions", DASHED),
    ]
    return Chart(panels=shown, columns=_columns(found), height=2.9, share_x=True, share_y=True, legend=legend)


def _columns(found: list[Predicted]) -> int:
    return panels.COLUMNS if len(found) > 2 else 2


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
            "predictive is calibrated. A hump in the middle: intervals are too wide; high ends: too narrow; a slope: "
            "predictions are shifted. Grey: where 95 % of the counts of a calibrated predictive lie."
        ),
        alt="Histogram of the probability integral transform for every arm, with the band of a calibrated predictive",
        draw=_pit(run, found, data),
        data=data,
    )


def _pit(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Chart:
    shown = []
    for i, one in enumerate(found):
        mine = pd.DataFrame([row for row in data if row["arm"] == one.arm.name])
        low, high = mine[["low", "high"]].iloc[0]
        bars, middles = {"color": run.arm_styles[one.arm].colour}, (mine["lower"] + mine["upper"]) / 2
        marks: list[Mark] = [
            Rule(at=(low + high) / 2, width=high - low, style=SHADE),
            Bars(x=middles, height=mine["count"], width=0.88 / PIT_BINS, style=bars),
            Rule(at=len(one.pits) / PIT_BINS),
        ]
        x = Axis(label="Predicted probability of less", low=0, high=1, ticks={0: "0", 0.5: "0.5", 1: "1"})
        shown.append(Panel(marks=marks, x=x, y=Axis(label="" if i else "Targets"), title=one.arm.label))
    legend = [("calibrated, on average", DASHED), ("and 95 % of the time", SHADE)]
    return Chart(panels=shown, columns=_columns(found), height=2.3, share_x=True, legend=legend)


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
        draw=_coverage(run, found, data),
        data=data,
    )


def _coverage(run: RunData, found: list[Predicted], data: list[dict[str, Any]]) -> Chart:
    shown = []
    for panel in run.arm_styles.panels:
        mine = [one for one in found if one.arm in panel.arms]
        if not mine:
            continue
        count = min(len(one.pits) for one in mine)
        low, high = (ends / count for ends in stats.binom.interval(0.95, count, np.array(LEVELS)))
        marks: list[Mark] = [Line(x=LEVELS, y=LEVELS, style={"color": MUTED, "linewidth": 0}, band=(low, high))]
        for one in mine:
            shares, style = [row["covered"] for row in data if row["arm"] == one.arm.name], run.arm_styles[one.arm]
            marks.append(Line(x=LEVELS, y=shares, style=style.style(size=3.5), label=style.label))
        marks.append(Line(x=[0, 1], y=[0, 1], style=DASHED))
        x, y = (Axis(label=text, low=0, high=1) for text in ("Nominal probability", "Share of targets inside"))
        shown.append(Panel(marks=marks, x=x, y=y, title=panel.title))
    legend = [("calibrated", DASHED)]
    return Chart(panels=shown, columns=len(shown), height=2.9, share_y=True, legend=legend, legend_columns=2)
