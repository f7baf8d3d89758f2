"""How many chains fit on a set of nodes: tables, and a search through every way to place them."""

from __future__ import annotations

import random
from functools import cache

import pytest

from raychains.coordination.capacity import Node, describe, fit

Tuples = tuple[tuple[float, int], ...]


@pytest.mark.parametrize(
    ("nodes", "cpus", "gpus", "evaluators", "share", "chains"),
    [
        (((1, 0), (1, 0)), 2, 0, 0, 0, 0),  # the sum would hold one
        (((3, 0), (3, 0)), 2, 0, 0, 0, 2),
        (((0, 0), (4, 0)), 1, 0, 0, 0, 4),
        ((), 1, 0, 0, 0, 0),
        (((1, 8),), 1, 1, 0, 0, 1),  # GPUs without CPUs
        (((8, 1), (64, 0)), 1, 1, 0, 0, 1),  # CPUs elsewhere are of no use
        (((8, 1), (8, 1)), 1, 2, 0, 0, 0),
        (((8, 3), (8, 3)), 1, 2, 0, 0, 2),
        (((8, 2),), 1, 1 / 3, 0, 0, 6),
        (((8, 2),), 1, 0.5, 2, 0.25, 3),  # both evaluators on one GPU
        (((8, 1), (8, 1)), 1, 1, 2, 0.25, 1),
        (((8, 2), (8, 1)), 1, 2, 1, 1, 1),  # the evaluator goes where no chain of two GPUs fits
        (((1, 2), (8, 2)), 1, 1, 1, 1, 3),  # and where the CPUs are short anyhow
        (((8, 2),), 1, 0, 2, 1, 8),
        (((8, 1),), 1, 0.5, 3, 1, 0),  # as many evaluators as fit come first
    ],
)
def test_a_table(nodes: Tuples, cpus: float, gpus: float, evaluators: int, share: float, chains: int) -> None:
    assert fit([Node(*n) for n in nodes], cpus, gpus, evaluators, share).chains == chains


def by_search(nodes: Tuples, cpus: float, gpus: float, evaluators: int, share: float) -> tuple[int, int]:
    """The most (evaluators, chains), by placing them GPU after GPU in every way."""
    units = 12  # of a GPU

    def takes(free: tuple[int, ...], amount: float) -> set[tuple[int, ...]]:
        """What may be left of a node's GPUs."""
        if amount >= 1:
            whole = [i for i, f in enumerate(free) if f == units]
            taken = set(whole[: int(amount)])
            return {tuple(0 if i in taken else f for i, f in enumerate(free))} if len(whole) >= amount else set()
        need = round(amount * units)
        return {
            tuple(sorted(f - need * (i == at) for i, f in enumerate(free)))
            for at in range(len(free))
            if free[at] >= need
        }

    @cache
    def chains(have: int, free: tuple[int, ...]) -> int:
        if have < cpus:
            return 0
        after = {free} if not gpus else takes(free, gpus)
        return max((1 + chains(have - int(cpus), left) for left in after), default=0)

    @cache
    def most(state: tuple[tuple[int, tuple[int, ...]], ...], left: int) -> tuple[int, int]:
        here = (0, sum(chains(*node) for node in state))
        found = [here]
        for at, (have, free) in enumerate(state if left else ()):
            for after in takes(free, share):
                placed, ran = most(tuple(sorted((*state[:at], (have, after), *state[at + 1 :]))), left - 1)
                found.append((placed + 1, ran))
        return max(found)

    return most(tuple(sorted((int(c), (units,) * g) for c, g in nodes)), evaluators if share else 0)


def test_it_is_the_most_that_any_placement_holds() -> None:
    rng = random.Random(0)
    seen = set()
    for _ in range(600):
        nodes = tuple((float(rng.randint(0, 4)), rng.randint(0, 3)) for _ in range(rng.randint(1, 3)))
        cpus, gpus = rng.randint(1, 2), rng.choice([0.0, 0.25, 1 / 3, 0.5, 1.0, 2.0])
        evaluators, share = rng.randint(0, 3), rng.choice([0.0, 0.25, 1 / 3, 0.5, 1.0, 2.0])
        made = fit([Node(*n) for n in nodes], cpus, gpus, evaluators, share)
        assert (len(made.evaluators), made.chains) == by_search(nodes, cpus, gpus, evaluators, share), (
            nodes, cpus, gpus, evaluators, share,
        )  # fmt: skip
        seen.add(made.chains)
    assert seen >= {0, 1, 2, 3, 5}


def test_evaluators_are_placed_where_they_fit() -> None:
    made = fit([Node(8, 2), Node(8, 1), Node(8, 0)], 1, 2, 2, 0.5)
    assert made.evaluators == (1, 1) and made.chains == 1


def test_nodes_are_described_by_kind() -> None:
    nodes = [Node(8, 1, accelerator="A100"), Node(1), Node(8, 1, accelerator="A100"), Node(0)]
    assert describe(nodes) == "2 nodes of 8 CPU, 1 GPU (A100), 1 node of 1 CPU and 1 node of 0 CPU"
    assert describe([]) == "no node"
