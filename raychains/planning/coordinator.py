"""The coordinator as a pure state machine: (state, event) → actions. Tested without Ray, by the thousand.

Chains wait in a queue, slots ask for work, samples are accepted from a chain's current incarnation alone. The shell in
`raychains.orchestration` turns what happens to actors into events and carries the actions out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from raychains.planning.failure import MAX_FAILURES, Decision, Policy, Remedy, decide, remedy

Status = Literal["waiting", "running", "elsewhere", "finished", "stopped", "failed", "dropped"]
"""``elsewhere``: another living driver runs the chain."""
Ending = Literal["finished", "stopped", "failed", "diverged", "full"]
"""``full``: the storage has no room, so nothing that any chain did from here on could be kept."""


# Events


@dataclass(frozen=True)
class SlotReady:
    """A worker can take a chain."""

    slot: int


@dataclass(frozen=True)
class SlotLost:
    """A worker died or its node vanished."""

    slot: int
    reason: str


@dataclass(frozen=True)
class Began:
    """A worker runs the chain from its checkpoint at ``step`` on; its first ``drawn`` samples are durable already."""

    slot: int
    digest: str
    incarnation: int
    drawn: int
    step: int = 0
    attempt: int = 0
    """The noise streams that it is on: 0 are its spec's, higher ones those of restarts."""


@dataclass(frozen=True)
class Sampled:
    """A durable sample arrived, the one at ``position`` among all of its chain."""

    slot: int
    digest: str
    incarnation: int
    position: int


@dataclass(frozen=True)
class Ended:
    """An incarnation came to its end; the worker is free."""

    slot: int
    digest: str
    incarnation: int
    outcome: Ending
    reason: str = ""


@dataclass(frozen=True)
class Refused:
    """A start was not carried out: another driver runs the chain."""

    slot: int
    digest: str


@dataclass(frozen=True)
class Superseded:
    """Another driver began a later incarnation of a running chain."""

    digest: str


@dataclass(frozen=True)
class Freed:
    """No other driver runs the chain any more, and it is not finished."""

    digest: str


@dataclass(frozen=True)
class DoneElsewhere:
    """Another driver finished the chain: all of its samples are in the store."""

    digest: str
    samples: int


@dataclass(frozen=True)
class StopAsked:
    """The person wants to stop: running chains write checkpoints, waiting ones stay."""


Elsewhere = Refused | Superseded | Freed | DoneElsewhere
Event = SlotReady | SlotLost | Began | Sampled | Ended | Elsewhere | StopAsked


# Actions


@dataclass(frozen=True)
class Start:
    """Run ``digest`` on ``slot`` under a new incarnation, from its newest checkpoint.

    With an ``attempt`` above that checkpoint's: from its cycle's start, on the noise streams of that number.
    """

    slot: int
    digest: str
    incarnation: int
    attempt: int = 0


@dataclass(frozen=True)
class Accept:
    """Put this sample into the pool."""

    digest: str
    position: int


@dataclass(frozen=True)
class Recover:
    """Put the chain's samples before a position into the pool: they are in the store only."""

    digest: str
    before: int


@dataclass(frozen=True)
class Forget:
    """Take the chain's samples from a position on out of the pool: it went back and takes another path."""

    digest: str
    first: int


@dataclass(frozen=True)
class Restart:
    """The chain diverged and will be started from its cycle's start on the noise streams of number ``attempt``."""

    digest: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class Drop:
    """The chain diverged and is given up; its arm is evaluated without it."""

    digest: str
    reason: str


@dataclass(frozen=True)
class Stop:
    """Ask the slot's worker to stop its chain at the next step and write a checkpoint."""

    slot: int
    digest: str


@dataclass(frozen=True)
class Release:
    """The slot has nothing more to do."""

    slot: int


@dataclass(frozen=True)
class Fail:
    """The chain is given up."""

    digest: str
    reason: str


Action = Start | Accept | Recover | Forget | Restart | Drop | Stop | Release | Fail


