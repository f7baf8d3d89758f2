"""The coordinator against simulated worlds of dying workers: what holds after every event, and single decisions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from raychains.planning import coordinator as c
from raychains.planning.coordinator import Coordinator

WORLDS = 3000
SAMPLES = 4
"""Samples of a simulated chain."""


@dataclass
class Job:
    """A simulated worker's chain: what is durable and what it tells next."""

    digest: str
    incarnation: int
    told_began: bool = False
    stop: bool = False


@dataclass
class World:
    """Workers, disks and late messages around a coordinator, driven by one seed."""

    seed: int
    rng: random.Random = field(init=False)
    jobs: dict[int, Job | None] = field(default_factory=dict)
    slots_made: int = 0
    checkpoint: Counter[str] = field(default_factory=Counter)
    """Index that each chain's durable checkpoint continues from."""
    durable: dict[str, set[int]] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    """Next index of the running incarnation."""
    pool: dict[str, list[int]] = field(default_factory=dict)
    incarnations: dict[str, list[int]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    past: list[c.Event] = field(default_factory=list)
    """What was told before, to be told again late."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        digests = [f"chain-{i}" for i in range(self.rng.randint(1, 6))]
        last = {d: self.rng.choice((0, 0, 3)) for d in digests}
        for d in digests:
            self.checkpoint[d] = self.rng.randint(0, SAMPLES - 1) if last[d] else 0
            self.durable[d] = set(range(self.checkpoint[d]))
            self.pool[d], self.incarnations[d] = [], [last[d]]
        self.loss_rate = self.rng.choice((0.0, 0.05, 0.3))
        self.max_failures = self.rng.randint(0, 4)
        self.coordinator = Coordinator(last, self.max_failures)

    # One event after another

    def tell(self, event: c.Event) -> list[c.Action]:
        stopping = self.coordinator.stopping
        before = {d: s.incarnation for d, s in self.coordinator.chains.items()}
        actions = self.coordinator.handle(event)
        self.past.append(event)
        for action in actions:
            match action:
                case c.Start(slot, digest, incarnation):
                    assert not stopping and not self.coordinator.stopping, "a stopping coordinator started a chain"
                    assert self.jobs[slot] is None, "a busy slot was given a chain"
                    assert digest not in [j.digest for j in self.jobs.values() if j], "two slots on one chain"
                    assert incarnation > max(self.incarnations[digest]), "an incarnation did not rise"
                    self.incarnations[digest].append(incarnation)
                    self.jobs[slot] = Job(digest, incarnation)
                case c.Accept(digest, index):
                    assert isinstance(event, c.Sampled) and (event.digest, event.position) == (digest, index)
                    assert event.incarnation == before[digest], "a stale incarnation's sample was accepted"
                    assert index == len(self.pool[digest]), "a sample twice, or out of order"
                    self.pool[digest].append(index)
                case c.Recover(digest, index):
                    assert set(range(index)) <= self.durable[digest], "recovering what is not durable"
                    assert index > len(self.pool[digest])
                    self.pool[digest] = list(range(index))
                case c.Stop(slot, digest):
                    job = self.jobs[slot]
                    assert job is not None and job.digest == digest
                    job.stop = True
                case c.Release(slot):
                    assert not self.coordinator.queue or self.coordinator.stopping, "released while chains wait"
                    assert self.jobs.pop(slot) is None, "a busy slot was released"
                case c.Fail(digest):
                    self.failed[digest] += 1
        self.check()
        return actions

    def check(self) -> None:
        chains = self.coordinator.chains
        running = Counter(j.digest for j in self.jobs.values() if j)
        assert all(n == 1 for n in running.values())
        assert {d for d, s in chains.items() if s.status == "running"} == set(running)
        assert sorted(self.coordinator.queue) == sorted(d for d, s in chains.items() if s.status == "waiting")
        assert all(n == 1 and chains[d].status == "failed" for d, n in self.failed.items())

    def step(self) -> None:
        choices = [self.progress, self.progress, self.progress, self.progress]
        if self.rng.random() < self.loss_rate:
            choices = [self.lose]
        elif self.rng.random() < 0.15:
            choices = [self.repeat_the_past]
        if len(self.jobs) < 3:
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
            at = (slot, job.digest, job.incarnation)
            self.past += [c.Began(*at, SAMPLES, 100), c.Ended(*at, "finished"), c.Ended(*at, "failed", "late")]
            self.past += [c.Sampled(*at, index) for index in range(SAMPLES)]

    def repeat_the_past(self) -> None:
        """A message of a chain's earlier incarnation, or one of a slot long gone, comes late."""
        stale = [
            e
            for e in self.past
            if (isinstance(e, c.Began | c.Sampled | c.Ended) and not self.is_current(e))
            or (isinstance(e, c.SlotLost) and e.slot not in self.jobs)
        ]
        if stale:
            assert self.tell(self.rng.choice(stale)) == []

    def is_current(self, event: c.Began | c.Sampled | c.Ended) -> bool:
        jobs = [(j.digest, j.incarnation) for j in self.jobs.values() if j]
        return (event.digest, event.incarnation) in jobs

    def progress(self) -> None:
        busy = [(slot, job) for slot, job in sorted(self.jobs.items()) if job]
        if not busy:
            return
        slot, job = self.rng.choice(busy)
        at = (slot, job.digest, job.incarnation)
        if not job.told_began:
            job.told_began = True
            index = self.checkpoint[job.digest]
            self.position[job.digest] = index
            self.tell(c.Began(*at, index, 10 * index))
            return
        index = self.position[job.digest]
        if job.stop or index == SAMPLES or self.rng.random() < 0.01:
            outcome = "stopped" if job.stop else "finished" if index == SAMPLES else "failed"
            self.jobs[slot] = None
            self.checkpoint[job.digest] = index
            self.tell(c.Ended(*at, outcome, "why"))
            return
        self.durable[job.digest].add(index)
        self.position[job.digest] = index + 1
        if self.rng.random() < 0.5:
            self.checkpoint[job.digest] = index + 1
        if self.rng.random() < 0.9 or not self.loss_rate:
            self.tell(c.Sampled(*at, index))
        else:  # the worker dies with a durable sample undelivered
            del self.jobs[slot]
            self.leave_messages(slot, job)
            self.tell(c.SlotLost(slot, "the worker died"))


@pytest.mark.parametrize("tenth", range(10))
def test_invariants_hold_in_simulated_worlds_and_every_chain_ends(tenth: int) -> None:
    for seed in range(tenth * WORLDS // 10, (tenth + 1) * WORLDS // 10):
        world = World(seed)
        stop_at = world.rng.randint(0, 60) if seed % 3 == 0 else None
        for n in range(2000):
            if n == stop_at:
                world.tell(c.StopAsked())
            if world.coordinator.over:
                break
            world.step()
        machine = world.coordinator
        assert machine.over, f"seed {seed} came to no end"
        for digest, chain in machine.chains.items():
            ends = ("finished", "failed", "stopped", "waiting") if machine.stopping else ("finished", "failed")
            assert chain.status in ends, f"seed {seed}: {digest} is {chain.status}"
            if chain.status == "finished":
                assert world.pool[digest] == list(range(SAMPLES)), f"seed {seed}: {digest} lacks samples"


def test_the_simulated_worlds_see_every_kind_of_action_and_end() -> None:
    """The invariants above would hold in a world where nothing happens."""
    actions: Counter[type] = Counter()
    ends: Counter[str] = Counter()
    retold = 0
    for seed in range(300):
        world = World(seed)
        handle = world.coordinator.handle

        def spy(event: c.Event, handle=handle) -> list[c.Action]:  # type: ignore[no-untyped-def]
            found = handle(event)
            actions.update(map(type, found))
            return found

        world.coordinator.handle = spy  # type: ignore[method-assign]
        for n in range(2000):
            if n == 30 and seed % 3 == 0:
                world.tell(c.StopAsked())
            if world.coordinator.over:
                break
            world.step()
        ends.update(s.status for s in world.coordinator.chains.values())
        retold += len(world.past) - len(set(world.past))
    assert set(actions) == {c.Start, c.Accept, c.Recover, c.Stop, c.Release, c.Fail}
    assert set(ends) == {"finished", "failed", "stopped", "waiting"} and retold > 100


# Single decisions


def machine(*digests: str, max_failures: int = 2) -> Coordinator:
    return Coordinator(dict.fromkeys(digests, 0), max_failures)


def test_chains_start_in_order_and_a_slot_without_work_is_released() -> None:
    m = machine("a", "b")
    assert m.handle(c.SlotReady(7)) == [c.Start(7, "a", 1)]
    assert m.handle(c.SlotReady(8)) == [c.Start(8, "b", 1)]
    assert m.handle(c.SlotReady(9)) == [c.Release(9)]
    assert not m.over
    assert m.handle(c.Ended(7, "a", 1, "finished")) == [c.Release(7)]
    assert m.handle(c.Ended(8, "b", 1, "finished")) == [c.Release(8)]
    assert m.over and m.with_status("finished") == ["a", "b"]


def test_incarnations_continue_from_the_last_that_ever_began() -> None:
    assert Coordinator({"a": 41}).handle(c.SlotReady(0)) == [c.Start(0, "a", 42)]


def test_a_chain_is_given_up_after_one_loss_more_than_it_survives() -> None:
    m = machine("a", max_failures=2)
    for slot in range(2):
        assert m.handle(c.SlotReady(slot)) == [c.Start(slot, "a", slot + 1)]
        assert m.handle(c.SlotLost(slot, "gone")) == [] and m.with_status("waiting") == ["a"]
    m.handle(c.SlotReady(2))
    [failed] = m.handle(c.SlotLost(2, "gone"))
    assert failed == c.Fail("a", "gone (3 losses in a row without progress)")
    assert m.over and m.with_status("failed") == ["a"]


@pytest.mark.parametrize("progress", ["sample", "checkpoint"])
def test_a_chain_that_progresses_between_losses_is_never_given_up(progress: str) -> None:
    """Hours may lie between two samples, so that a checkpoint further on counts as well."""
    m = machine("a", max_failures=1)
    for n in range(20):
        [start] = m.handle(c.SlotReady(n))
        assert isinstance(start, c.Start)
        if progress == "sample":
            assert m.handle(c.Began(n, "a", start.incarnation, n, 0)) == []
            assert m.handle(c.Sampled(n, "a", start.incarnation, n)) == [c.Accept("a", n)]
        else:
            assert m.handle(c.Began(n, "a", start.incarnation, 0, 100 * n)) == []
        assert m.handle(c.SlotLost(n, "gone")) == []


def test_the_same_checkpoint_again_and_samples_drawn_again_are_no_progress() -> None:
    m = machine("a", max_failures=2)
    m.handle(c.SlotReady(0))
    m.handle(c.Began(0, "a", 1, 0, 100))
    m.handle(c.Sampled(0, "a", 1, 0))
    m.handle(c.SlotLost(0, "gone"))
    for n in (1, 2):
        m.handle(c.SlotReady(n))
        assert m.handle(c.Began(n, "a", n + 1, 0, 100)) == []
        assert m.handle(c.Sampled(n, "a", n + 1, 0)) == []
        actions = m.handle(c.SlotLost(n, "gone"))
    assert [type(a) for a in actions] == [c.Fail]


def test_an_error_that_the_chain_raised_is_not_tried_again() -> None:
    m = machine("a", "b")
    m.handle(c.SlotReady(0))
    assert m.handle(c.Ended(0, "a", 1, "failed", "lr too large")) == [
        c.Fail("a", "lr too large"),
        c.Start(0, "b", 1),
    ]


def test_samples_behind_a_checkpoint_that_the_pool_lacks_are_recovered_once() -> None:
    m = Coordinator({"a": 4})
    m.handle(c.SlotReady(0))
    assert m.handle(c.Began(0, "a", 5, 3, 30)) == [c.Recover("a", 3)]
    assert m.handle(c.Sampled(0, "a", 5, 3)) == [c.Accept("a", 3)]
    m.handle(c.SlotLost(0, "gone"))
    m.handle(c.SlotReady(1))
    assert m.handle(c.Began(1, "a", 6, 3, 30)) == []
    assert m.handle(c.Sampled(1, "a", 6, 3)) == [], "index 3 is in the pool"
    assert m.handle(c.Sampled(1, "a", 6, 4)) == [c.Accept("a", 4)]


def test_a_stopped_coordinator_stops_what_runs_and_keeps_what_waits() -> None:
    m = machine("a", "b")
    m.handle(c.SlotReady(0))
    assert m.handle(c.StopAsked()) == [c.Stop(0, "a")]
    assert not m.over
    assert m.handle(c.SlotReady(1)) == [c.Release(1)]
    assert m.handle(c.Ended(0, "a", 1, "stopped")) == [c.Release(0)]
    assert m.over and m.with_status("stopped") == ["a"] and m.with_status("waiting") == ["b"]


def test_a_worker_that_dies_before_it_was_ready_changes_nothing() -> None:
    m = machine("a")
    assert m.handle(c.SlotLost(5, "no such package")) == []
    assert list(m.queue) == ["a"] and m.chains["a"].failures == 0
