"""The coordinator as a pure state machine: (state, event) → actions. Its tests run thousands of simulated clusters
without Ray.

Chains wait in a queue, slots ask for work, samples are accepted from a chain's current attempt alone. `Sampling` in
`raychains.orchestration` turns what happens to workers into events and carries the actions out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from raychains.coordination.failure import FailurePolicy, Verdict

if TYPE_CHECKING:
    from raychains.store import SampleRecord

Status = Literal["waiting", "claiming", "running", "elsewhere", "finished", "suspended", "failed", "dropped"]
"""``claiming``: the store is asked for an attempt of the chain. ``elsewhere``: another living driver runs the chain."""
Ending = Literal["finished", "suspended", "failed", "diverged", "storage_refused", "lost"]
"""``lost`` reaches the coordinator as `SlotLost`; ``storage_refused``: it has no room, or takes no
files, so nothing that any chain did from here on could be kept."""


# Events


@dataclass(frozen=True)
class SlotReady:
    """A worker can take a chain."""

    slot: int
    kind: str = ""
    """That of the chains that it takes, where they share a program."""


@dataclass(frozen=True)
class SlotLost:
    """A worker died or its node vanished."""

    slot: int
    reason: str


@dataclass(frozen=True)
class NodeDraining:
    """The node of a worker is draining: a cloud takes a spot machine back, or an autoscaler one that is not needed."""

    slot: int


@dataclass(frozen=True)
class Began:
    """A worker runs the chain from its checkpoint at ``step`` on; its first ``drawn`` samples are durable already."""

    digest: str
    attempt: int
    drawn: int
    step: int = 0
    restart: int = 0
    """The noise streams that it is on: 0 are its spec's, higher ones those of restarts."""
    torn: Sequence[tuple[str, str]] = ()
    """Files and reasons of damaged checkpoints that were passed over."""


@dataclass(frozen=True)
class Sampled:
    """A durable sample arrived, the one at ``position`` among all of its chain."""

    digest: str
    attempt: int
    position: int
    record: SampleRecord | None = None
    data: Any = None
    """The reference of its file's bytes in the object store."""


@dataclass(frozen=True)
class Ended:
    """An attempt came to its end; the worker is free, unless the outcome is ``lost``: then its process is of no use any
    more."""

    digest: str
    attempt: int
    outcome: Ending
    reason: str = ""
    seconds: float = 0.0
    """Chain seconds of the whole chain so far."""
    cycle_start: int = 0
    """Steps before the cycle in which the chain diverged; 0 of other chains."""
    steps: int = 0
    """Steps that a finished chain made, fewer than its spec's where it stopped early; 0: all of them."""


@dataclass(frozen=True)
class Claimed:
    """The store reserved an attempt at the chain for this driver."""

    slot: int
    digest: str
    attempt: int


@dataclass(frozen=True)
class Refused:
    """A claim was refused: another driver runs the chain."""

    slot: int
    digest: str


@dataclass(frozen=True)
class Superseded:
    """Another driver began a later attempt at a running chain."""

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
class SuspendAsked:
    """The run is interrupted: running chains are suspended, waiting ones stay."""


PeerEvent = Refused | Superseded | Freed | DoneElsewhere
AttemptEvent = Began | Sampled | Ended
"""From the worker that runs the chain."""
Event = SlotReady | SlotLost | NodeDraining | Claimed | AttemptEvent | PeerEvent | SuspendAsked


# Actions


@dataclass(frozen=True)
class Claim:
    """Reserve the chain's next attempt for this driver: `Claimed` or `Refused` answers."""

    slot: int
    digest: str


@dataclass(frozen=True)
class Start:
    """Run ``digest`` on ``slot`` from its newest checkpoint.

    With a ``restart`` above that checkpoint's: from step ``restart_from``, a cycle's start, on the noise streams of
    that number. Where only earlier checkpoints are left it goes on as it is, and diverges there again.
    """

    slot: int
    digest: str
    attempt: int
    restart: int = 0
    restart_from: int = 0


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
    """The chain diverged and will be started from its cycle's start on the noise streams of number ``restart``."""

    digest: str
    restart: int
    reason: str