@dataclass
class ChainState:
    """What the coordinator knows of one chain."""

    incarnation: int
    status: Status = "waiting"
    slot: int | None = None
    accepted: int = 0
    """Samples in the pool; they come in order, so this is also the next position."""
    reached: int = 0
    """Samples that the pool ever held of it."""
    step: int = 0
    """The furthest checkpoint that an incarnation began from."""
    failures: int = 0
    """Losses since the last progress."""
    attempt: int = 0
    """The noise streams of the last incarnation that began."""
    due: int = 0
    """Those of the next one, when a divergence asked for others."""
    reason: str = ""


@dataclass
class Coordinator:
    """Hands chains to slots until none is left.

    Args:
        last_incarnations: unfinished chains in the order to run them, with the last incarnation that ever began.
        max_failures: losses in a row without progress that a chain survives; the next one gives it up. Also the most
            times that a chain is restarted because it diverged.
        on_divergence: what becomes of a chain that diverges.
        inexact: chains that take another path from every checkpoint: samples behind it are forgotten.
    """

    last_incarnations: dict[str, int]
    max_failures: int = MAX_FAILURES
    on_divergence: Policy = "stop"
    inexact: Collection[str] = ()
    chains: dict[str, ChainState] = field(init=False)
    queue: deque[str] = field(init=False)
    slots: dict[int, str | None] = field(init=False, default_factory=dict)
    stopping: bool = field(init=False, default=False)
    full: str | None = field(init=False, default=None)
    """Why the storage took no more, when that ended the run."""

    def __post_init__(self) -> None:
        self.chains = {d: ChainState(incarnation=n) for d, n in self.last_incarnations.items()}
        self.queue = deque(self.chains)

    @property
    def over(self) -> bool:
        """Whether no chain runs and none will."""
        if any(digest is not None for digest in self.slots.values()):
            return False
        return self.stopping or not (self.queue or self.with_status("elsewhere"))

    def with_status(self, status: Status) -> list[str]:
        """Digests of the chains in one status."""
        return [d for d, c in self.chains.items() if c.status == status]

    def handle(self, event: Event) -> list[Action]:
        """What to do about ``event``; stale incarnations and slots are ignored."""
        match event:
            case SlotReady(slot):
                self.slots[slot] = None
                return self._assign(slot)
            case SlotLost(slot, reason):
                return self._lost(slot, reason)
            case Began(_, digest, incarnation, drawn, step, attempt) if self._current(digest, incarnation):
                chain = self.chains[digest]
                if attempt != chain.attempt:  # another path from its ``drawn``-th sample on
                    return self._another_path(digest, drawn, step, attempt)
                if step > chain.step:  # hours may lie between samples: a checkpoint further on is progress too
                    chain.step, chain.failures = step, 0
                if digest in self.inexact and drawn < chain.accepted:
                    return self._another_path(digest, drawn, step, attempt)
                # After a loss the pool may hold samples behind the checkpoint; they are drawn again and stay as they are.
                missing: list[Action] = [Recover(digest, drawn)] if chain.accepted < drawn else []
                chain.accepted = max(chain.accepted, drawn)
                return missing
            case Sampled(_, digest, incarnation, position) if self._current(digest, incarnation):
                chain = self.chains[digest]
                if position < chain.accepted:
                    return []
                chain.accepted = position + 1
                if digest not in self.inexact or position >= chain.reached:  # what is drawn again is no progress
                    chain.failures, chain.reached = 0, position + 1
                return [Accept(digest, position)]
            case Ended(slot, digest, incarnation, outcome, reason) if self._current(digest, incarnation):
                return self._ended(slot, digest, outcome, reason)
            case Refused() | Superseded() | Freed() | DoneElsewhere():
                return self._elsewhere(event)
            case StopAsked():
                return self._stop_all()
            case _:
                return []

    def renumber(self, digest: str, incarnation: int) -> None:
        """The incarnation that `Start` asked for begins under another number: other drivers count too."""
        self.chains[digest].incarnation = incarnation

    def _elsewhere(self, event: Elsewhere) -> list[Action]:
        """What other drivers do with a chain."""
        chain = self.chains[event.digest]
        match event:
            case Refused(slot, digest) if chain.status == "running" and chain.slot == slot:
                chain.status, chain.slot, self.slots[slot] = "elsewhere", None, None
                return self._assign(slot)
            case Superseded(digest) if chain.status == "running" and chain.slot is not None:
                return [Stop(chain.slot, digest)]
            case Freed(digest) if chain.status == "elsewhere":
                chain.status = "waiting"
                self.queue.append(digest)
            case DoneElsewhere(digest, samples) if chain.status == "elsewhere":
                own, chain.accepted = chain.accepted, samples
                chain.status = "finished"
                forget: list[Action] = [Forget(digest, 0)] if own else []  # those of a path that was superseded
                return [*forget, Recover(digest, samples)]
        return []

    def _another_path(self, digest: str, drawn: int, step: int, attempt: int) -> list[Action]:
        chain = self.chains[digest]
        chain.attempt, chain.step = attempt, step
        before, chain.accepted = chain.accepted, drawn
        if before == drawn:
            return []
        return [Forget(digest, drawn)] if before > drawn else [Recover(digest, drawn)]

    def _stop_all(self) -> list[Action]:
        self.stopping = True
        running: Iterable[tuple[int, str | None]] = self.slots.items()
        return [Stop(slot, digest) for slot, digest in running if digest is not None]

    def _current(self, digest: str, incarnation: int) -> bool:
        chain = self.chains.get(digest)
        return chain is not None and chain.status == "running" and chain.incarnation == incarnation

    def _assign(self, slot: int) -> list[Action]:
        if self.stopping or not self.queue:
            del self.slots[slot]
            return [Release(slot)]
        digest = self.queue.popleft()
        chain = self.chains[digest]
        chain.incarnation += 1
        chain.status, chain.slot = "running", slot
        self.slots[slot] = digest
        return [Start(slot, digest, chain.incarnation, max(chain.due, chain.attempt))]

    def _lost(self, slot: int, reason: str) -> list[Action]:
        digest = self.slots.pop(slot, None)
        if digest is None:
            return []
        chain = self.chains[digest]
        chain.slot = None
        chain.failures += 1
        if decide(deterministic=False, failures=chain.failures, max_failures=self.max_failures) is Decision.GIVE_UP:
            chain.status, chain.reason = "failed", f"{reason} ({chain.failures} losses in a row without progress)"
            return [Fail(digest, chain.reason)]
        chain.status = "waiting"
        self.queue.appendleft(digest)
        return []

    def _ended(self, slot: int, digest: str, outcome: Ending, reason: str) -> list[Action]:
        chain = self.chains[digest]
        chain.slot, chain.reason, self.slots[slot] = None, reason, None
        first: list[Action] = []
        if outcome == "diverged":
            first = self._diverged(digest, reason)
        elif outcome == "full":
            chain.status = "stopped"
            first = [] if self.stopping else self._stop_all()
            self.full = self.full or reason
        else:
            left = outcome == "stopped" and not self.stopping  # nobody asked but for another driver that has the chain
            chain.status = "elsewhere" if left else outcome
            first = [Fail(digest, reason)] if outcome == "failed" else []
        return first + self._assign(slot)

    def _diverged(self, digest: str, reason: str) -> list[Action]:
        chain = self.chains[digest]
        match remedy(self.on_divergence, restarts=chain.attempt, max_failures=self.max_failures):
            case Remedy.RESTART:
                chain.status, chain.due = "waiting", chain.attempt + 1
                self.queue.appendleft(digest)
                return [Restart(digest, chain.due, reason)]
            case Remedy.DROP:
                chain.status = "dropped"
                return [Drop(digest, reason)]
            case _:
                chain.status = "failed"
                if chain.attempt:
                    chain.reason = (
                        f"{reason} (restarted {chain.attempt} time{'s' * (chain.attempt > 1)} with fresh noise)"
                    )
                return [Fail(digest, chain.reason)]
