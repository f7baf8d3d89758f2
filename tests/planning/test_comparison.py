"""Comparisons: sharing by digest, order, cost as the paper writes it, JSON round trip, tampered plans."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from raychains.api import plans
from raychains.core.config import Compare
from raychains.planning import Comparison
from tests.checks import refused
from tests.planning.plans import arm, comparison

PARALLEL, SINGLE = arm("parallel", 3, repeats=2), arm("single", 1, repeats=2)
PLAN = comparison(PARALLEL, SINGLE)


def through_text(plan: Comparison) -> Any:
    return json.loads(json.dumps(plan.to_json()))


def test_chains_that_arms_share_are_one() -> None:
    assert len(PLAN.chains()) == 6
    assert SINGLE.chains[1][0].digest == PARALLEL.chains[1][0].digest
    assert all(spec.digest == digest for digest, spec in PLAN.chains().items())


def test_chains_come_repeat_by_repeat_so_that_first_rows_come_early() -> None:
    other = arm("other", 2, repeats=2, sampler="sghmc")
    order = [(s.repeat, s.sampler.kind, s.chain) for s in comparison(PARALLEL, other).chains().values()]
    first = [("sgld", 0), ("sgld", 1), ("sgld", 2), ("sghmc", 0), ("sghmc", 1)]
    assert order == [(0, *x) for x in first] + [(1, *x) for x in first]


def test_arms_with_fewer_groups_are_no_obstacle() -> None:
    assert len(comparison(PARALLEL, arm("short", 2, repeats=1, epochs=5)).chains()) == 8


def test_an_arms_cost_reads_per_chain_and_total() -> None:
    assert (PARALLEL.cost, SINGLE.cost) == ("10/30", "10/10")


def test_lanes_are_repeats() -> None:
    assert arm("wide", 2, repeats=3, lanes=5).repeats == 15
    assert PARALLEL.repeats == 2


def test_equal_names_of_arms_are_refused() -> None:
    with refused("arms", "parallel"):
        comparison(PARALLEL, SINGLE, PARALLEL)


# JSON


@pytest.mark.parametrize("task", ["digits", "mixture25"])
def test_json_round_trip_keeps_a_real_comparison(task: str) -> None:
    plan = plans.compare(Compare(task=task, repeats=2)).comparison
    again = Comparison.from_json(through_text(plan))
    assert any(arm.published for arm in again.arms) == (task == "mixture25")
    assert again == plan and again.chains().keys() == plan.chains().keys()
    assert again.to_json() == plan.to_json() and again.digest == plan.digest


def test_a_spec_is_written_once_however_many_arms_have_it() -> None:
    data = through_text(PLAN)
    assert len(data["chains"]) == 6 and [len(g) for a in data["arms"] for g in a["chains"]] == [3, 3, 1, 1]


def swapped(data: Any) -> None:
    a, b, *_ = data["chains"]
    data["chains"][a], data["chains"][b] = data["chains"][b], data["chains"][a]


FIRST = PARALLEL.chains[0][0].digest
CHANGES: dict[str, Callable[[Any], object]] = {
    **{
        f"another {field}": lambda data, field=field: data["chains"][FIRST].update({field: 90})
        for field in ("seed", "steps", "batch_size", "chain", "threads")
    },
    **{f"no {key}": lambda data, key=key: data.pop(key) for key in ("task", "arms", "chains", "split")},
    "no name of an arm": lambda data: data["arms"][0].pop("name"),
    "no chains of an arm": lambda data: data["arms"][1].pop("chains"),
    "swapped chains": swapped,
    "an unknown chain": lambda data: data["arms"][0]["chains"][0].append("0" * 64),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_tampered_plan_is_refused(what: str) -> None:
    data = through_text(PLAN)
    CHANGES[what](data)
    with refused("plan", *[FIRST[:12]] * what.startswith("another")):
        Comparison.from_json(data)


# Identity


def test_the_digest_ignores_what_people_read_and_knows_what_is_computed() -> None:
    assert comparison(dataclasses.replace(PARALLEL, label="L"), SINGLE).digest == PLAN.digest
    others = [
        comparison(PARALLEL),
        comparison(SINGLE, PARALLEL),
        dataclasses.replace(PLAN, split="train"),
        comparison(arm("parallel", 3, repeats=2, epochs=11), SINGLE),
    ]
    assert len({p.digest for p in (PLAN, *others)}) == 5
