"""A sweep as data: its points, what each costs, when a chain reports; and what a sweep tells whoever listens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raychains import schedules
from raychains.errors import UserError
from raychains.evaluation.base import Metric
from raychains.planning.budget import gradient_evaluations
from raychains.positions import samples_per_keep
from raychains.spec import ChainSpec, digest_of
from raychains.store import SweepStore

REPORTS = 10
"""Reports of a chain without cycles, spread over its samples."""
Status = Literal["finished", "stopped", "failed", "waiting"]
Values = Mapping[str, Any]
"""Of the swept options, by name."""


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
    """What points are judged on."""
    metric: Metric
    options: Mapping[str, Any]
    """The settings that all points share, as `raychains.options.Run` has them; those left out have their defaults."""
    swept: Mapping[str, Any]
    """Per swept option its values or its range."""
    search: Literal["grid", "random", "optuna"]
    count: int
    """How many points there are, or will be."""
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
    def digest(self) -> str:
        """Identifies what is computed and how it is judged."""
        return digest_of(
            {
                "task": self.task_spec.to_json(), "options": dict(self.options), "swept": self.swept, "search": self.search,
                "count": self.count, "repeats": self.repeats, "metric": self.metric.name, "gradients": self.gradients,
                "asha": None if self.asha is None else [self.asha.grace, self.asha.reduction],
                "chains": [[spec.digest for spec in point.specs] for point in self.points],
            }
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The plan as ``plan.json`` holds it."""
        return {
            "command": "sweep", "task": self.task, "unit": self.unit, "split": self.split, "metric": self.metric.name,
            "better": self.metric.better, "options": dict(self.options), "swept": self.swept, "search": self.search,
            "count": self.count, "repeats": self.repeats, "seed": self.seed, "gradients": self.gradients, "length": self.length,
            "asha": None if self.asha is None else {"grace": self.asha.grace, "reduction": self.asha.reduction},
            "task_spec": self.task_spec.to_json(), "notes": list(self.notes), "digest": self.digest,
        }  # fmt: skip


def check_equal_cost(points: Sequence[Point]) -> int:
    """What every chain costs, in gradient evaluations.

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


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When a chain reports: after its ``step``-th step, with so many samples of all variables drawn."""

    cycle: int
    step: int
    samples: int


def stops_of(spec: ChainSpec) -> list[Stop]:
    """The reports of a chain: at the end of each cycle, else `REPORTS` times, spread over its samples; the last at its end.

    There is none before the first sample, and none of a cycle that adds no sample, but for the last.
    """
    schedule = schedules.build(spec.schedule)
    each = samples_per_keep(spec)
    kept: list[tuple[int, int]] = []
    for step in range(1, spec.steps + 1):
        setting = schedule.at(step)
        if setting.keep:
            kept.append((step, setting.cycle))
    if schedule.kind == "cyclical":
        last_of = {cycle: n for n, (_, cycle) in enumerate(kept, start=1)}
        found = [Stop(cycle=cycle, step=kept[n - 1][0], samples=n * each) for cycle, n in last_of.items()]
        last_cycle = schedule.cycle_count - 1
    else:
        at = sorted({-(-len(kept) * i // REPORTS) for i in range(1, REPORTS + 1)} - {0})
        found = [Stop(cycle=i, step=kept[n - 1][0], samples=n * each) for i, n in enumerate(at)]
        last_cycle = len(found) - 1
    if found and found[-1].cycle == last_cycle:
        found.pop()
    return [*found, Stop(cycle=last_cycle, step=spec.steps, samples=len(kept) * each)]


# What a sweep tells


@dataclass(frozen=True, kw_only=True)
class SweepPlanned:
    """The plan, before anything runs."""

    plan: SweepPlan
    name: str
    there: int
    """Chains of the plan that the store holds already."""
    done: int
    """Chains of which this sweep has the results already."""


@dataclass(frozen=True, kw_only=True)
class SweepReady:
    """Ray is up."""

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
    loss: float | None
    value: float | None
    """Of the metric, at its last report."""
    waiting: str | None = None


@dataclass(frozen=True, kw_only=True)
class SweepTick:
    """The state of the whole sweep, about once a second."""

    running: Sequence[TrialNow]
    ended: int
    total: int
    best: tuple[Point, float] | None
    waiting: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialEnded:
    """One chain is through, given up, or stopped by the scheduler."""

    point: Point
    repeat: int
    status: Status
    reason: str
    report: Mapping[str, Any] | None
    """Its last."""


@dataclass(frozen=True, kw_only=True)
class TrialGoesOn:
    """The process of a chain died; it goes on from its checkpoint in another."""

    point: Point
    repeat: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class SweepDone:
    """All chains ended; tables, page and best.json are written."""

    folder: SweepStore


@dataclass(frozen=True, kw_only=True)
class SweepStopping:
    """The sweep was asked to stop: chains write checkpoints."""

    reason: str = ""


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
