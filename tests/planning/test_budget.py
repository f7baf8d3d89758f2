"""The ledger against hand-made sums: Table 2's arms, lanes, and what the store holds already."""

from __future__ import annotations

import pytest

from raychains.api import plans
from raychains.core.config import Compare, Run
from raychains.planning import budget
from raychains.planning.budget import Spent
from tests.planning.plans import arm, comparison

N = 500
"""Training digits."""
# Per repeat and sampler, in epochs: cyclical 4×200, decreasing 4×200, decreasing 4×100, cyclical single 1×200.
ARMS, SINGLE = 4 * 200 + 4 * 200 + 4 * 100 + 200, 200


@pytest.mark.parametrize(("samplers", "repeats"), [(("sgld",), 1), (("sgld", "sghmc"), 5), (("sgd", "sgdm"), 2)])
def test_table_2_costs_2200_epochs_and_sharing_saves_the_single_arm(samplers: tuple[str, ...], repeats: int) -> None:
    assert ARMS == 2200
    plan = plans.compare(Compare(task="digits", sampler=samplers, repeats=repeats)).comparison
    rows, ledger = len(samplers) * repeats, budget(plan)
    assert [a.cost for a in plan.arms] == ["200/800", "200/800", "100/400", "200/200"] * len(samplers)
    assert (ledger.chains_of_arms, ledger.unique_chains) == (13 * rows, (4 + 4 + 4) * rows)
    assert (ledger.arms_length, ledger.unique_length, ledger.saved_length) == (2200 * rows, 2000 * rows, 200 * rows)
    assert (ledger.arms, ledger.unique, ledger.saved) == (N * 2200 * rows, N * 2000 * rows, N * 200 * rows)
    assert (ledger.to_run, ledger.to_run_length, ledger.chains_to_run) == (N * 2000 * rows, 2000 * rows, 12 * rows)


def test_what_a_person_gets_without_saying_anything() -> None:
    plan = plans.compare(Compare(task="digits")).comparison
    assert plan.arms[0].repeats == 5 and len(plan.arms) == 8
    assert budget(plan).unique_length == 2000 * 5 * 2


def test_mixtures_count_steps_of_every_lane() -> None:
    plan = plans.compare(Compare(task="mixture25", repeats=10, lanes=5)).comparison
    ledger = budget(plan)
    # Table 4: single and parallel arms of both schedules, 50,000 steps, 10 repeats; the single ones are shared.
    assert ledger.arms == ledger.arms_length == 50_000 * 10 * (1 + 1 + 4 + 4)
    assert ledger.unique == ledger.unique_length == 50_000 * 10 * 8
    assert (ledger.chains_of_arms, ledger.unique_chains) == (20, 16)


def test_one_run_shares_nothing() -> None:
    ledger = budget(plans.run(Run(task="digits", chains=3, epochs=40, repeats=2)).comparison)
    assert ledger.saved == 0 == ledger.saved_length and ledger.unique_length == 3 * 40 * 2


def test_an_arm_of_one_chain_is_not_planned_twice() -> None:
    plan = plans.compare(Compare(task="digits", chains=1, sampler=("sgld",))).comparison
    assert [a.cost for a in plan.arms] == ["200/200", "200/200", "100/100"]
    assert budget(plan).saved == 0


def test_finished_chains_need_not_run() -> None:
    plan = comparison(arm("parallel", 4), arm("half", 4, epochs=5), arm("single", 1))
    done = [plan.arms[0].chains[0][0].digest, plan.arms[1].chains[0][3].digest]
    ledger = budget(plan, done)
    assert (ledger.unique_length, ledger.to_run_length) == (4 * 10 + 4 * 5, 60 - 10 - 5)
    assert (ledger.chains_to_run, ledger.to_run) == (6, 45 * 500)
    assert budget(plan, ["0" * 64]) == budget(plan), "chains of other runs count for nothing"


def test_an_odd_number_of_epochs_is_fine_where_nothing_is_halved() -> None:
    plan = plans.compare(Compare(task="digits", epochs=199, schedule=("cyclical",))).comparison
    assert {a.length for a in plan.arms} == {199}


def test_what_is_spent_follows_the_steps_forth_and_back() -> None:
    plan = comparison(arm("parallel", 2), arm("half", 1, epochs=5))
    one, two, half = plan.chains()
    steps = plan.chains()[one].steps
    spent = Spent(plan.chains(), {half: plan.chains()[half].steps})
    assert spent.planned == budget(plan).unique == 25 * 500 and spent.total == 5 * 500
    assert spent.at(one, steps // 2) == 5 * 500 and spent.total == 10 * 500
    assert spent.at(one, steps // 5) == 2 * 500 and spent.total == 7 * 500  # it went back to a checkpoint
    assert spent.at(one, steps) == 10 * 500
    assert spent.at(two, steps) == 10 * 500 and spent.total == spent.planned
