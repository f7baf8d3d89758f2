"""A sweep as data: its points and what each costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raychains.core.spec import ChainSpec, digest_of
from raychains.core.validation import is_number
from raychains.evaluation.evaluation import Metric
from raychains.planning.comparison import run_name

Values = Mapping[str, Any]
"""Values of the swept options, by name."""
Reports = Sequence[Mapping[str, Any]]
"""A chain's reports by cycle, as `raychains.store.SweepStore` keeps them."""
FINISHED, STOPPED, FAILED, WAITING = "finished", "stopped", "failed", "waiting"
"""States of a chain: ``stopped`` is by the scheduler."""


def state_of(reports: Reports, stop: Mapping[str, Any] | None, length: float, failed: str | None = None) -> str:
    """Return the state of a chain of ``length`` epochs.

    Args:
        reports: what the store has of it. Without any it is waiting: it runs again.
        stop: where the scheduler stopped it.
        failed: why it was given up.
    """
    if failed is not None:
        return FAILED
    if not reports:
        return WAITING
    return FINISHED if reports[-1]["epoch"] >= length else WAITING if stop is None else STOPPED


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of the swept options, and its chains: one for each repeat."""

    number: int
    values: Values
    sampler: str
    """The method's name."""
    specs: tuple[ChainSpec, ...]
    length: int
    """Epochs that each chain costs."""
    cycles: int
    """Cycles that each chain reports."""

    @property
    def name(self) -> str:
        """Its name as an arm of the sweep."""
        return f"point-{self.number}"

    @property
    def text(self) -> str:
        """For people: ``exploration=0.25 cycles=4``."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.values.items())


@dataclass(frozen=True, kw_only=True)
class Asha:
    """Asynchronous successive halving over shares of the epochs."""

    grace: float
    reduction: float


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything that a sweep computes."""

    task: str
    unit: str
    """``epochs``."""
    split: str
    """The split that decides between points."""
    metric: Metric
    """The metric that decides between points."""
    metrics: Sequence[Metric]
    """All metrics of the split."""
    options: Mapping[str, Any]
    """The settings that all points share, as `raychains.core.config.Run` has them; those left out have their
    defaults."""
    swept: Mapping[str, Any]
    """Per swept option its values or its range."""
    search: Literal["grid", "random", "optuna", "tune"]
    """``tune``: the user's own experiment chose the points."""
    count: int
    """Number of points, those that a search has still to choose included."""
    repeats: int
    seed: int
    points: tuple[Point, ...]
    """All of them; of Optuna's none, which come one after another."""
    gradients: int
    """Gradient evaluations of every chain."""
    length: int
    """Epochs that every chain costs."""
    task_spec: Any
    asha: Asha | None = None
    notes: Sequence[str] = ()

    @property
    def run_name(self) -> str:
        """The sweep's default name."""
        return run_name(self.task, self.digest)

    def reason(self, point: Point, state: str, stop: Mapping[str, Any] | None, failed: str | None) -> str:
        """Return why a chain of a point ended early, for people; empty for one that ran to its end or is waiting."""
        if stop is None or state != STOPPED:
            return failed or ""
        stopper = "ASHA" if self.asha is not None else "the scheduler"
        return f"stopped by {stopper} after {stop['epoch']:g} of {point.length} {self.unit}"

    @property
    def digest(self) -> str:
        """Identifies what is computed and how it is judged."""
        return digest_of(
            {
                "task": self.task_spec.to_json(),
                "options": dict(self.options),
                "swept": self.swept,
                "search": self.search,
                "count": self.count,
                "repeats": self.repeats,
                "metric": self.metric.name,
                "gradients": self.gradients,
                "asha": None if self.asha is None else [self.asha.grace, self.asha.reduction],
                "chains": [[spec.digest for spec in point.specs] for point in self.points],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as ``plan.json`` holds it."""
        same = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "points"}
        return {
            **same,
            "command": "sweep",
            "metric": self.metric.name,
            "metrics": [metric.to_json() for metric in self.metrics],
            "better": self.metric.better,
            "asha": None if self.asha is None else dataclasses.asdict(self.asha),
            "task_spec": self.task_spec.to_json(),
            "digest": self.digest,
        }


STORED: Mapping[str, Any] = {
    **dict.fromkeys(("task", "unit", "split", "metric", "search"), str),
    **dict.fromkeys(("options", "swept", "task_spec"), dict),
    **dict.fromkeys(("count", "repeats", "gradients"), int),
    "length": int | float,
    "asha": dict | None,
    "notes": list,
}
"""Entries that every version's `SweepPlan.to_json` has and that pages are drawn from, and their kinds."""


def is_stored(plan: Mapping[str, Any]) -> bool:
    """Return whether a stored plan has what pages are drawn from, of the kinds that `SweepPlan.to_json` writes."""
    if not all(name in plan and isinstance(plan[name], kind) for name, kind in STORED.items()):
        return False
    asha = plan["asha"] or {}
    return (
        plan.get("better") in ("lower", "higher")
        and isinstance(plan["task_spec"].get("kind"), str)
        and all(isinstance(values, list | str) for values in plan["swept"].values())
        and (not asha or (asha.keys() == {"grace", "reduction"} and all(map(is_number, asha.values()))))
    )


def shown(value: Any) -> str:
    """Return a swept value for people: four digits of a broken number."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