@dataclass(frozen=True)
class Drop:
    """The chain diverged and is given up; its arm is evaluated without it."""

    digest: str
    reason: str


@dataclass(frozen=True)
class Suspend:
    """Ask the slot's worker to end its attempt with a checkpoint after the next step: another attempt resumes it."""

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


Action = Claim | Start | Accept | Recover | Forget | Restart | Drop | Suspend | Release | Fail


@dataclass
class TrackedChain:
    """A chain as the coordinator tracks it."""

    attempt: int = 0
    """Number of the last attempt that this driver started; other drivers' attempts count too."""
    status: Status = "waiting"
    slot: int | None = None
    accepted: int = 0
    """Samples in the pool; they come in order, so this is also the next position."""
    reached: int = 0
    """Samples that the pool ever held of it."""
    step: int = 0
    """The furthest checkpoint that an attempt began from."""
    failures: int = 0
    """Losses since the last progress."""
    preemptions: int = 0
    """Times that it left a draining node; no failures."""
    restart: int = 0
    """The noise streams of the last attempt that began."""
    due: int = 0
    """Noise streams of the next attempt, when a divergence asked for others."""
    due_from: int = 0
    """The step from which they are asked for."""
    reason: str = ""


@dataclass
class Coordinator:
    """Hands chains to slots until no chain is left.

    Args:
        unfinished: digests of the chains in the order to run them.
        policy: decides on chains whose workers die, whose nodes drain, and that diverge.
        inexact: chains that take another path from every checkpoint: samples after it are forgotten.
        starts: by digest the unfinished chains that others start at: these wait for them, and are given up with them.
        kinds: those of packed chains, by digest: a slot takes those of its own kind, and one without a kind all others.
            A chain whose next loss would give it up becomes a kind of its own, so that one which ends its process does
            not take the others of its pack along.
    """

    unfinished: Collection[str]
    policy: FailurePolicy = field(default_factory=FailurePolicy)
    inexact: Collection[str] = ()
    starts: Mapping[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    chains: dict[str, TrackedChain] = field(init=False)
    queue: deque[str] = field(init=False)
    slots: dict[int, str | None] = field(init=False, default_factory=dict)
    hosts: dict[int, str] = field(init=False, default_factory=dict)
    """Kinds of slots that have one."""
    draining: set[int] = field(init=False, default_factory=set)
    """Slots whose nodes are draining."""
    suspending: bool = field(init=False, default=False)
    storage_refused: str | None = field(init=False, default=None)
    """Why the storage took no more, when that ended the run."""

    def __post_init__(self) -> None:
        self.chains = {digest: TrackedChain() for digest in self.unfinished}
        self.queue = deque(digest for digest in self.chains if digest not in self.starts)
        self.kinds = dict(self.kinds)
        self._place = {digest: n for n, digest in enumerate(self.chains)}

    def starting_at(self, digest: str) -> list[str]:
        """Return the digests of the chains that start at this one, in their order."""
        return [d for d, start in self.starts.items() if start == digest]

    @property
    def over(self) -> bool:
        """Return whether no chain runs and none will."""
        if any(digest is not None for digest in self.slots.values()):
            return False
        return self.suspending or not (self.queue or self.with_status("elsewhere"))

    def with_status(self, *statuses: Status) -> list[str]:
        """Return the digests of the chains in these statuses."""
        return [d for d, c in self.chains.items() if c.status in statuses]

    def handle(self, event: Event) -> list[Action]:
        """Return what to do about ``event``; stale attempts and slots are ignored."""
        match event:
            case SlotReady(slot, kind):
                self.slots[slot] = None
                if kind:
                    self.hosts[slot] = kind
                return self._assign(slot)
            case SlotLost(slot, reason):
                return self._lost(slot, reason)
            case NodeDraining(slot):
                return self._drain(slot)
            case Claimed(slot, digest, attempt):
                return self._claimed(slot, digest, attempt)
            case Began(digest, attempt) if self._current(digest, attempt):
                return self._began(event)
            case Sampled(digest, attempt, position) if self._current(digest, attempt):
                return self._sampled(digest, position)
            case Ended(digest, attempt, outcome, reason) if self._current(digest, attempt):
                if outcome == "diverged":
                    self.chains[digest].due_from = event.cycle_start
                return self._ended(digest, outcome, reason)
            case Refused() | Superseded() | Freed() | DoneElsewhere():
                return self._elsewhere(event)
            case SuspendAsked():
                return self._suspend_all()
            case _:
                return []

    def _began(self, event: Began) -> list[Action]:
        digest, drawn, step, restart = event.digest, event.drawn, event.step, event.restart
        chain = self.chains[digest]
        if restart != chain.restart:  # another path from its ``drawn``-th sample on
            return self._another_path(digest, drawn, step, restart)
        if step > chain.step:  # hours may lie between samples: a checkpoint further on is progress too
            chain.step, chain.failures = step, 0
        if digest in self.inexact and drawn < chain.accepted:
            return self._another_path(digest, drawn, step, restart)
        # After a loss the pool may hold samples after the checkpoint; they are drawn again and stay as they are.
        missing: list[Action] = [Recover(digest, drawn)] if chain.accepted < drawn else []
        chain.accepted = max(chain.accepted, drawn)
        return missing

    def _sampled(self, digest: str, position: int) -> list[Action]:
        chain = self.chains[digest]
        if position < chain.accepted:
            return []
        chain.accepted = position + 1
        if digest not in self.inexact or position >= chain.reached:  # a sample that is drawn again is no progress
            chain.failures, chain.reached = 0, position + 1
        return [Accept(digest, position)]

    def _claimed(self, slot: int, digest: str, attempt: int) -> list[Action]:
        chain = self.chains[digest]
        if chain.status != "claiming" or chain.slot != slot:
            return []
        if self.suspending or slot in self.draining:
            chain.status, chain.slot = "waiting", None
            self.queue.appendleft(digest)
            return self._assign(slot)
        chain.status, chain.attempt = "running", attempt
        return [Start(slot, digest, attempt, chain.due, chain.due_from)]

    def _elsewhere(self, event: PeerEvent) -> list[Action]:
        """Follow what other drivers do with a chain."""
        chain = self.chains[event.digest]
        match event:
            case Refused(slot, digest) if chain.status == "claiming" and chain.slot == slot:
                chain.status, chain.slot, self.slots[slot] = "elsewhere", None, None
                return self._assign(slot)
            case Superseded(digest) if chain.status == "running" and chain.slot is not None:
                return [Suspend(chain.slot, digest)]
            case Freed(digest) if chain.status == "elsewhere":
                chain.status = "waiting"
                self.queue.append(digest)
            case DoneElsewhere(digest, samples) if chain.status == "elsewhere":
                own, chain.accepted = chain.accepted, samples
                chain.status = "finished"
                self._begin_those_at(digest)
                forget: list[Action] = [Forget(digest, 0)] if own else []  # those of a path that was superseded
                return [*forget, Recover(digest, samples)]
        return []

    def _another_path(self, digest: str, drawn: int, step: int, restart: int) -> list[Action]:
        chain = self.chains[digest]
        chain.restart, chain.step = restart, step
        before, chain.accepted = chain.accepted, drawn
        if before == drawn:
            return []
        return [Forget(digest, drawn)] if before > drawn else [Recover(digest, drawn)]

    def _suspend_all(self) -> list[Action]:
        self.suspending = True
        busy = [(slot, digest) for slot, digest in self.slots.items() if digest is not None]
        return [Suspend(slot, digest) for slot, digest in busy if self.chains[digest].status == "running"]

    def _current(self, digest: str, attempt: int) -> bool:
        chain = self.chains.get(digest)
        return chain is not None and chain.status == "running" and chain.attempt == attempt

    def _drain(self, slot: int) -> list[Action]:
        """Have the slot's chain write a checkpoint, from which it goes on elsewhere; the slot takes no other."""
        if slot in self.draining:
            return []
        digest = self.slots.get(slot)
        if digest is None:
            return [Release(slot)]  # its worker is not up yet
        self.draining.add(slot)
        return [Suspend(slot, digest)] if self.chains[digest].status == "running" else []

    def _preempted(self, digest: str) -> list[Action]:
        chain = self.chains[digest]
        chain.preemptions += 1
        return self._obey(digest, self.policy.preempted(chain.preemptions))

    def _assign(self, slot: int) -> list[Action]:
        kind = self.hosts.get(slot, "")
        digest = next((digest for digest in self.queue if self.kinds.get(digest, "") == kind), None)
        if self.suspending or digest is None or slot in self.draining:
            del self.slots[slot]
            self.hosts.pop(slot, None)
            self.draining.discard(slot)
            return [Release(slot)]
        self.queue.remove(digest)
        chain = self.chains[digest]
        chain.status, chain.slot = "claiming", slot
        self.slots[slot] = digest
        return [Claim(slot, digest)]

    def _lost(self, slot: int, reason: str) -> list[Action]:
        digest = self.slots.pop(slot, None)
        self.hosts.pop(slot, None)
        if digest is None:
            return []
        chain = self.chains[digest]
        chain.slot = None
        if slot in self.draining and not self.suspending:
            self.draining.discard(slot)
            return self._preempted(digest)
        chain.failures += 1
        verdict = self.policy.lost(chain.failures, reason)
        if verdict.alone and digest in self.kinds:
            self.kinds[digest] = digest
        return self._obey(digest, verdict)

    def _ended(self, digest: str, outcome: Ending, reason: str) -> list[Action]:
        chain = self.chains[digest]
        slot = chain.slot
        assert slot is not None and outcome != "lost"
        chain.slot, chain.reason, self.slots[slot] = None, reason, None
        first: list[Action] = []
        if outcome == "diverged":
            first = self._obey(digest, self.policy.diverged(chain.restart, reason))
        elif outcome == "storage_refused":
            chain.status = "suspended"
            first = [] if self.suspending else self._suspend_all()
            self.storage_refused = self.storage_refused or reason
        elif outcome == "suspended" and slot in self.draining and not self.suspending:
            first = self._preempted(digest)
        else:
            # Without a request it was suspended for another driver that has the chain.
            left = outcome == "suspended" and not self.suspending
            chain.status = "elsewhere" if left else outcome
            if outcome == "failed":
                first = self._obey(digest, Verdict("fail", reason))
            elif outcome == "finished":
                self._begin_those_at(digest)
        return first + self._assign(slot)

    def _obey(self, digest: str, verdict: Verdict) -> list[Action]:
        """Queue a chain again, or give it up, and with it those that start at it."""
        chain = self.chains[digest]
        if verdict.remedy in ("fail", "drop"):
            dropped, chain.reason = verdict.remedy == "drop", verdict.reason
            chain.status = "dropped" if dropped else "failed"
            those = verdict.of_those_at(digest)
            gone = Drop(digest, verdict.reason) if dropped else Fail(digest, verdict.reason)
            return [gone, *(a for other in self.starting_at(digest) for a in self._obey(other, those))]
        chain.status = "waiting"
        self.queue.appendleft(digest)
        if verdict.remedy == "again":
            return []
        chain.due = chain.restart + 1
        return [Restart(digest, chain.due, verdict.reason)]

    # Chains that start at others

    def _begin_those_at(self, digest: str) -> None:
        """Queue the chains that start at one that finished, where they stand in the run's order."""
        for other in self.starting_at(digest):
            if self.chains[other].status == "waiting" and other not in self.queue:
                place = self._place[other]
                at = next((n for n, d in enumerate(self.queue) if self._place[d] > place), len(self.queue))
                self.queue.insert(at, other)
