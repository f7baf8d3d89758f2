"""The coordinator against simulated worlds of dying workers: what holds after every event."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from raychains.coordination import coordinator as c
from raychains.coordination.coordinator import Coordinator
from tests.coordination.worlds import SAMPLES, Claiming, World

WORLDS = 3000


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("tenth", range(10))
def test_invariants_hold_in_simulated_worlds_and_every_chain_ends(tenth: int, started: bool) -> None:
    for seed in range(tenth * WORLDS // 10, (tenth + 1) * WORLDS // 10):
        world = World(seed, started=started)
        stop_at = world.rng.randint(0, 60) if seed % 3 == 0 else None
        for n in range(2000):
            if n == stop_at:
                world.tell(c.SuspendAsked())
            if world.coordinator.over:
                break
            world.step()
        machine = world.coordinator
        assert machine.over, f"seed {seed} came to no end"
        for digest, chain in machine.chains.items():
            ends = ("finished", "failed", "dropped") + ("suspended", "waiting") * machine.suspending
            assert chain.status in ends, f"seed {seed}: {digest} is {chain.status}"
            if chain.status == "finished":
                assert world.pool[digest] == list(range(SAMPLES)), f"seed {seed}: {digest} lacks samples"
                drawn_with = [world.drawn_with[digest][i] for i in range(SAMPLES)]
                assert world.path[digest] == drawn_with == sorted(drawn_with), f"seed {seed}: {digest} is no one path"


def test_the_simulated_worlds_see_every_kind_of_action_and_end() -> None:
    """The invariants above would hold in a world where nothing happens."""
    actions: Counter[type] = Counter()
    ends: Counter[str] = Counter()
    retold = full = 0
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
                world.tell(c.SuspendAsked())
            if world.coordinator.over:
                break
            world.step()
        ends.update(s.status for s in world.coordinator.chains.values())
        full += world.coordinator.storage_refused is not None
        retold += len(world.past) - len(set(world.past))
    kinds = {c.Start, c.Accept, c.Recover, c.Forget, c.Restart, c.Drop, c.Suspend, c.Release, c.Fail}
    assert set(actions) == kinds
    assert set(ends) == {"finished", "failed", "dropped", "suspended", "waiting"} and retold > 100
    assert full > 5


# Many chains


CHAINS, SLOTS = 1000, 64
SEED = 12
"""Of a world in which a chain survives three losses."""

MOST_ACTIONS = 3
"""That one event may ask for: something about its chain, and the slot's next one."""


def test_a_thousand_chains_on_dying_slots_all_end_and_events_cost_a_constant() -> None:
    world = World(SEED, number=CHAINS, slots=SLOTS, late=0.0)
    world.loss_rate, world.divergence_rate, world.full_rate = 0.05, 0.0, 0.0
    while not world.coordinator.over:
        world.step()
    world.check()
    ends = Counter(chain.status for chain in world.coordinator.chains.values())
    assert not world.jobs and not world.coordinator.slots and set(ends) == {"finished", "failed"}
    finished = world.coordinator.with_status("finished")
    assert all(world.pool[d] == list(range(SAMPLES)) for d in finished) and len(finished) > 0.9 * CHAINS
    assert world.losses > CHAINS // 10, "hardly anything was lost"
    # One start, one beginning and one end of each attempt, its samples, and a slot's coming and going.
    assert sum(len(attempts) - 1 for attempts in world.attempts.values()) <= CHAINS + world.losses
    assert world.most <= MOST_ACTIONS and world.actions <= 2 * world.events
    assert world.events <= (SAMPLES + 2) * CHAINS + (SAMPLES + 3) * world.losses + SLOTS


def test_no_event_looks_at_all_chains() -> None:
    """What an event costs must not grow with the chains: the coordinator's dicts are counted, not its seconds."""
    looked = [_looks(chains) for chains in (100, 1000)]
    assert looked[0] == looked[1] > 0


class Counted(dict[str, c.TrackedChain]):
    looks = 0

    def __getitem__(self, digest: str) -> c.TrackedChain:
        self.looks += 1
        return super().__getitem__(digest)

    def get(self, digest: str, default: object = None) -> c.TrackedChain | None:  # type: ignore[override]
        self.looks += 1
        return super().get(digest)

    def values(self):  # type: ignore[no-untyped-def, override]
        self.looks += len(self)
        return super().values()

    def items(self):  # type: ignore[no-untyped-def, override]
        self.looks += len(self)
        return super().items()


