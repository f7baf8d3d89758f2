"""A sweep as data: its points, what each costs, and the events that its callbacks are called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec, digest_of
from raychains.evaluation.base import Metric
from raychains.planning.budget import gradient_evaluations
from raychains.store import SweepStore

Status = Literal["finished", "stopped", "failed", "waiting"]
Values = Mapping[str, Any]
"""Values of the swept options, by name."""


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

    @property
    def text(self) -> str:
        """For people: ``exploration=0.25 cycles=4``."""
        return " ".join(f"{name}={_shown(value)}" for name, value in self.values.items())


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
    """The settings that all points share, as `raychains.core.config.Run` has them; those left out have their defaults."""
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
    def stopper(self) -> str:
        """Who stops chains early, for people."""
        return "ASHA" if self.asha is not None else "the scheduler"

    def through(self, reports: Sequence[Mapping[str, Any]], length: int | None = None) -> bool:
        """Return whether the reports of a chain of ``length`` epochs, default the plan's, go to its end."""
        return bool(reports) and reports[-1]["epoch"] >= (self.length if length is None else length)

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
        """The plan as ``plan.json`` holds it."""
        return {
            "command": "sweep",
            "task": self.task,
            "unit": self.unit,
            "split": self.split,
            "metric": self.metric.name,
            "better": self.metric.better,
            "options": dict(self.options),
            "swept": self.swept,
            "search": self.search,
            "count": self.count,
            "repeats": self.repeats,
            "seed": self.seed,
            "gradients": self.gradients,
            "length": self.length,
            "asha": None if self.asha is None else {"grace": self.asha.grace, "reduction": self.asha.reduction},
            "task_spec": self.task_spec.to_json(),
            "notes": list(self.notes),
            "digest": self.digest,
        }


def check_equal_cost(points: Sequence[Point]) -> int:
    """The cost of every chain, in gradient evaluations.

    Raises:
        UserError: points that cost differently.
    """
    costs = [(gradient_evaluations(spec), point) for point in points for spec in point.specs]
    first, where = costs[0]
    for cost, point in costs:
        if cost != first:
            raise UserError(
                f"every point of a sweep must cost the same gradient evaluations: {where.text} costs {first:,} and {point.text} "
                f"{cost:,}"
            )
    return first


# Events


@dataclass(frozen=True, kw_only=True)
class SweepPlanned:
    """The plan, before anything runs."""

    event: ClassVar[str] = "sweep-planned"

    plan: SweepPlan
    name: str
    there: int
    """Chains of the plan that the store holds already."""
    done: int
    """Chains of which this sweep has the results already."""


@dataclass(frozen=True, kw_only=True)
class SweepReady:
    """Ray is up."""

    event: ClassVar[str] = "sweep-ready"

    slots: int
    slot: str


@dataclass(frozen=True, kw_only=True)
class TrialNow:
    """One running chain."""

    point: Point
    repeat: int
    step: int
    steps: int
    cycle: int
    cycles: int
    value: float | None
    """Value of the metric at its last report."""


@dataclass(frozen=True, kw_only=True)
class SweepTick:
    """The state of the whole sweep, about once a second."""

    event: ClassVar[str] = "sweep-tick"

    running: Sequence[TrialNow]
    ended: int
    total: int
    best: tuple[Point, float] | None
    waiting: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialEnded:
    """One chain is through, given up, or stopped by the scheduler."""

    event: ClassVar[str] = "trial-ended"

    point: Point
    repeat: int
    status: Status
    reason: str
    report: Mapping[str, Any] | None
    """Its last."""


@dataclass(frozen=True, kw_only=True)
class TrialResumed:
    """The process of a chain died; it goes on from its checkpoint in another."""

    event: ClassVar[str] = "trial-goes-on"

    point: Point
    repeat: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class SweepDone:
    """All chains ended; tables, page and best.json are written."""

    event: ClassVar[str] = "sweep-done"

    folder: SweepStore


@dataclass(frozen=True, kw_only=True)
class SweepStopping:
    """The sweep was asked to stop: chains write checkpoints."""

    event: ClassVar[str] = "sweep-stopping"

    reason: str = ""


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
