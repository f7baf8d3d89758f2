"""Events of runs and sweeps, and the callbacks that hear them: progress bars, logs and trackers.

Users find all of this under `raychains.callbacks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from raychains.core.sample import ChainProgress
from raychains.planning.budget import Budget
from raychains.planning.comparison import Comparison
from raychains.planning.sweep_plan import Point, SweepPlan
from raychains.store import SweepStore


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The plan, before anything runs."""

    event: ClassVar[str] = "planned"

    comparison: Comparison
    budget: Budget
    notes: Sequence[str]
    """Warnings and settings worth a line, e.g. the effective noise."""


@dataclass(frozen=True, kw_only=True)
class SweepPlanned:
    """The plan of a sweep, before anything runs: each point is an arm, ``point-3``, and each of its repeats a chain."""

    event: ClassVar[str] = "sweep-planned"

    plan: SweepPlan
    folder: SweepStore
    there: int
    """Chains of the plan that the store holds already."""


@dataclass(frozen=True, kw_only=True)
class PointChosen:
    """A search that learns from the results chose a point of a sweep; all other points are in the plan."""

    event: ClassVar[str] = "point-chosen"

    point: Point


@dataclass(frozen=True, kw_only=True)
class Evaluating:
    """A finished run is evaluated; no chain runs."""

    event: ClassVar[str] = "evaluating"

    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The progress of a measure of a finished run."""

    event: ClassVar[str] = "measuring"

    what: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Message:
    """Something that people should read; it begins with ``warning: `` where it is one."""

    event: ClassVar[str] = "said"

    text: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Ray is up, or not needed."""

    event: ClassVar[str] = "ready"

    slots: int
    """Chains that can run at once."""
    slot: str
    """One slot, for people: ``1 CPU``, ``1/2 GPU``."""
    where: str = "Ray"
    """``Ray``, or ``this process``."""


@dataclass(frozen=True, kw_only=True)
class ChainStatus(ChainProgress):
    """The state of one running chain."""

    slot: int
    steps: int
    steps_per_second: float | None = None
    """Since this worker took the chain on; None before two progress records."""
    samples: int = 0
    """Durable samples of the chain so far (blocks of draws where the task is a density)."""
    gradients: int = 0
    """Gradient evaluations of the chain so far: the x axis on which methods cost the same."""
    stalled_seconds: float | None = None
    """Seconds for which it is silent, where that is a stall: see `Stalled`."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """The state of the whole run, a few times a second."""

    event: ClassVar[str] = "tick"

    running: Sequence[ChainStatus]
    finished: int
    chains: int
    evaluated: int
    to_evaluate: int
    remaining_seconds: float | None
    """Estimated from the speed so far; None before the first epochs, and while a chain stalls."""
    failed: int = 0
    """Chains that were given up."""
    slots: int = 0
    """Workers that run a chain or are about to."""
    samples: int = 0
    """Durable samples of all chains."""
    gradients: int = 0
    """Gradient evaluations spent on the run's chains, by earlier runs too."""
    to_spend: int = 0
    """Gradient evaluations that all of the run's chains cost."""


@dataclass(frozen=True, kw_only=True)
class ChainBegan:
    """A worker took a chain on, from its newest checkpoint or from its beginning."""

    event: ClassVar[str] = "chain-began"

    digest: str
    slot: int
    step: int
    """The step from which it runs."""
    incarnation: int


@dataclass(frozen=True, kw_only=True)
class ChainReported:
    """A chain of a sweep reported the metrics of its samples so far on the validation split, after a cycle."""

    event: ClassVar[str] = "chain-reported"

    digest: str
    gradients: int
    """Gradient evaluations so far."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ChainStopped:
    """The scheduler of a sweep stopped a chain early, for good."""

    event: ClassVar[str] = "chain-stopped"

    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChainFinished:
    """All steps of a chain are made and all of its samples in the store."""

    event: ClassVar[str] = "chain-finished"

    digest: str
    seconds: float
    """Chain seconds of the whole chain."""


@dataclass(frozen=True, kw_only=True)
class ViewDone:
    """One arm's group of repeats is evaluated."""

    event: ClassVar[str] = "view-done"

    arm: str
    group: int
    metrics: Sequence[Mapping[str, float]]
    """Per repeat of the group."""
    chain_seconds: float
    """Seconds of the group's chains, and of those that they start at, for one repeat."""
    gradients: int | None = field(default=None, metadata={"omitted_default": True})
    """Gradient evaluations that the same chains made, likewise; None where the arm's length says it."""


