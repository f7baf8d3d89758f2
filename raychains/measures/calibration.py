"""Calibration in bins: reliability diagrams of equal width and of equal mass, and the parts of the Brier score."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from raychains.evaluation import metrics
from raychains.evaluation.calibration_error import equal_mass, equal_width, gaps, mass_bins, top_class
from raychains.evaluation.evaluation import BINS, Array, Rows
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, not_labelled
from raychains.planning import Arm
from raychains.planning.views import Request
from raychains.plotting import charts
from raychains.plotting.charts import DASHED, SHADE, Axis, Bars, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import INK, Drawing

NEEDED = ("confidence", "prediction", "label")
EQUAL_WIDTH, EQUAL_MASS = "width", "mass"
SUREST = 1e-5
"""Confidences are shown up to 1 − SUREST: beyond it they round to 1."""
TICKS = (0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997, 0.999, 0.9999)
HATCHED: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "hatch": "/////", "linewidth": 0.6}
"""The look of the gap between accuracy and confidence."""
HALVES = {0.0: "0", 0.5: "0.5", 1.0: "1"}
FEW = 10
"""Bins with fewer predictions are drawn pale: their accuracy is mostly chance."""


def tables(context: Context) -> Tables:
    """``reliability``, the bins of every diagram, and ``calibration``, the numbers read off them.

    reliability: arm, group, repeat, binning (``width`` or ``mass``), bin (from 0), bins, lower, upper (edges, or
    smallest
        and largest confidence), count, confidence, accuracy, low, high (Wilson's 95 % interval of the accuracy).
    calibration: arm, group, repeat, bins, ece, ece_mass, mce (the largest gap of a bin of equal width), and the Brier
        score of the top class with its parts: brier_top and the fields of `BrierParts`.
    """
    bins = int(context.settings.get("bins", BINS))
    results = context.evaluate(context.split, [Request(arm=arm, group=group) for arm, group in context.groups])
    diagrams: list[Row] = []
    numbers: list[Row] = []
    for (arm, group), result in zip(context.groups, results, strict=True):
        key, rows = context.key(arm, group), of_labels(result.rows)
        diagrams += [{**key, **row} for row in diagram_rows(rows, bins)]
        measured = {"ece": metrics.ece, "ece_mass": metrics.ece_mass, "mce": maximum_error}
        errors = {name: error(rows, bins) for name, error in measured.items()}
        parts = brier_parts(rows, bins)
        numbers.append({**key, "bins": bins, **errors, "brier_top": parts.score, **dataclasses.asdict(parts)})
    return {"reliability": diagrams, "calibration": numbers}


def of_labels(rows: Rows) -> Rows:
    """Return a classifier's rows as they are, and those of a likelihood of labels of 0 and 1 with each label that is
    known as an example of its own, of two classes."""
    if "label_error" not in rows:
        return rows
    label, p = (np.asarray(rows[name], dtype=float).reshape(-1) for name in ("target", "mean"))
    label, p = label[~np.isnan(label)], p[~np.isnan(label)]
    return {"confidence": np.maximum(p, 1 - p), "prediction": (p > 0.5).astype(int), "label": label.astype(int)}


def why_not(context: Context) -> str | None:
    """Return the reason where there is neither confidence nor correctness on the run's split."""
    labels = getattr(getattr(context.task, "likelihood", None), "labels", False)
    return None if labels else not_labelled(context)


def diagram_rows(rows: Rows, bins: int) -> list[Row]:
    """Return the bins of a predictive's two diagrams, as in the table ``reliability``; empty bins are left out.

    Raises:
        UserError: no rows, or a confidence that is none.
    """
    found = []
    for binning, diagram in ((EQUAL_WIDTH, equal_width(rows, bins)), (EQUAL_MASS, equal_mass(rows, bins))):
        low, high = wilson(diagram.accuracy, diagram.count)
        columns = {name: getattr(diagram, name) for name in ("lower", "upper", "count", "confidence", "accuracy")}
        columns |= {"low": low, "high": high}
        for b in np.flatnonzero(diagram.count).tolist():
            numbers = {name: values[b].item() for name, values in columns.items()}
            found.append({"binning": binning, "bin": b, "bins": bins, **numbers})
    return found


def wilson(accuracy: Array, count: Array) -> tuple[Array, Array]:
    """Return Wilson's 95 % interval of each bin's accuracy (lower, upper), each [bins] as they are; nan in an empty
    bin.

    (a + z²/2n ± z√(a(1 − a)/n + z²/4n²))/(1 + z²/n): unlike the binomial standard error it does not vanish where all of
    a bin are right. Source: Wilson 1927.
    """
    z2 = NormalDist().inv_cdf(0.975) ** 2
    a, n = accuracy, np.where(count > 0, count, np.nan)
    middle, half = a + z2 / (2 * n), np.sqrt(z2 * (a * (1 - a) / n + z2 / (4 * n**2)))
    return np.maximum((middle - half) / (1 + z2 / n), 0.0), np.minimum((middle + half) / (1 + z2 / n), 1.0)


def maximum_error(rows: Rows, bins: int) -> float:
    """Return the maximum calibration error: the largest |accuracy − confidence| of a bin of equal width, in [0, 1].

    Source: Naeini et al. 2015. One bin of few examples decides it: read it beside the diagram's counts.
    """
    return float(gaps(equal_width(rows, bins)).max())


@dataclass(frozen=True, kw_only=True)
class BrierParts:
    """The parts of the mean of (confidence − right)² when confidences are put into bins, in units of probability².

    reliability − resolution + uncertainty is Murphy's (1973) decomposition, exact where all confidences in a bin are
    the same; the two terms within bins (Stephenson, Coelho & Jolliffe 2008) make it exact always.
    """

    reliability: float
    """Σ n_b/n·(confidence_b − accuracy_b)²; 0 is calibrated."""
    resolution: float
    """Σ n_b/n·(accuracy_b − accuracy)²; more of it is better."""
    uncertainty: float
    """accuracy·(1 − accuracy): the score of a constant, calibrated confidence."""
    within_variance: float
    """Mean squared distance of the confidences from their bin's mean."""
    within_covariance: float
    """Twice the mean product of that distance and of right's from its bin's accuracy."""

    @property
    def score(self) -> float:
        """The Brier score of the top class, (1/n) Σ (confidence − right)². The metric ``brier`` is that of all
        classes."""
        calibrated = self.uncertainty - self.resolution
        return calibrated + self.reliability + self.within_variance - self.within_covariance


def brier_parts(rows: Rows, bins: int) -> BrierParts:
    """Return `BrierParts` over bins of equal mass. Args and errors: as `equal_mass`."""
    diagram = equal_mass(rows, bins)
    confidence, right = top_class(rows)
    which = mass_bins(confidence, bins)
    share, accuracy = diagram.count / len(right), float(right.mean())
    away = confidence - diagram.confidence[which]
    return BrierParts(
        reliability=float((share * gaps(diagram) ** 2).sum()),
        resolution=float((share * np.nan_to_num(diagram.accuracy - accuracy) ** 2).sum()),
        uncertainty=accuracy * (1 - accuracy),
        within_variance=float(np.mean(away**2)),
        within_covariance=float(2 * np.mean(away * (right - diagram.accuracy[which]))),
    )


# Figures


@dataclass(frozen=True)
class Diagram:
    """One arm's diagram, all repeats together."""

    arm: Arm
    bins: int
    table: pd.DataFrame
    """A row per bin that is not empty: arm, bins, bin, lower, upper, count, confidence, accuracy; low and high,
    Wilson's 95 % interval for as many predictions as one repeat has: repeats share their inputs."""

    @property
    def error(self) -> float:
        """Σ n_b/n·|accuracy_b − confidence_b|."""
        count, confidence, accuracy = (self.table[c].to_numpy() for c in ("count", "confidence", "accuracy"))
        return float((count * np.abs(accuracy - confidence)).sum() / count.sum())


def diagrams(run: RunData, binning: str) -> list[Diagram]:
    """Return every arm's diagram with bins of ``binning``; none unless the run's rows are predictions.

    The bins are those of the measure's table, or else `BINS` of the run's rows.
    """
    numbers = "group bin bins lower upper count confidence accuracy"
    table = panels.table(run, "reliability", "arm binning", numbers)
    if table is None:
        table = _of_rows(run)
    if table is None:
        return []
    table = table[table["binning"] == binning]
    return [_pooled(arm, table[table["arm"] == arm.name]) for arm in panels.present(run, table)]


def _of_rows(run: RunData) -> pd.DataFrame | None:
    rows = run.rows
    if rows is None or not {*NEEDED, "arm", "group"} <= set(rows.column_names):
        return None
    found: list[Row] = []
    for arm in run.comparison.arms:
        mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
        for group in sorted(pc.unique(mine["group"]).to_pylist()):
            one = mine.filter(pc.equal(mine["group"], group))
            columns = {name: one[name].to_numpy() for name in NEEDED}
            found += [
                {"arm": arm.name, "group": group, **row} for row in diagram_rows(columns, run.plan.get("bins", BINS))
            ]
    return pd.DataFrame(found) if found else None


def _pooled(arm: Arm, rows: pd.DataFrame) -> Diagram:
    repeats = rows["group"].nunique()
    means = ("confidence", "accuracy")
    weighted = rows.assign(**{name: rows[name] * rows["count"] for name in means})
    by = weighted.groupby("bin").agg({"lower": "min", "upper": "max", "count": "sum", **dict.fromkeys(means, "sum")})
    columns = {"bin": by.index.to_numpy(), **{name: by[name].to_numpy() for name in by}}
    columns |= {name: columns[name] / columns["count"] for name in means}
    low, high = wilson(columns["accuracy"], np.maximum(columns["count"] / repeats, 1))
    bins = int(rows["bins"].max())
    return Diagram(arm, bins, pd.DataFrame({"arm": arm.name, "bins": bins, **columns, "low": low, "high": high}))


def reliability(run: RunData) -> Drawing | None:
    """Draw accuracy against confidence in bins of equal width; None unless the run's rows are predictions."""
    found = diagrams(run, EQUAL_WIDTH)
    if not found:
        return None
    together = ", all repeats together" if run.repeated else ""
    return Drawing(
        name="reliability",
        title="Reliability",
        caption=(
            f"Accuracy of the predictions in {found[0].bins} equal-width bins of confidence{together}; upright "
            "lines are Wilson's 95 % intervals over as many predictions as one repeat has. Hatched: the gap between "
            "accuracy and mean confidence, above the bar where the predictive is over-confident. Bins with fewer than "
            f"{FEW} predictions are pale. Below: predictions per bin (logarithmic)."
        ),
        alt="Accuracy against confidence for every arm, with the diagonal of perfect calibration",
        draw=_reliability(run, found),
        data=[row for diagram in found for row in diagram.table.to_dict("records")],
    )


def _reliability(run: RunData, found: list[Diagram]) -> Chart:
    columns = min(panels.COLUMNS, max(len(found), 2))
    most = max(diagram.table["count"].max() for diagram in found)
    decades = {10.0**k: f"{10**k:,}" for k in range(0, int(np.log10(most)) + 1, 2)}
    x = Axis(low=0, high=1, ticks=HALVES)
    accuracy, counts = Axis(low=0, high=1, ticks=HALVES), Axis(scale="log", low=0.8, high=most * 2, ticks=decades)
    tops, bottoms = list[charts.Panel | None](), list[charts.Panel | None]()
    for i, diagram in enumerate(found):
        table, width, colour = diagram.table, 1 / diagram.bins, {"color": run.arm_styles[diagram.arm].colour}
        few, middle = table["count"] < FEW, (table["bin"] + 0.5) / diagram.bins
        title = diagram.arm.label
        if "ece" in run.summary.columns:
            title += f"\nECE {100 * run.summary.loc[diagram.arm.name, 'ece']:.1f} %"
        marks: list[Mark] = []
        for some, pale in ((~few, 1.0), (few, 0.35)):
            at, rows = middle[some], table[some]
            gap, ends = rows["confidence"] - rows["accuracy"], (rows["low"], rows["high"])
            bar = {**colour, "alpha": 0.6 * pale}
            interval = {"color": INK, "alpha": pale, "zorder": 4}
            marks += [
                Bars(x=at, height=rows["accuracy"], width=0.88 * width, style=bar),
                Bars(x=at, height=gap, bottom=rows["accuracy"], width=0.88 * width, style={**HATCHED, "alpha": pale}),
                Line(x=at, y=rows["accuracy"], style={"linestyle": ""}, upright=ends, bars=interval),
            ]
        marks.append(Line(x=[0, 1], y=[0, 1], style=DASHED))
        y = replace(accuracy, label="" if i % columns else "Accuracy")
        tops.append(charts.Panel(marks=marks, x=x, y=y, title=title))
        held = Bars(x=middle, height=table["count"], width=0.88 * width, style=colour)
        y = replace(counts, label="" if i % columns else "Count")
        bottoms.append(charts.Panel(marks=[held], x=replace(x, label="Confidence"), y=y))
    spare: list[charts.Panel | None] = [None] * (-len(found) % columns)
    rows_of = [
        (*tops, *spare)[i : i + columns] + (*bottoms, *spare)[i : i + columns] for i in range(0, len(found), columns)
    ]
    legend = [
        ("accuracy", {**SHADE, "alpha": 0.6}),
        ("its 95 % interval", {"color": INK, "linewidth": 1.2}),
        ("gap to mean confidence", HATCHED),
        ("perfect calibration", DASHED),
    ]
    return Chart(
        panels=[panel for row in rows_of for panel in row],
        columns=columns,
        height=1.45,
        heights=[3.4, 1] * len(rows_of),
        legend=legend,
        legend_columns=4,
    )


def calibration(run: RunData) -> Drawing | None:
    """Draw by how much accuracy misses confidence in bins of equal mass; None unless the run's rows are predictions."""
    found = diagrams(run, EQUAL_MASS)
    if not found:
        return None
    errors = "; ".join(f"{d.arm.label}: {100 * d.error:.1f} %" for d in found)
    together = ", all repeats together" if run.repeated else ""
    return Drawing(
        name="calibration",
        title="Calibration in bins of equal mass",
        caption=(
            f"Accuracy minus mean confidence in {found[0].bins} bins of equally many predictions{together}: "
            "above 0 the predictive is under-confident, below it over-confident. Upright lines are Wilson's 95 % "
            "intervals over as many predictions as one repeat has. Confidence is shown on the scale of its log odds. "
            f"Expected calibration errors over these bins: {errors}."
        ),
        alt="Accuracy minus confidence against confidence for every arm, with the line of perfect calibration",
        draw=_gaps(run, found),
        data=[row for diagram in found for row in diagram.table.to_dict("records")],
    )


def _gaps(run: RunData, found: list[Diagram]) -> Chart:
    by_arm = {diagram.arm.name: diagram for diagram in found}
    lowest = max(min(d.table["confidence"].min() for d in found), SUREST)
    highest = min(max(d.table["confidence"].max() for d in found), 1 - SUREST)
    edge = 0.05 * max(_odds(highest) - _odds(lowest), 1.0)
    low, high = _odds(lowest) - edge, _odds(highest) + edge
    begin, end = (1 / (1 + np.exp(-v)) for v in (low, high))
    x = Axis(label="Confidence", scale="logit", low=begin, high=end, ticks={p: f"{p:g}" for p in _ticks(low, high)})
    shown = []
    for panel in run.arm_styles.panels:
        marks: list[Mark] = []
        for diagram in (by_arm[arm.name] for arm in panel.arms if arm.name in by_arm):
            style = run.arm_styles[diagram.arm]
            of = {name: diagram.table[name].to_numpy() for name in ("confidence", "accuracy", "low", "high")}
            gap, *ends = (100 * (of[name] - of["confidence"]) for name in ("accuracy", "low", "high"))
            at, look = np.clip(of["confidence"], SUREST, 1 - SUREST), style.style(size=4.5)
            marks.append(
                Line(x=at, y=gap, style=look, label=style.label, upright=(ends[0], ends[1]), bars={"linewidth": 1})
            )
        if marks:
            y = Axis(label="Accuracy − confidence (%)")
            shown.append(Panel(marks=[*marks, Rule(at=0)], x=x, y=y, title=panel.title))
    legend = [("perfect calibration", DASHED)]
    return Chart(panels=shown, columns=len(shown), height=2.9, share_y=True, legend=legend, legend_columns=2)


def _odds(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _ticks(low: float, high: float) -> list[float]:
    """Return those of `TICKS` between two log odds that leave room for their labels."""
    found: list[float] = []
    for tick in TICKS:
        if low <= _odds(tick) <= high and (not found or _odds(tick) - _odds(found[-1]) >= (high - low) / 8):
            found.append(tick)
    return found


MEASURE = Measure(
    name="calibration",
    section="Uncertainty",
    about="reliability in bins of equal width and equal mass",
    tables=tables,
    why_not=why_not,
    figures={"reliability": reliability, "calibration": calibration},
)
