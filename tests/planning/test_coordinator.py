"""The coordinator against simulated worlds of dying workers: what holds after every event."""

from __future__ import annotations

from collections import Counter

import pytest

from raychains.planning import coordinator as c
from tests.planning.worlds import SAMPLES, World

WORLDS = 3000


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
            ends = ("finished", "failed", "dropped") + ("stopped", "waiting") * machine.stopping
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
                world.tell(c.StopAsked())
            if world.coordinator.over:
                break
            world.step()
        ends.update(s.status for s in world.coordinator.chains.values())
        full += world.coordinator.full is not None
        retold += len(world.past) - len(set(world.past))
    kinds = {c.Start, c.Accept, c.Recover, c.Forget, c.Restart, c.Drop, c.Stop, c.Release, c.Fail}
    assert set(actions) == kinds
    assert set(ends) == {"finished", "failed", "dropped", "stopped", "waiting"} and retold > 100
    assert full > 5
