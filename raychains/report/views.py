"""What views.parquet says, arm by arm and kind by kind: for the views' table and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report.material import Material
from raychains.report.table import DASH, head

KINDS = {
    "all": "all samples",
    "first": "first {n} samples",
    "stages": "each stage",
    "cycles": "each cycle",
    "chains": "each chain",
    "variables": "each variable",
    "without-chain": "all but one chain",
    "samples": "single samples",
}
"""What each kind of views is called, from much to little."""
MOST = 3
"""Metrics that are shown; views.parquet has them all."""
FEW = 12
"""Rows up to which the table is open."""


@dataclass(frozen=True)
class Kind:
    """One arm's views of one kind under one weighting."""

    arm: Arm
    label: str
    ensemble: bool
    """Whether it is the one view of all samples, equally weighted."""
    rows: pd.DataFrame

    @property
    def count(self) -> int:
        """Views of one repeat."""
        return int(self.rows["view"].nunique())


@dataclass(frozen=True)
class Table:
    """The views as shown: a row per kind, and for the first of an arm the arm's label."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]
    caption: str
    open: bool


def kinds(material: Material) -> list[Kind]:
    """All that were evaluated, in the order of the arms and of `KINDS`; those of other kinds come last."""
    table = material.views
    found = []
    for arm in material.comparison.arms:
        mine = material.of(table, arm)
        if not len(mine):
            continue
        for kind in [*KINDS, *sorted(set(mine["kind"]) - set(KINDS))]:
            here = mine[mine["kind"] == kind]
            for weighting in sorted(set(here["weighting"]), key=lambda w: (w != "equal", w)):
                rows = here[here["weighting"] == weighting]
                names = sorted(set(rows["view"])) if kind == "first" else [""]
                for name in names:
                    part = rows[rows["view"] == name] if name else rows
                    label = KINDS.get(kind, kind).format(n=name.partition(":")[2])
                    label += f", {weighting} weights" if weighting != "equal" else ""
                    found.append(Kind(arm, label, kind == "all" and weighting == "equal", part))
    return found


def measured(material: Material) -> tuple[Metric, ...]:
    """The first metrics of the comparison's table that views have too."""
    return tuple(m for m in material.metrics if m.name in material.views.columns)[:MOST]


def build(material: Material) -> Table | None:
    """The table of views; None where only the whole arms were evaluated."""
    found, metrics = kinds(material), measured(material)
    if not found or not metrics:
        return None
    rows: list[tuple[str, list[str]]] = []
    last: Arm | None = None
    for kind in found:
        cells = [kind.label, f"{kind.count:,}", _span(kind.rows["samples"])]
        cells += [value(kind, metric) for metric in metrics]
        rows.append((kind.arm.label if kind.arm is not last else "", cells))
        last = kind.arm
    caption = (
        "Mean over the views of a kind and over the repeats, in parentheses the lowest and the highest. An ensemble "
        "that is better than the mean of its parts gains from averaging them; one that leaving a chain out makes better "
        "holds a bad chain. views.parquet has all metrics of every view."
    )
    return Table(["View", "Views", "Samples in each", *map(head, metrics)], rows, caption, len(rows) <= FEW)


def value(kind: Kind, metric: Metric) -> str:
    """``4.31 (3.90 – 5.02)``; the value alone where there is one."""
    values = kind.rows[metric.name].to_numpy(dtype=float) * metric.scale
    values = values[np.isfinite(values)]
    if not len(values):
        return DASH
    low, mean, high = (f"{v:.{metric.digits}f}" for v in (values.min(), values.mean(), values.max()))
    return mean if len(values) == 1 else f"{mean} ({low} – {high})"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
