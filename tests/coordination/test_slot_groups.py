"""Chains of several workers beside others on one cluster: groups are given whole, so every chain ends; and who
waits."""

from __future__ import annotations

from collections import Counter

import pytest

from raychains.coordination.capacity import Node
from tests.coordination.crowds import Crowd, Run, crowd

CASES = 500
MOST_EVENTS = 5000


def through(world: Crowd) -> Crowd:
    while not world.over:
        world.step()
        assert world.events < MOST_EVENTS, "no end in sight"
    return world


def test_every_chain_of_crowded_clusters_ends_and_nothing_is_held_twice() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CASES):
        world = through(crowd(seed))
        world.free()
        for run in world.runs:
            assert run.ended == dict.fromkeys(run.lengths, 1), seed
            assert not run.groups and not run.jobs
            failed = run.coordinator.with_status("failed")
            assert all(run.drawn[d] == n for d, n in run.lengths.items() if d not in failed)
            seen["groups"] += run.ranks > 1
            seen["failed"] += len(failed)
            seen["losses"] += max(s.attempt for s in run.coordinator.chains.values()) > 1
        whole = sum(node.cpus for node in world.nodes)
        seen["crowded"] += sum(run.ranks * len(run.lengths) for run in world.runs) > whole
    assert seen["groups"] > CASES and seen["losses"] > CASES // 2 and seen["crowded"] > CASES // 4, seen


# Who waits


def shared(slots: int, concurrent: int) -> list[str]:
    """The order in which chains started: 20 of one worker and 2 of eight on nodes of four; the small ones came
    first."""
    small = Run("small", 1, 0.0, {f"small-{i}": 3 for i in range(20)}, concurrent)
    big = Run("big", 8, 0.0, {f"big-{i}": 3 for i in range(2)})
    world = Crowd(0, [Node(4.0)] * (slots // 4), [small])
    world.death_rate = 0.0
    world.step()
    world.runs.append(big)
    return [name for name, _ in through(world).order]


@pytest.mark.parametrize("slots", [8, 12])
def test_a_group_waits_until_a_run_of_small_chains_has_none_left(slots: int) -> None:
    """A worker takes the next chain of its own run: its slot is free for others once no chain of that run waits."""
    assert shared(slots, 10**9) == ["small"] * 20 + ["big"] * 2


def test_a_run_of_small_chains_that_leaves_room_lets_groups_begin_at_once() -> None:
    order = shared(12, 4)
    assert order[4] == "big" and order.count("big") == 2 and order.index("big", 5) < 20
