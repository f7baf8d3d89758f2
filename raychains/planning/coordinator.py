"""The coordinator as a pure state machine: (state, event) → actions. Tested without Ray, by the thousand.

Chains wait in a queue, slots ask for work, samples are accepted from a chain's current incarnation alone. The shell in
`raychains.orchestration` turns what happens to actors into events and carries the actions out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from raychains.planning.failure import MAX_FAILURES, Decision, decide

Status = Literal["waiting", "running", "finished", "stopped", "failed"]


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
    outcome: Literal["finished", "stopped", "failed"]
    reason: str = ""


@dataclass(frozen=True)
class StopAsked:
    """The person wants to stop: running chains write checkpoints, waiting ones stay."""


Event = SlotReady | SlotLost | Began | Sampled | Ended | StopAsked


# Actions


@dataclass(frozen=True)
class Start:
    """Run ``digest`` on ``slot`` under a new incarnation."""

    slot: int
    digest: str
    incarnation: int


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


Action = Start | Accept | Recover | Stop | Release | Fail


@dataclass
class ChainState:
    """What the coordinator knows of one chain."""

    incarnation: int
    status: Status = "waiting"
    slot: int | None = None
    accepted: int = 0
    """Samples in the pool; they come in order, so this is also the next position."""
    step: int = 0
    """The furthest checkpoint that an incarnation began from."""
    failures: int = 0
    """Losses since the last progress."""
    reason: str = ""


@dataclass
class Coordinator:
    """Hands chains to slots until none is left.

    Args:
        last_incarnations: unfinished chains in the order to run them, with the last incarnation that ever began.
        max_failures: losses in a row without progress that a chain survives; the next one gives it up.
    """

    last_incarnations: dict[str, int]
    max_failures: int = MAX_FAILURES
    chains: dict[str, ChainState] = field(init=False)
    queue: deque[str] = field(init=False)
    slots: dict[int, str | None] = field(init=False, default_factory=dict)
    stopping: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.chains = {d: ChainState(incarnation=n) for d, n in self.last_incarnations.items()}
        self.queue = deque(self.chains)

    @property
    def over(self) -> bool:
        """Whether no chain runs and none will."""
        return not any(c.status == "running" for c in self.chains.values()) and (self.stopping or not self.queue)

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
            case Began(_, digest, incarnation, drawn, step) if self._current(digest, incarnation):
                chain = self.chains[digest]
                if step > chain.step:  # hours may lie between samples: a checkpoint further on is progress too
                    chain.step, chain.failures = step, 0
                # After a loss the pool may hold samples behind the checkpoint; they are drawn again and stay as they are.
                missing: list[Action] = [Recover(digest, drawn)] if chain.accepted < drawn else []
                chain.accepted = max(chain.accepted, drawn)
                return missing
            case Sampled(_, digest, incarnation, position) if self._current(digest, incarnation):
                chain = self.chains[digest]
                if position < chain.accepted:
                    return []
                chain.accepted, chain.failures = position + 1, 0
                return [Accept(digest, position)]
            case Ended(slot, digest, incarnation, outcome, reason) if self._current(digest, incarnation):
                return self._ended(slot, digest, outcome, reason)
            case StopAsked():
                self.stopping = True
                running: Iterable[tuple[int, str | None]] = self.slots.items()
                return [Stop(slot, digest) for slot, digest in running if digest is not None]
            case _:
                return []

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
        return [Start(slot, digest, chain.incarnation)]

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

    def _ended(
        self, slot: int, digest: str, outcome: Literal["finished", "stopped", "failed"], reason: str
    ) -> list[Action]:
        chain = self.chains[digest]
        chain.status, chain.slot, chain.reason = outcome, None, reason
        failed: list[Action] = [Fail(digest, reason)] if outcome == "failed" else []
        return failed + self._assign(slot)
