"""The comparison table: a row per arm with cost, means ± standard errors, the best bold, published values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report import reference
from raychains.report.material import Material

DASH = "–"


@dataclass(frozen=True)
class Cell:
    """One value as shown."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One arm."""

    arm: Arm
    cells: list[Cell]
    new_sampler: bool
    """Whether the arm is the first of another sampler: a line is drawn above it."""


@dataclass(frozen=True)
class Table:
    """The comparison as shown."""

    columns: list[str]
    rows: list[Row]
    caption: list[str]
    missing: list[str]
    """Sentences about arms without results."""


def minor(material: Material) -> Table | None:
    """The table of the measures that the comparison's table leaves out; None where there are none."""
    summary, found = material.summary, material.minor
    if not found:
        return None
    bold = {metric.name: best(summary, metric) for metric in found}
    rows = [
        Row(arm, [Cell(value(summary, arm, m), arm.name in bold[m.name]) for m in found], _begins(material, i))
        for i, arm in enumerate(material.comparison.arms)
    ]
    return Table([head(m) for m in found], rows, [], [])


def head(metric: Metric) -> str:
    """A column's head: the metric with its unit, and an arrow to its better end if it has one."""
    arrow = {"lower": " ↓", "higher": " ↑"}.get(metric.better, "")
    return f"{metric.label}{arrow}"


def _begins(material: Material, i: int) -> bool:
    """Whether the arm is the first of another sampler."""
    arms = material.comparison.arms
    return i > 0 and arms[i].sampler != arms[i - 1].sampler


def build(material: Material) -> Table:
    """The table of all arms; those without results show dashes."""
    summary, comparison = material.summary, material.comparison
    theory = "modes" if reference.is_mixture(comparison) else None
    published = {name for arm in comparison.arms for name in arm.published}
    columns = [
        f"{comparison.unit.capitalize()} per\u00a0chain /\u00a0total",
        "Repeats",
        "Draws" if material.by_blocks else "Samples",
        "Chain seconds",
    ]
    bold: dict[str, set[str]] = {}
    for metric in material.metrics:
        bold[metric.name] = best(summary, metric)
        columns.append(head(metric))
        columns += ["Published"] * (metric.name in published) + ["Exact theory"] * (metric.name == theory)
    rows = []
    for i, arm in enumerate(comparison.arms):
        cells = [Cell(text) for text in _cost(material, arm)]
        for metric in material.metrics:
            cells.append(Cell(value(summary, arm, metric), arm.name in bold[metric.name]))
            if metric.name in published:
                cells.append(Cell(arm.published.get(metric.name, DASH)))
            if metric.name == theory:
                expected = reference.expected_modes(arm)
                cells.append(Cell(DASH if expected is None else f"{expected:.2f}"))
        rows.append(Row(arm, cells, _begins(material, i)))
    return Table(columns, rows, _caption(material, bold), _missing(material))


def value(summary: pd.DataFrame, arm: Arm, metric: Metric) -> str:
    """``3.93 ± 0.08``; the mean alone with one repeat, a dash without results."""
    row = summary.loc[arm.name]
    return shown(float(row[metric.name]), float(row[f"{metric.name}_se"]), metric)


def shown(mean: float, error: float, metric: Metric) -> str:
    """A mean and its standard error (nan where it is unknown) with the metric's scale and digits."""
    if not math.isfinite(mean):
        return DASH
    text = f"{mean * metric.scale:.{metric.digits}f}"
    return f"{text} ± {error * metric.scale:.{metric.digits}f}" if math.isfinite(error) else text


def best(summary: pd.DataFrame, metric: Metric) -> set[str]:
    """The arms of the best mean and of every mean within one combined standard error of it.

    None among fewer than two arms, and where no end of the metric is the better one.
    The combined error of two arms is √(se₁² + se₂²); an unknown one (a single repeat) counts as 0.
    """
    have = summary[summary[metric.name].notna()]
    if len(have) < 2 or metric.better == "neither":
        return set()
    means, errors = have[metric.name], have[f"{metric.name}_se"].fillna(0.0)
    first = means.idxmin() if metric.better == "lower" else means.idxmax()
    allowed = (errors**2 + errors[first] ** 2) ** 0.5
    return set(have.index[(means - means[first]).abs() <= allowed])


def _cost(material: Material, arm: Arm) -> list[str]:
    row = material.summary.loc[arm.name]
    done = int(row["repeats"])
    total = arm.length * len(arm.chains[0])
    repeats = str(done) if done == arm.repeats else f"{done} of {arm.repeats}"
    drawn = material.draws(arm) if material.by_blocks and done else int(row["samples"])
    seconds = float(row["chain_seconds"])
    return [
        f"{arm.length:,} / {total:,}",
        repeats,
        f"{drawn:,}" if done else DASH,
        f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if math.isfinite(seconds) else DASH,
    ]


def _caption(material: Material, bold: dict[str, set[str]]) -> list[str]:
    what = "draws" if material.by_blocks else "samples"
    several = bool((material.summary["repeats"] > 1).any())
    spread = "Mean ± standard error over the repeats" if several else "A single repeat: no standard errors"
    out = [
        f"{spread}; {what} and chain seconds are those of one repeat, of all its chains together. "
        f"Evaluated on the split “{material.comparison.split}”."
    ]
    if any(bold.values()) and several:
        out.append(
            "Bold: the best mean, and every mean within one combined standard error of it (√(se₁² + se₂²)): "
            "the repeats do not tell these apart."
        )
    elif any(bold.values()):
        out.append("Bold: the best value; without repeats nothing says how far it is due to chance.")
    return out + reference.notes(material.comparison)


def _missing(material: Material) -> list[str]:
    out = []
    for arm in material.comparison.arms:
        done = int(material.summary.loc[arm.name, "repeats"])
        if done < arm.repeats:
            digests = [spec.digest for group in arm.chains for spec in group]
            finished = sum(1 for d in digests if d in material.finished)
            missing = "No result" if not done else f"{done} of {arm.repeats} repeats"
            out.append(f"{arm.label}: {missing.lower()} yet; {finished} of its {len(digests)} chains are finished.")
    return out + _without_chains(material)


def _without_chains(material: Material) -> list[str]:
    """Repeats that were formed from fewer chains than their arm has."""
    out = []
    for arm in material.comparison.arms:
        mine, n = material.of(material.results, arm), len(arm.chains[0])
        if "chains" in mine and (fewer := mine.loc[mine["chains"] < n, "chains"]).size:
            counts = ", ".join(str(c) for c in sorted(set(fewer)))
            repeats = f"{fewer.size} of {arm.repeats} repeats" if arm.repeats > 1 else "the one repeat"
            out.append(
                f"{arm.label}: {repeats} formed from only {counts} of {n} chains; the others diverged and were dropped."
            )
    return out
