"""What a run tells whoever listens: events in, nothing out. Progress bars, logs and trackers are listeners.

People find all of this under `raychains.listeners`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
    lr: float | None = None
    """Of this step, on the mean-loss scale; None before the first progress record, as for the next two."""
    temperature: float | None = None
    kinetic_temperature: float | None = None
    """Of the sampler's velocities; None of samplers without momentum, too."""
    steps_per_second: float | None = None
    """Since this worker took the chain on; None before two progress records."""
    samples: int = 0
    """Durable samples of the chain so far (blocks of draws where the task is a density)."""
    gradients: int = 0
    """Gradient evaluations of the chain so far: the x axis on which methods cost the same."""


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

    digest: str
    slot: int
    step: int
    """Where it goes on."""
    incarnation: int


@dataclass(frozen=True, kw_only=True)
class ChainFinished:
    """All steps of a chain are made and all of its samples in the store."""

    digest: str
    seconds: float
    """Chain seconds of the whole chain."""


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


@dataclass(frozen=True, kw_only=True)
class Over:
    """The last happening: the call that was listened to ends. What has ``close()`` is closed after it."""

    outcome: Literal["finished", "stopped", "failed"]
    reason: str = ""
    """The error's first line, unless it finished."""


Happening = (
    Planned
    | Evaluating
    | Measuring
    | Said
    | Ready
    | Tick
    | ChainBegan
    | ChainFinished
    | ViewDone
    | ChainFailed
    | ChainDropped
    | ChainRestarted
    | TornCheckpoint
    | Waiting
    | GoesOn
    | SlotGone
    | Stopping
    | Over
)


class Listener(Protocol):
    """Anything that wants to know; ``close()``, if it has one, is called at the end, also after errors and Ctrl-C.

    `on` is called in the process that drives the run, between its other work: what takes long belongs in a thread. What
    it raises is logged once and does not hurt the run.
    """

    def on(self, happening: Happening) -> Any:
        """Take note of one happening; what is returned is ignored."""
        ...


class Silent:
    """Hears and says nothing."""

    def on(self, happening: Happening) -> None:
        """Ignore it."""
