"""A sweep as its page draws it: what was swept, one summary per point, what was reported after every cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from raychains.evaluation.base import Metric
from raychains.report.material import built_in_metrics
from raychains.store import SweepStore

FINISHED, STOPPED, FAILED, WAITING = "finished", "stopped", "failed", "waiting"
STATUSES = (FINISHED, STOPPED, FAILED, WAITING)
"""What became of a point, the better end first: ``stopped`` is by the scheduler."""
DESCRIBES = (
    "point", "sampler", "repeat", "digest", "cycle", "cycles", "epoch", "epochs", "step", "steps", "gradients", "samples",
    "status", "reason", "seconds",
)  # fmt: skip
"""Columns of the tables beside metrics and swept options; a swept one among them is a swept one."""
LABELS = {
    "exploration": "β, share of exploration", "cycles": "M, cycles", "lr": "Step size lr", "temperature": "Temperature T",
    "weight_decay": "Weight decay λ", "momentum": "Momentum m", "sampler": "Sampler", "schedule": "Schedule",
    "batch_size": "Batch size", "samples_per_cycle": "Samples per cycle", "thinning": "Steps between samples",
    "burn_in": "Burn-in",
}  # fmt: skip
SHORT = {"exploration": "β", "cycles": "M", "temperature": "T", "weight_decay": "λ", "momentum": "m"}


@dataclass(frozen=True)
class Option:
    """One swept option."""

    name: str
    values: tuple[Any, ...]
    """The distinct ones that were tried: numbers ascending, others in the plan's order."""

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(_is_number(v) for v in self.values)

    @property
    def label(self) -> str:
        """For an axis."""
        return LABELS.get(self.name, self.name)

    @property
    def short(self) -> str:
        """Within a sentence: ``β``, ``M``, ``lr``."""
        return SHORT.get(self.name, self.name)


@dataclass(frozen=True)
class Point:
    """One setting of the swept options, over its repeats."""

    number: int
    values: Mapping[str, Any]
    status: Literal["finished", "stopped", "failed", "waiting"]
    """``finished`` where all repeats are; otherwise the worst that became of one."""
    repeats: int
    counted: int
    """Repeats that its means are over: the finished ones; where there are none, those that were stopped."""
    counts: Mapping[str, int]
    """Repeats by status."""
    mean: Mapping[str, float]
    """By metric; nan where nothing was reported."""
    error: Mapping[str, float]
    """Standard errors over the repeats; nan below two."""
    epoch: float
    """Epochs after which the first of its counted repeats ended; 0 where nothing was reported."""
    gradients: float
    """Gradient evaluations spent by all its repeats."""
    seconds: float
    reasons: tuple[str, ...]
    """Why repeats stopped or failed."""

    @property
    def complete(self) -> bool:
        """Whether its value is one of whole chains."""
        return self.counts.get(FINISHED, 0) > 0


