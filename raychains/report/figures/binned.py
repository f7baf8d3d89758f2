"""The bins that reliability figures are drawn from: those of the measure `calibration`, else those of the run's rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from raychains.analyses.calibration import NEEDED, diagram_rows
from raychains.evaluation.base import BINS, Array
from raychains.evaluation.calibration import Reliability, wilson
from raychains.planning import Arm
from raychains.report import results
from raychains.report.material import Material

TEXTS = ("arm", "binning")
NUMBERS = ("group", "bin", "bins", "lower", "upper", "count", "confidence", "accuracy")


@dataclass(frozen=True)
class Diagram:
    """One arm's diagram, all repeats together."""

    arm: Arm
    bins: int
    bin: Array
    """Numbers of the bins that hold anything, [filled]; all others are [filled] too."""
    lower: Array
    upper: Array
    count: Array
    confidence: Array
    accuracy: Array
    low: Array
    """Wilson's 95 % interval of the accuracy, for as many predictions as one repeat has: repeats share their inputs."""
    high: Array

    @property
    def error(self) -> float:
        """Σ n_b/n·|accuracy_b − confidence_b|."""
        return float((self.count * np.abs(self.accuracy - self.confidence)).sum() / self.count.sum())

    def rows(self) -> list[dict[str, Any]]:
        """The plotted numbers."""
        names = ("bin", "lower", "upper", "count", "confidence", "accuracy", "low", "high")
        return [
            {"arm": self.arm.name, "bins": self.bins, **{name: getattr(self, name)[i].item() for name in names}}
            for i in range(len(self.bin))
        ]


def diagrams(material: Material, binning: str) -> list[Diagram]:
    """Every arm's diagram with bins of ``binning``: ``width`` or ``mass``. Empty unless the run's rows are predictions."""
    table = results.read_rows(material.store, "reliability", texts=TEXTS, numbers=NUMBERS)
    if table is None:
        table = _of_rows(material)
    if table is None:
        return []
    table = table[table["binning"] == binning]
    return [
        _pooled(arm, table[table["arm"] == arm.name])
        for arm in material.comparison.arms
        if arm.name in set(table["arm"])
    ]


def _of_rows(material: Material) -> pd.DataFrame | None:
    rows = material.rows
    if rows is None or not {*NEEDED, "arm", "group"} <= set(rows.column_names):
        return None
    found: list[dict[str, Any]] = []
    for arm in material.comparison.arms:
        mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
        for group in sorted(pc.unique(mine["group"]).to_pylist()):
            one = mine.filter(pc.equal(mine["group"], group))
            columns = {name: one[name].to_numpy() for name in NEEDED}
            found += [{"arm": arm.name, "group": group, **row} for row in diagram_rows(columns, BINS)]
    return pd.DataFrame(found) if found else None


def _pooled(arm: Arm, rows: pd.DataFrame) -> Diagram:
    repeats = rows["group"].nunique()
    weighted = rows.assign(**{name: rows[name] * rows["count"] for name in ("confidence", "accuracy")})
    by = weighted.groupby("bin").agg(
        {"lower": "min", "upper": "max", "count": "sum", "confidence": "sum", "accuracy": "sum"}
    )
    count = by["count"].to_numpy()
    columns = {name: by[name].to_numpy() for name in ("lower", "upper")}
    columns |= {name: by[name].to_numpy() / count for name in ("confidence", "accuracy")}
    whole = Reliability(count=count, standard_error=np.full(len(count), np.nan), **columns)
    low, high = wilson(dataclasses.replace(whole, count=np.maximum(count / repeats, 1)))
    return Diagram(
        arm=arm, bins=int(rows["bins"].max()), bin=by.index.to_numpy(), count=count, low=low, high=high, **columns
    )
