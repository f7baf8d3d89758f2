"""The CPUs of decoders: how many chains fit beside them, by a search through every way to place them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import ray

from raychains.orchestration import cluster
from raychains.orchestration.placement import Placement
from raychains.planning.room import Node, fit
from tests.checks import refused


def by_search(nodes: list[Node], cpus: int, gpus: float, evaluators: int, share: float, decoders: int) -> int | None:
    """The most chains beside so many decoders; None where these do not fit."""
    found = []
    for taken in itertools.product(*(range(int(n.cpus) + 1) for n in nodes)):
        if sum(taken) == decoders:
            rest = [Node(n.cpus - t, n.gpus) for n, t in zip(nodes, taken, strict=True)]
            found.append(fit(rest, cpus, gpus, evaluators, share).chains)
    return max(found, default=None)


def test_decoders_cost_as_few_chains_as_they_can() -> None:
    rng = random.Random(0)
    seen = set()
    for _ in range(400):
        nodes = [Node(float(rng.randint(0, 4)), rng.randint(0, 2)) for _ in range(rng.randint(1, 3))]
        cpus, gpus, decoders = rng.randint(1, 2), rng.choice([0.0, 0.5, 1.0]), rng.randint(1, 5)
        evaluators, share = rng.randint(0, 2), rng.choice([0.0, 0.5])
        asked: Any = (nodes, cpus, gpus, evaluators, share)
        made = fit(*asked, decoders=decoders, least=0)
        most = by_search(nodes, cpus, gpus, evaluators, share, decoders)
        assert (len(made.decoders) == decoders) is (most is not None), asked
        if most is not None:
            assert made.chains == most and made.evaluators == fit(*asked).evaluators, (asked, decoders)
            held = [n.cpus - made.decoders.count(i) for i, n in enumerate(nodes)]
            assert min(held) >= 0
        seen.add((most, most == fit(*asked).chains))
        kept = fit(*asked, decoders=decoders, least=1)  # a chain that fits without them fits with them
        assert kept.chains >= min(1, fit(*asked).chains) and len(kept.decoders) <= decoders
    assert {(0, False), (1, False), (2, False), (2, True)} <= seen


def test_decoders_are_spread_over_what_is_free() -> None:
    made = fit([Node(8, 2), Node(4), Node(4)], 1, 1, decoders=6)
    assert made.chains == 2 and sorted(made.decoders.count(i) for i in range(3)) == [1, 1, 4]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "nodes", lambda: found)
    monkeypatch.setattr(cluster, "ours", lambda: False)
    monkeypatch.setattr(cluster, "grows", lambda: False)
    return found


def node(name: str, cpus: int, gpus: int = 0) -> dict[str, Any]:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}


def test_slots_leave_decoders_their_cpus_and_decoders_give_way_to_the_last_chain(nodes: list[dict[str, Any]]) -> None:
    nodes += [node("a", 4, 2), node("b", 3)]
    slots = Placement(decoders=4).slots()
    assert (slots.room(), slots.count) == (2, 2) and sorted(slots.nodes_of_decoders()) == ["a", "a", "b", "b"]  # type: ignore[type-var]
    slots = Placement(decoders=4, gpus_per_chain=0.0).slots()
    assert slots.room() == 3
    with refused("decoders must be at most 5 here, got 6: each takes a CPU, a chain takes 2, and the cluster has"):
        Placement(decoders=6, cpus_per_chain=2).slots()
    with refused("decoders must be left out here, got 1", "a chain takes 4"):
        nodes.pop()
        Placement(decoders=1, cpus_per_chain=2, workers_per_chain=2).slots()
    del nodes[:]
    nodes += [node("a", 2)]
    assert slots.room() == 1 and slots.nodes_of_decoders() == ["a"]
    assert Placement(decoders=4).slots(run_chains=False).nodes_of_decoders() == []