def _looks(chains: int) -> int:
    """How many chains are looked at while the first one runs to its end, one is lost, and a third begins."""
    machine = Claiming({f"chain-{n}": 0 for n in range(chains)})
    machine.chains = counted = Counted(machine.chains)
    for event in (
        c.SlotReady(0), c.Began("chain-0", 1, 0), c.Sampled("chain-0", 1, 0), c.SlotReady(1), c.SlotLost(1, "gone"),
        c.Ended("chain-0", 1, "finished"), c.Began("chain-1", 2, 0), c.SlotReady(2),
    ):  # fmt: skip
        machine.handle(event)
        assert not machine.over
    return counted.looks


# Chains that start at others


def begun(machine: c.Coordinator, slot: int) -> list[c.Action]:
    machine.handle(c.SlotReady(slot))
    digest = machine.slots.get(slot)
    return machine.handle(c.Began(digest, machine.chains[digest].attempt, 0)) if digest is not None else []


def running(starts: dict[str, str], *more: Any, **settings: Any) -> Claiming:
    """Two slots on three chains, of which some wait for the others."""
    machine = Claiming(dict.fromkeys("abc", 0), *more, starts=starts, **settings)
    for slot in (1, 2):
        begun(machine, slot)
    return machine


def test_a_chain_waits_for_the_one_that_it_starts_at_and_then_keeps_its_place() -> None:
    machine = running({"b": "a"})
    assert machine.slots == {1: "a", 2: "c"} and not machine.queue
    [start] = machine.handle(c.Ended("a", 1, "finished"))
    assert isinstance(start, c.Start) and (start.digest, start.slot) == ("b", 1)
    both = Claiming(dict.fromkeys("abcd", 0), starts={"b": "a", "c": "a"})
    begun(both, 1)
    assert list(both.queue) == ["d"]
    both.handle(c.Ended("a", 1, "finished"))
    assert both.slots == {1: "b"} and list(both.queue) == ["c", "d"]


def test_a_chain_whose_start_another_driver_finishes_runs_here() -> None:
    machine = Coordinator(["a", "b"], starts={"b": "a"})
    machine.handle(c.SlotReady(1))
    assert machine.handle(c.Refused(1, "a")) == [c.Release(1)] and not machine.over
    machine.handle(c.DoneElsewhere("a", 1))
    assert list(machine.queue) == ["b"] and not machine.over
    assert machine.handle(c.SlotReady(2)) == [c.Claim(2, "b")]


@pytest.mark.parametrize("how", ["failed", "diverged", "lost", "dropped", "left"])
def test_a_chain_ends_with_the_one_that_it_starts_at_in_one_line(how: str) -> None:
    policy = {"dropped": "drop-chain"}.get(how, "stop")
    machine = running({"b": "a"}, 0, policy, max_preemptions=0)
    if how == "lost":
        told = machine.handle(c.SlotLost(1, "Traceback\nits node is gone"))
    elif how == "left":
        machine.handle(c.NodeDraining(1))
        told = machine.handle(c.Ended("a", 1, "suspended"))
    else:
        outcome: Any = {"dropped": "diverged"}.get(how, how)
        told = machine.handle(c.Ended("a", 1, outcome, "Traceback\nValueError: no"))
    kind, verb = (c.Drop, "was dropped") if how == "dropped" else (c.Fail, "failed")
    [own, other] = [a for a in told if isinstance(a, c.Fail | c.Drop)]
    assert isinstance(own, kind) and isinstance(other, kind) and (own.digest, other.digest) == ("a", "b")
    assert other.reason.startswith(f"chain a, which it starts at, {verb}: ") and "\n" not in other.reason
    assert machine.chains["b"].reason == other.reason and not machine.over  # c still runs
    machine.handle(c.Ended("c", 1, "finished"))
    assert machine.over


def test_a_restarted_or_retried_start_keeps_its_followers_waiting() -> None:
    machine = running({"b": "a"}, 3, "restart-cycle")
    machine.handle(c.Ended("a", 1, "diverged", "nan"))
    machine.handle(c.Began("a", 2, 0, 0, 1))
    machine.handle(c.SlotLost(1, "gone"))
    assert machine.chains["b"].status == "waiting" and list(machine.queue) == ["a"]
    machine.handle(c.SuspendAsked())
    machine.handle(c.Ended("c", 1, "suspended"))
    assert machine.over and machine.chains["b"].status == "waiting"
