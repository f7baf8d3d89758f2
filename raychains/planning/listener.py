"""What a run tells whoever listens: events in, nothing out. Progress bars and logs are listeners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raychains.planning.budget import Budget
from raychains.planning.comparison import Comparison


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The plan, before anything runs."""

    comparison: Comparison
    budget: Budget
    notes: Sequence[str]
    """Warnings and settings worth a line, e.g. the effective noise."""


@dataclass(frozen=True, kw_only=True)
class Evaluating:
    """A finished run is evaluated; no chain runs."""

    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How far one of the analyses of a finished run is."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something that people should read; it begins with ``warning: `` where it is one."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Ray is up."""

    slots: int
    """Chains that can run at once."""
    slot: str
    """What one slot is: ``1 CPU``, ``1/2 GPU``."""


@dataclass(frozen=True, kw_only=True)
class ChainStatus:
    """Where one running chain is."""

    digest: str
    slot: int
    step: int
    steps: int
    cycle: int
    stage: str
    loss: float | None
    seconds: float
    """Chain seconds so far, waiting not counted."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """The state of the whole run, a few times a second."""

    running: Sequence[ChainStatus]
    finished: int
    chains: int
    evaluated: int
    to_evaluate: int
    remaining_seconds: float | None
    """Estimated from the speed so far; None before the first epochs."""


@dataclass(frozen=True, kw_only=True)
class ViewDone:
    """One arm's group of repeats is evaluated."""

    arm: str
    group: int
    metrics: Sequence[Mapping[str, float]]
    """Per repeat of the group."""
    chain_seconds: float
    """Seconds of the group's chains, for one repeat."""


@dataclass(frozen=True, kw_only=True)
class ChainFailed:
    """A chain was given up; the others go on."""

    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChainDropped:
    """A chain diverged and was given up; its arms are evaluated without it."""

    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChainRestarted:
    """A chain diverged and goes back to its cycle's start with fresh noise."""

    digest: str
    attempt: int
    """How often it was given fresh noise, this time included."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class TornCheckpoint:
    """A damaged checkpoint, or one behind a damaged sample, was passed over; the chain goes on from the one before it."""

    digest: str
    file: str
    """Where it lies, for people."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The run waits for something to come back: the storage, or a node with room for a chain. Told once each time."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class GoesOn:
    """What the run waited for is back."""


@dataclass(frozen=True, kw_only=True)
class SlotGone:
    """A worker died; its chain waits for another slot."""

    slot: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The person asked to stop, or ``reason`` makes it necessary; checkpoints are being written."""

    reason: str = ""


Happening = (
    Planned
    | Evaluating
    | Measuring
    | Said
    | Ready
    | Tick
    | ViewDone
    | ChainFailed
    | ChainDropped
    | ChainRestarted
    | TornCheckpoint
    | Waiting
    | GoesOn
    | SlotGone
    | Stopping
)


class Listener(Protocol):
    """Anything that wants to know."""

    def on(self, happening: Happening) -> Any:
        """Take note of one happening; what is returned is ignored."""
        ...


class Silent:
    """Hears and says nothing."""

    def on(self, happening: Happening) -> None:
        """Ignore it."""
