"""The status of a run, a sweep or a whole store as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ChainPhase = Literal["waiting", "running", "finished", "stopped", "failed"]
"""States of a chain: ``stopped`` began and no driver runs it, ``waiting`` never began."""
Phase = Literal["running", "finished", "stopped", "lost"]
"""States of a run: ``lost``: the driver did not end, and has not renewed its entry for a minute."""


@dataclass(frozen=True, kw_only=True)
class DriverState:
    """A driver that works, or worked, on the run; times are seconds since 1970 by the storage's clock."""

    driver_id: str
    host: str
    pid: int
    since: float
    heard: float
    """Its last renewal."""
    age: float
    """Seconds since then."""
    lives: bool


@dataclass(frozen=True, kw_only=True)
class ChainState:
    """One chain; fields that its files do not hold yet are None."""

    digest: str
    state: ChainPhase
    step: int = 0
    steps: int
    cycle: int | None = None
    """From 0."""
    cycles: int = 1
    stage: str | None = None
    loss: float | None = None
    seconds: float = 0.0
    """Chain seconds, waiting not counted."""
    steps_per_second: float | None = None
    samples: int = 0
    expected: int
    gradients: int = 0
    to_spend: int
    checkpoint_step: int | None = None
    checkpoint_age: float | None = None
    """Seconds since the newest checkpoint was written."""
    age: float | None = None
    """Seconds since any file of the chain was written: the age of this state."""
    stalled: bool = False
    """It runs, but is silent for longer than its pace explains, as its driver said last."""
    attempts: int = 0
    """Workers that ran it, one after another."""
    preemptions: int = 0
    """Times that it left a draining node."""
    host: str | None = None
    """Host of its newest worker."""
    hosts: Sequence[str] = ()
    """Hosts of all its workers, each once, the newest last."""
    reason: str | None = None
    """Why it was given up."""
    bytes: int = 0

    @property
    def restarts(self) -> int:
        """Workers after the first."""
        return max(0, self.attempts - 1)


@dataclass(frozen=True, kw_only=True)
class ArmState:
    """An arm: its repeats and those with results, and its chains' budget, in which other arms may share."""

    name: str
    label: str
    evaluated: int
    repeats: int
    gradients: int
    """Gradient evaluations spent."""
    to_spend: int


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run: its drivers, its chains, and its budget."""

    name: str
    location: str
    task: str
    command: str
    state: Phase
    drivers: Sequence[DriverState] = ()
    """The one that owns the run first."""
    chains: Sequence[ChainState] = ()
    arms: Sequence[ArmState] = ()
    report: str | None = None
    bytes: int = 0
    """Bytes of its chains' folders and its own."""
    kind: Literal["run"] = field(default="run", init=False)

    def count(self, state: ChainPhase) -> int:
        """Return the number of chains in one state."""
        return sum(chain.state == state for chain in self.chains)

    @property
    def gradients(self) -> int:
        """Gradient evaluations spent on its chains."""
        return sum(chain.gradients for chain in self.chains)

    @property
    def to_spend(self) -> int:
        """Gradient evaluations that all of its chains cost."""
        return sum(chain.to_spend for chain in self.chains)

    @property
    def samples(self) -> int:
        """Durable samples of its chains."""
        return sum(chain.samples for chain in self.chains)

    @property
    def age(self) -> float | None:
        """Seconds since the running chain that has been silent longest last wrote anything."""
        return max((c.age for c in self.chains if c.state == "running" and c.age is not None), default=None)

    @property
    def remaining_seconds(self) -> float | None:
        """Estimated seconds of sampling left with as many chains at once as run now; None where none runs."""
        running = self.count("running")
        steps = sum(c.step for c in self.chains if c.seconds)
        if self.state != "running" or not running or not steps:
            return None
        per_step = sum(c.seconds for c in self.chains if c.seconds) / steps
        left = [c.steps - c.step for c in self.chains if c.state not in ("finished", "failed")]
        return per_step * max(sum(left) / running, max(left, default=0))


@dataclass(frozen=True, kw_only=True)
class SweepState:
    """A sweep: its points, its trials by status, the best point so far."""

    name: str
    location: str
    state: Phase
    drivers: Sequence[DriverState] = ()
    task: str = ""
    metric: str = ""
    """The metric of the split val by which points are judged."""
    points: int = 0
    chains: int = 0
    """One for each repeat of a point."""
    to_spend: int = 0
    """Gradient evaluations of all chains, if none is stopped early."""
    swept: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)
    """By status once the sweep ended."""
    reported: int = 0
    """Chains that reported a cycle."""
    reports: int = 0
    """Cycles that were reported."""
    stopped: int = 0
    """Chains that the scheduler stopped."""
    age: float | None = None
    """Seconds since the newest report."""
    best: Mapping[str, Any] | None = None
    report: str | None = None
    kind: Literal["sweep"] = field(default="sweep", init=False)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A run or sweep among those of a store."""

    name: str
    kind: Literal["run", "sweep"]
    state: Phase
    task: str
    chains: int | None = None
    driver: DriverState | None = None


@dataclass(frozen=True, kw_only=True)
class StoreState:
    """All runs and sweeps of a store."""

    location: str
    lines: Sequence[Line] = ()
    kind: Literal["store"] = field(default="store", init=False)

    @property
    def counts(self) -> Mapping[str, int]:
        """Runs and sweeps by state."""
        return Counter(line.state for line in self.lines)


State = RunState | SweepState | StoreState
