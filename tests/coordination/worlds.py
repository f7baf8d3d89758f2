"""Simulated worlds of dying workers around a coordinator, each driven by one seed, that check it after every event."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from raychains.coordination import coordinator as c
from raychains.coordination.coordinator import Coordinator
from raychains.coordination.failure import MAX_FAILURES, POLICIES, FailurePolicy, Policy

SAMPLES = 4
"""Samples of a simulated chain."""
HALF = SAMPLES // 2
"""Samples of its first cycle, whose end a restart goes back to."""


class Claiming(Coordinator):
    """A coordinator whose claims a store answers at once, with the attempt after a chain's last one.

    Args:
        last: the last attempt that ever began of each unfinished chain.
        more: as for `Coordinator`.
    """

    def __init__(
        self, last: dict[str, int], max_failures: int = MAX_FAILURES, on_divergence: Policy = "stop", **more: Any
    ) -> None:
        policy = FailurePolicy(max_failures, on_divergence, more.pop("max_preemptions", None))
        super().__init__(last, policy, **more)
        self.last = Counter(last)

    def handle(self, event: c.Event) -> list[c.Action]:
        actions = super().handle(event)
        for at, action in enumerate(actions):
            if isinstance(action, c.Claim):
                self.last[action.digest] += 1
                claimed = c.Claimed(action.slot, action.digest, self.last[action.digest])
                return [*actions[:at], *self.handle(claimed), *actions[at + 1 :]]
        return actions


@dataclass
class Job:
    """A simulated worker's chain: what is durable and what it tells next."""

    digest: str
    attempt: int
    restart: int = 0
    told_began: bool = False
    suspended: bool = False