class Sweep:
    """The points of a sweep's results.

    Args:
        results: rows of results.parquet.
        reports: rows of reports.parquet.
        plan: the sweep's plan, empty where it is not known.
        best: its best.json.
    """

    def __init__(
        self,
        results: pd.DataFrame,
        reports: pd.DataFrame | None = None,
        plan: Mapping[str, Any] | None = None,
        best: Mapping[str, Any] | None = None,
    ) -> None:
        self.results, self.reports = results, reports if reports is not None else pd.DataFrame()
        self.plan, self._best = plan if plan is not None else {}, best

    @staticmethod
    def of(folder: SweepStore) -> Sweep:
        """What the folder holds; without tables a sweep without points.

        Raises:
            UserError: a damaged file.
        """
        return Sweep(_read(folder, "results"), _read(folder, "reports"), folder.plan(), folder.best())

    @property
    def split(self) -> str:
        """What points were judged on."""
        return str(self.plan.get("split", "val"))

    @cached_property
    def metric(self) -> Metric:
        """What decided."""
        name = self.plan.get("metric")
        if not isinstance(name, str):
            there = [m.name for m in self._known if m.name in self.results.columns]
            name = "nll" if "nll" in there or not there else there[0]
        return self.named(name)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The deciding one, then the others that were reported and are no minor ones."""
        others = [
            m for m in self._known if not m.minor and m.name in self.results.columns and m.name != self.metric.name
        ]
        return self.metric, *others

    def named(self, name: str) -> Metric:
        """How a metric is called and read; of an unknown one less is better."""
        found = next((m for m in self._known if m.name == name), None)
        if found is not None:
            return found
        better = self.plan.get("better")
        return Metric(name=name, label=name, better="higher" if better == "higher" else "lower", digits=4)

    @cached_property
    def _known(self) -> tuple[Metric, ...]:
        return built_in_metrics(self.results.columns)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The swept ones, β and M first."""
        planned = self.plan.get("swept")
        if isinstance(planned, Mapping):
            names = [str(n) for n in planned]
        else:
            metrics = {m.name for m in self._known}
            varied = [c for c in ("cycles", "sampler") if c in self.results and self.results[c].nunique() > 1]
            names = [c for c in self.results.columns if (c not in DESCRIBES and c not in metrics) or c in varied]
        names.sort(key=lambda n: ("exploration", "cycles").index(n) if n in ("exploration", "cycles") else 2)
        return tuple(Option(n, self._values(n)) for n in names if n in self.results.columns)

    def _values(self, name: str) -> tuple[Any, ...]:
        found = list(dict.fromkeys(plain(v) for v in self.results[name]))
        found = [v for v in found if v is not None]
        if all(map(_is_number, found)):
            return tuple(sorted(found))
        planned = self.plan.get("swept", {})
        order = planned.get(name) if isinstance(planned, Mapping) else None
        listed = [str(v) for v in order] if isinstance(order, list) else []
        return tuple(sorted(found, key=lambda v: listed.index(str(v)) if str(v) in listed else len(listed)))

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """In the order in which they were planned or drawn."""
        if not len(self.results):
            return ()
        return tuple(self._point(int(n), rows) for n, rows in self.results.groupby("point", sort=True))

    def _point(self, number: int, rows: pd.DataFrame) -> Point:
        counts = {s: int((rows["status"] == s).sum()) for s in STATUSES}
        status = next(
            (s for s in (FAILED, STOPPED) if counts[s]), FINISHED if counts[FINISHED] == len(rows) else WAITING
        )
        counted = next((rows[rows["status"] == s] for s in (FINISHED, STOPPED) if counts[s]), rows[:0])
        values = {m.name: _numbers(counted, m.name) for m in self.metrics}
        n = len(counted)
        reasons = [str(r) for r in rows.get("reason", []) if isinstance(r, str) and r]
        done = _numbers(counted, "epoch")
        return Point(
            number=number,
            values={o.name: next((v for v in map(plain, rows[o.name]) if v is not None), None) for o in self.options},
            status=status,  # type: ignore[arg-type]
            repeats=len(rows),
            counted=n,
            counts=counts,
            mean={k: float(v.mean()) if n and np.isfinite(v).all() else math.nan for k, v in values.items()},
            error={k: float(v.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan for k, v in values.items()},
            epoch=float(np.nanmin(done)) if np.isfinite(done).any() else 0.0,
            gradients=float(np.nansum(_numbers(rows, "gradients"))),
            seconds=float(np.nansum(_numbers(rows, "seconds"))),
            reasons=tuple(dict.fromkeys(reasons)),
        )

    @cached_property
    def ranked(self) -> tuple[Point, ...]:
        """The best first: of whole chains in all repeats, then in some, then what was cut short; last what has no value."""
        return tuple(
            sorted(self.points, key=lambda p: (p.status != FINISHED, not p.complete, self.badness(p), p.number))
        )

    def badness(self, point: Point) -> float:
        """The metric, turned so that less is better; infinite without a value."""
        value = point.mean[self.metric.name]
        if not math.isfinite(value):
            return math.inf
        return -value if self.metric.better == "higher" else value

    @cached_property
    def best(self) -> Point | None:
        """The point of best.json where it is one of these, else the first of the ranking; None without any value."""
        if self._best is not None:
            for point in (p for p in self.ranked if math.isfinite(self.badness(p))):
                told = {name: _told(self._best, name) for name in point.values}
                if point.values and all(_same(told[name], value) for name, value in point.values.items()):
                    return point
        first = next(iter(self.ranked), None)
        return first if first is not None and math.isfinite(self.badness(first)) else None

    def count(self, status: str) -> int:
        """Points of a status."""
        return sum(1 for p in self.points if p.status == status)

    @cached_property
    def length(self) -> float:
        """Epochs of every chain: the plan's, or those that the longest came to."""
        planned = self.plan.get("length")
        if isinstance(planned, int | float) and not isinstance(planned, bool):
            return float(planned)
        return float(np.nanmax([0.0, *_numbers(self.results, "epoch")]))

    def after(self, point: Point) -> str:
        """``after 6 of 80 epochs``."""
        return f"after {point.epoch:g} of {self.length:g} {self.plan.get('unit', 'epochs')}"

    @property
    def spent(self) -> float:
        """Gradient evaluations of all chains; one that several points come to counts once."""
        rows = self.results
        return float(
            np.nansum(_numbers(rows.drop_duplicates("digest") if "digest" in rows.columns else rows, "gradients"))
        )

    @property
    def repeated(self) -> bool:
        """Whether any point has standard errors."""
        return any(p.counted > 1 for p in self.points)


def plain(value: Any) -> Any:
    """A value of a table as Python's own; None for null."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is pd.NA:
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def shown(value: Any) -> str:
    """A swept value for people: four digits of a broken number."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def said(point: Point, options: Sequence[Option]) -> str:
    """``β = 0.5, M = 4``."""
    return ", ".join(f"{o.short} = {shown(point.values[o.name])}" for o in options)


def _told(best: Mapping[str, Any], name: str) -> Any:
    """What best.json says of an option; a further setting stands as NAME=VALUE in a list."""
    if name in best:
        return best[name]
    for listed in ("sampler_settings", "schedule_settings", "task_settings"):
        for text in best.get(listed) or ():
            key, _, value = str(text).partition("=")
            if key == name.rpartition(".")[2]:
                return value
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(told: Any, value: Any) -> bool:
    if _is_number(value):
        try:
            return math.isclose(float(told), float(value), rel_tol=1e-12)
        except (TypeError, ValueError):
            return False
    return told is value or str(told) == str(value)


def _numbers(rows: pd.DataFrame, name: str) -> np.ndarray[Any, Any]:
    if name not in rows.columns:
        return np.full(len(rows), np.nan)
    return pd.to_numeric(rows[name], errors="coerce").to_numpy(dtype=float)


def _read(folder: SweepStore, name: str) -> pd.DataFrame:
    """A table of the folder; empty where there is none.

    Raises:
        UserError: the file is damaged, or lacks a column.
    """
    table = folder.table(name)
    if table is None or not table.num_rows:
        return pd.DataFrame()
    try:
        found = table.replace_schema_metadata(None).to_pandas()
    except (pa.ArrowException, ValueError, KeyError, TypeError):
        raise folder.damaged(name) from None
    needed = {"point", "repeat"} | ({"status"} if name == "results" else {"cycle", "gradients"})
    if not needed <= set(found.columns) or found["point"].dtype.kind not in "iu":
        raise folder.damaged(name)
    return found