@dataclass(frozen=True, kw_only=True)
class ChainFailed:
    """A chain was given up; the others go on."""

    event: ClassVar[str] = "chain-failed"

    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChainDropped:
    """A chain diverged and was given up; its arms are evaluated without it."""

    event: ClassVar[str] = "chain-dropped"

    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChainRestarted:
    """A chain diverged and goes back to its cycle's start with fresh noise."""

    event: ClassVar[str] = "chain-restarted"

    digest: str
    attempt: int
    """Number of times that it was given fresh noise, this time included."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class TornCheckpoint:
    """A damaged checkpoint, or one after a damaged sample, was passed over; the chain resumes from the one before
    it."""

    event: ClassVar[str] = "torn-checkpoint"

    digest: str
    file: str
    """Its location, for people."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The run waits for something to come back: the storage, or a node with room for a chain. Told once each time."""

    event: ClassVar[str] = "waiting"

    reason: str


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The run no longer waits."""

    event: ClassVar[str] = "goes-on"


@dataclass(frozen=True, kw_only=True)
class Stalled:
    """A chain, an evaluation or a new worker is silent for longer than its pace explains; told once each time.

    If it lasts, the worker is replaced: `WorkerLost` follows.
    """

    event: ClassVar[str] = "stalled"

    seconds: float
    """Seconds since it was last heard of."""
    reason: str
    """For people: ``it makes no step``, ``its worker does not answer``."""
    digest: str | None = None
    """The chain; None of an evaluation, and of a worker that does not come up, whose slot is given."""
    slot: int | None = None
    """The chain's."""


@dataclass(frozen=True, kw_only=True)
class StallEnded:
    """A chain or an evaluation that stalled goes on by itself."""

    event: ClassVar[str] = "stall-ended"

    digest: str | None = None
    """The chain; None of evaluations."""


@dataclass(frozen=True, kw_only=True)
class WorkerLost:
    """A worker died; its chain waits for another slot."""

    event: ClassVar[str] = "slot-gone"

    slot: int
    reason: str
    digest: str | None = None
    """The chain; None where the worker had none."""


@dataclass(frozen=True, kw_only=True)
class Preempted:
    """A worker's node is draining: its chain writes a checkpoint and goes on in another slot. No failure."""

    event: ClassVar[str] = "preempted"

    slot: int
    digest: str | None = None
    """The chain; None where the worker had none yet."""


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The user asked to stop, or ``reason`` makes it necessary; checkpoints are being written."""

    event: ClassVar[str] = "stopping"

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """The last event: the call ends. A callback that has ``close()`` is closed after it."""

    event: ClassVar[str] = "over"

    outcome: Literal["finished", "stopped", "failed"]
    reason: str = ""
    """The error's first line, unless it finished."""


RunEvent = (
    Planned
    | SweepPlanned
    | PointChosen
    | Evaluating
    | Measuring
    | Message
    | Ready
    | Tick
    | ChainBegan
    | ChainReported
    | ChainStopped
    | ChainFinished
    | ViewDone
    | ChainFailed
    | ChainDropped
    | ChainRestarted
    | TornCheckpoint
    | Waiting
    | Resumed
    | Stalled
    | StallEnded
    | WorkerLost
    | Preempted
    | Stopping
    | RunEnded
)


class Callback(Protocol):
    """Anything that hears events; ``close()``, if it has one, is called at the end, also after errors and Ctrl-C.

    `on` is called in the process that drives the run, between its other work: slow work belongs in a thread. An
    exception is logged once and does not hurt the run.
    """

    def on(self, event: RunEvent) -> Any:
        """Take note of one event; the result is ignored."""
        ...


class NullCallback:
    """A callback that ignores every event."""

    def on(self, event: RunEvent) -> None:
        """Ignore the event."""