@dataclass
class World:
    """Workers, disks and late messages around a coordinator, driven by one seed."""

    seed: int
    number: int = 0
    """Chains; 0 for one to six."""
    slots: int = 3
    late: float = 0.15
    """How often a message of the past comes again."""
    started: bool = False
    """Each second chain starts at the one before it."""
    rng: random.Random = field(init=False)
    jobs: dict[int, Job | None] = field(default_factory=dict)
    slots_made: int = 0
    events: int = 0
    actions: int = 0
    most: int = 0
    """Actions that one event asked for."""
    losses: int = 0
    checkpoint: Counter[str] = field(default_factory=Counter)
    """Index that each chain's durable checkpoint continues from."""
    durable: dict[str, set[int]] = field(default_factory=dict)
    drawn_with: dict[str, dict[int, int]] = field(default_factory=dict)
    """Noise of every durable sample that counts."""
    position: dict[str, int] = field(default_factory=dict)
    """Next index of the running attempt."""
    pool: dict[str, list[int]] = field(default_factory=dict)
    attempts: dict[str, list[int]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    restart: Counter[str] = field(default_factory=Counter)
    """Noise that the durable checkpoint is on."""
    asked: Counter[str] = field(default_factory=Counter)
    """Noise that a restart asked for."""
    told: Counter[str] = field(default_factory=Counter)
    """Noise that the coordinator was told of."""
    path: dict[str, list[int]] = field(default_factory=dict)
    """Noise that each sample of the pool was drawn with."""
    past: list[c.Event] = field(default_factory=list)
    """What was told before, to be told again late."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        digests = [f"chain-{i}" for i in range(self.number or self.rng.randint(1, 6))]
        last = {d: self.rng.choice((0, 0, 3)) for d in digests}
        for d in digests:
            self.checkpoint[d] = self.rng.randint(0, SAMPLES - 1) if last[d] else 0
            self.durable[d] = set(range(self.checkpoint[d]))
            self.restart[d] = self.rng.choice((0, 0, 1)) if last[d] else 0
            self.drawn_with[d] = dict.fromkeys(self.durable[d], self.restart[d])
            self.pool[d], self.attempts[d], self.path[d] = [], [last[d]], []
        self.loss_rate = self.rng.choice((0.0, 0.05, 0.3))
        self.max_failures = self.rng.randint(0, 4)
        self.policy: Policy = self.rng.choice(POLICIES)
        self.divergence_rate = self.rng.choice((0.0, 0.02, 0.2))
        self.full_rate = self.rng.choice((0.0, 0.0, 0.0, 0.05))
        pairs = zip(digests[1::2], digests[::2], strict=False) if self.started else ()
        self.coordinator = Claiming(last, self.max_failures, self.policy, starts=dict(pairs))

    # One event after another

    def tell(self, event: c.Event) -> list[c.Action]:
        suspending = self.coordinator.suspending
        before = {d: s.attempt for d, s in self.coordinator.chains.items()}
        actions = self.coordinator.handle(event)
        self.past.append(event)
        self.events, self.actions = self.events + 1, self.actions + len(actions)
        self.most = max(self.most, len(actions))
        self.losses += isinstance(event, c.SlotLost)
        for action in actions:
            match action:
                case c.Start(slot, digest, attempt, restart):
                    assert not suspending and not self.coordinator.suspending, (
                        "a suspending coordinator started a chain"
                    )
                    assert self.jobs[slot] is None, "a busy slot was given a chain"
                    assert digest not in [j.digest for j in self.jobs.values() if j], "two slots on one chain"
                    assert not self.blocked(digest), "a chain was started before the one that it starts at was finished"
                    assert attempt > max(self.attempts[digest]), "an attempt did not rise"
                    self.attempts[digest].append(attempt)
                    assert restart == self.asked[digest], "on other noise than it was asked for"
                    self.jobs[slot] = Job(digest, attempt, restart)
                case c.Accept(digest, index):
                    assert isinstance(event, c.Sampled) and (event.digest, event.position) == (digest, index)
                    assert event.attempt == before[digest], "a stale attempt's sample was accepted"
                    assert index == len(self.pool[digest]), "a sample twice, or out of order"
                    self.pool[digest].append(index)
                    self.path[digest].append(self.restart[digest])
                case c.Recover(digest, index):
                    assert set(range(index)) <= self.durable[digest], "recovering what is not durable"
                    assert index > len(self.pool[digest])
                    self.path[digest] += [self.drawn_with[digest][i] for i in range(len(self.pool[digest]), index)]
                    self.pool[digest] = list(range(index))
                case c.Forget(digest, first):
                    assert first < len(self.pool[digest]), "forgetting what is not there"
                    del self.pool[digest][first:], self.path[digest][first:]
                case c.Restart(digest, restart):
                    assert self.policy == "restart-cycle" and restart == self.restart[digest] + 1 <= self.max_failures
                    self.asked[digest] = restart
                case c.Drop(digest):
                    assert self.policy == "drop-chain"
                    self.dropped[digest] += 1
                case c.Suspend(slot, digest):
                    job = self.jobs[slot]
                    assert job is not None and job.digest == digest
                    job.suspended = True
                case c.Release(slot):
                    assert not self.coordinator.queue or self.coordinator.suspending, "released while chains wait"
                    assert self.jobs.pop(slot) is None, "a busy slot was released"
                case c.Fail(digest):
                    self.failed[digest] += 1
        if not self.number or self.events % 100 == 0:
            self.check()
        return actions

    def blocked(self, digest: str) -> bool:
        """Return whether a chain waits for the one that it starts at."""
        start = self.coordinator.starts.get(digest)
        return start is not None and self.coordinator.chains[start].status != "finished"

    def check(self) -> None:
        chains = self.coordinator.chains
        running = Counter(j.digest for j in self.jobs.values() if j)
        assert all(n == 1 for n in running.values())
        assert {d for d, s in chains.items() if s.status == "running"} == set(running)
        ready = [d for d, s in chains.items() if s.status == "waiting" and not self.blocked(d)]
        assert sorted(self.coordinator.queue) == sorted(ready)
        for digest, start in self.coordinator.starts.items():
            if chains[start].status in ("failed", "dropped"):
                assert chains[digest].status == chains[start].status, "a chain outlived the one that it starts at"
        assert all(n == 1 and chains[d].status == "failed" for d, n in self.failed.items())
        assert all(n == 1 and chains[d].status == "dropped" for d, n in self.dropped.items())

    def step(self) -> None:
        choices = [self.progress, self.progress, self.progress, self.progress]
        if self.rng.random() < self.loss_rate:
            choices = [self.lose]
        elif self.rng.random() < self.late:
            choices = [self.repeat_the_past]
        if len(self.jobs) < self.slots:
            choices.append(self.appear)
        self.rng.choice(choices)()

    def appear(self) -> None:
        slot = self.slots_made
        self.slots_made += 1
        self.jobs[slot] = None
        self.tell(c.SlotReady(slot))

    def lose(self) -> None:
        if not self.jobs:
            return
        slot = self.rng.choice(sorted(self.jobs))
        job = self.jobs.pop(slot)
        self.leave_messages(slot, job)
        before = list(self.coordinator.queue)
        self.tell(c.SlotLost(slot, "the worker died"))
        if job is not None and self.coordinator.chains[job.digest].status == "waiting":
            assert list(self.coordinator.queue) == [job.digest, *before], "a lost chain goes to the head"
        else:
            assert list(self.coordinator.queue) == before

    def leave_messages(self, slot: int, job: Job | None) -> None:
        """What a worker believed dead went on to do: its messages may still come, ahead of its successor's."""
        if job is not None:
            at = (job.digest, job.attempt)
            self.past += [
                c.Began(*at, SAMPLES, 100),
                c.Ended(*at, "finished"),
                c.Ended(*at, "failed", "late"),
            ]
            self.past += [c.Sampled(*at, index) for index in range(SAMPLES)]

    def repeat_the_past(self) -> None:
        """A message of a chain's earlier attempt, or one of a slot long gone, comes late."""
        stale = [
            e
            for e in self.past
            if (isinstance(e, c.Began | c.Sampled | c.Ended) and not self.is_current(e))
            or (isinstance(e, c.SlotLost) and e.slot not in self.jobs)
        ]
        if stale:
            assert self.tell(self.rng.choice(stale)) == []

    def is_current(self, event: c.Began | c.Sampled | c.Ended) -> bool:
        jobs = [(j.digest, j.attempt) for j in self.jobs.values() if j]
        return (event.digest, event.attempt) in jobs

    def progress(self) -> None:
        busy = [(slot, job) for slot, job in sorted(self.jobs.items()) if job]
        if not busy:
            return
        slot, job = self.rng.choice(busy)
        at = (job.digest, job.attempt)
        if not job.told_began:
            job.told_began = True
            if job.restart > self.restart[job.digest]:  # back to the cycle's start, durably, before anything is told
                self.restart[job.digest] = job.restart
                self.checkpoint[job.digest] = HALF * (self.checkpoint[job.digest] >= HALF)
                if self.rng.random() < 0.1 and self.loss_rate:
                    return self.die(slot, job)
            index = self.checkpoint[job.digest]
            self.position[job.digest] = index
            self.told[job.digest] = self.restart[job.digest]
            self.tell(c.Began(*at, index, 10 * index, self.restart[job.digest]))
            return
        index = self.position[job.digest]
        if job.suspended or index == SAMPLES or self.rng.random() < 0.01:
            outcome = "suspended" if job.suspended else "finished" if index == SAMPLES else "failed"
            self.jobs[slot] = None
            self.checkpoint[job.digest] = index
            self.tell(c.Ended(*at, outcome, "why"))
            return
        if self.rng.random() < self.divergence_rate + self.full_rate:
            outcome = (
                "storage_refused"
                if self.rng.random() < self.full_rate / (self.divergence_rate + self.full_rate)
                else "diverged"
            )
            self.jobs[slot] = None
            self.tell(c.Ended(*at, outcome, "why"))
            return
        self.durable[job.digest].add(index)
        self.drawn_with[job.digest][index] = self.restart[job.digest]
        self.position[job.digest] = index + 1
        if self.rng.random() < 0.5:
            self.checkpoint[job.digest] = index + 1
        if self.rng.random() < 0.9 or not self.loss_rate:
            self.tell(c.Sampled(*at, index))
        else:  # the worker dies with a durable sample undelivered
            self.die(slot, job)

    def die(self, slot: int, job: Job) -> None:
        del self.jobs[slot]
        self.leave_messages(slot, job)
        self.tell(c.SlotLost(slot, "the worker died"))
