"""A sweep's results, read from its folder: the swept options, a row per point, the best one, and the reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from raychains.core.errors import UserError
from raychains.core.validation import is_number
from raychains.evaluation.evaluation import Metric
from raychains.inference import results
from raychains.inference.run_data import built_in_metrics, read_metrics
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, WAITING, is_stored, shown
from raychains.store import SweepStore

RANKS = {FINISHED: 0, WAITING: 1, STOPPED: 2, FAILED: 3}
"""States of a chain, the best first. A point is in the worst of its chains' states."""
LABELS = {"exploration": "β, share of exploration", "cycles": "M, cycles", "thinning": "Steps between samples"}
LABELS |= {
    "lr": "Step size lr",
    "temperature": "Temperature T",
    "weight_decay": "Weight decay λ",
    "momentum": "Momentum m",
}
SHORT = {"exploration": "β", "cycles": "M", "temperature": "T", "weight_decay": "λ", "momentum": "m"}
"""Names of options within a sentence."""


def read_plan(folder: SweepStore) -> dict[str, Any]:
    """Return a sweep's plan.

    Raises:
        UserError: there is none, or a damaged one.
    """
    plan = folder.plan()
    if not is_stored(plan):
        raise UserError(f"sweep {folder.name}: plan.json is damaged; repeat it under another `name`")
    return plan


@dataclass(frozen=True)
class Sweep:
    """The points of a sweep, from the tables of its folder and its plan."""

    results: pd.DataFrame
    reports: pd.DataFrame
    plan: Mapping[str, Any]

    @staticmethod
    def of(folder: SweepStore) -> Sweep:
        """Read the folder; without tables the sweep has no points.

        Raises:
            UserError: a damaged file.
        """
        plan = read_plan(folder)
        rows = results.read_rows(folder, "results", texts=["status"], numbers=["point", "repeat"])
        reports = results.read_rows(folder, "reports", numbers=["point", "cycle", "gradients"])
        rows = pd.DataFrame(columns=["point", "sampler", "status", "digest", "gradients"]) if rows is None else rows
        return Sweep(rows, pd.DataFrame() if reports is None else reports, plan)

    @property
    def split(self) -> str:
        """The split that decided between points."""
        return str(self.plan["split"])

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The one that decided between points, then the others that were reported and are no minor ones."""
        name, known = self.plan["metric"], read_metrics(self.plan) or built_in_metrics(self.results)
        decides = [m for m in known if m.name == name]
        decides = decides or [Metric(name=name, label=name, better=self.plan["better"], digits=4)]
        return *decides, *(m for m in known if m.name in self.results and not m.minor and m.name != name)

    @property
    def metric(self) -> Metric:
        """The metric that decided between points."""
        return self.metrics[0]

    @cached_property
    def options(self) -> dict[str, list[Any]]:
        """The swept ones, β and M first, with the values that were tried: numbers ascending, others in the plan's
        order."""
        planned: Mapping[str, Any] = self.plan["swept"]
        found = {}
        for name in sorted(planned, key=lambda n: (n != "exploration", n != "cycles")):
            if name in self.results:
                order = {str(value): place for place, value in enumerate(planned[name])}
                tried = [v for v in dict.fromkeys(map(plain, self.results[name])) if v is not None]
                by_value = all(map(is_number, tried))
                found[name] = sorted(tried, key=lambda v: v if by_value else order.get(str(v), len(order)))
        return found

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row per point by its number, the best first: all repeats finished, then some, then none; without a value
        last.

        Columns: the swept options and ``sampler``; ``status``, the number of its ``chains`` and of those that ``ended``
        with this status, and whether one finished (``whole``); ``counted``, the number of those that its values are of:
        the finished ones, or else the stopped ones; of these ``<metric>`` the mean, ``<metric>_se`` its standard error,
        ``epoch`` where the first ended; ``gradients`` and ``seconds`` of all chains.
        """
        rows, metrics = self.results.copy(), [m.name for m in self.metrics]
        numbers = [*metrics, "epoch", "gradients", "seconds"]
        found = rows.reindex(columns=numbers).apply(pd.to_numeric, errors="coerce")
        rows[numbers] = found.replace([np.inf, -np.inf], np.nan)
        rank = rows["status"].map(RANKS).fillna(RANKS[WAITING])
        worst, best = (rank.groupby(rows["point"]).transform(end) for end in ("max", "min"))
        rows = rows.assign(status=worst.map(dict(enumerate(RANKS))), ended=rank == worst, whole=best == 0)
        each, first = rows.groupby("point"), rows.drop_duplicates("point").set_index("point").sort_index()
        counted = rows[(rank == 0) | (rank == RANKS[STOPPED]) & (best > 0)].groupby("point")
        values = counted[metrics]
        points = pd.DataFrame(
            {
                **{name: pd.Series(map(plain, first[name]), first.index, object) for name in self.options},
                "sampler": first["sampler"],
                "status": first["status"],
                "whole": first["whole"],
                "chains": each.size(),
                "ended": each["ended"].sum(),
                "counted": counted.size(),
                "epoch": counted["epoch"].min(),
                "gradients": each["gradients"].sum(),
                "seconds": each["seconds"].sum(),
            }
        ).fillna({"counted": 0, "epoch": 0.0})
        points = points.join(values.mean().where(values.count().eq(counted.size(), axis=0)))
        points = points.join((values.std() / np.sqrt(values.count())).add_suffix("_se"))
        worth = points[self.metric.name] * (-1 if self.metric.better == "higher" else 1)
        order = points.assign(worth=worth, unfinished=points["status"] != FINISHED)
        return points.loc[order.sort_values(["unfinished", "whole", "worth"], ascending=[True, False, True]).index]

    def compact(self) -> pd.DataFrame:
        """A row per point, the best first: swept options, metrics as texts ``4.18 ± 0.04``, how it ended."""
        points = self.points
        return points[[*self.options]].join([results.compact(points, self.metrics), points["status"]])

    @cached_property
    def best(self) -> int | None:
        """The number of the best point, the first with a value: of equal ones the lowest; None without any."""
        return next(iter(self.points.dropna(subset=self.metric.name).index), None)

    def after(self, point: pd.Series) -> str:
        """``after 6 of 80 epochs``."""
        return f"after {point['epoch']:g} of {self.plan['length']:g} {self.plan['unit']}"

    def text(self, number: int, options: Iterable[str] | None = None) -> str:
        """A point's values, or those of some options: ``β = 0.5, M = 4``."""
        point = self.points.loc[number]
        return ", ".join(f"{short(o)} = {shown(point[o])}" for o in (self.options if options is None else options))


def label(option: str) -> str:
    """An option's name for an axis."""
    return LABELS.get(option, option.replace("_", " ").capitalize())


def short(option: str) -> str:
    """An option's name within a sentence."""
    return SHORT.get(option, option)


def plain(value: Any) -> Any:
    """A table's value: None for null, an integer where nulls beside it made it a float."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value is pd.NA or value != value:
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value
