"""A budget of epochs becomes method, chains and cycles: those that the committed study found nearest, at no more gradients."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from raychains import schedules, tasks
from raychains.core.config import Run
from raychains.papers.fidelity import posterior_budgets as study
from raychains.planning import by_budget
from raychains.planning.budget import budget
from raychains.planning.by_budget import NEAREST, spend
from raychains.planning.presets import default_arms
from tests.checks import refused

BUDGETS = Path(__file__).resolve().parents[2] / "docs/results/posterior-budgets/budgets.parquet"


def test_the_ways_are_those_that_the_committed_study_found_nearest() -> None:
    found = pd.read_parquet(BUDGETS)
    found = found[(found["method"] != "mile") & (found["chains"] <= 8)]  # MILE's gradients are of all examples
    steps = found.groupby("budget")["steps"].mean()
    assert len(steps) == len(NEAREST)
    for (epochs, mean), known in zip(steps.items(), NEAREST, strict=True):
        assert 0.8 < known / mean < 1.25
        ranked = study.ranked(found[found["budget"] == epochs])
        for way in NEAREST[known]:
            nearest = ranked[ranked["chains"] >= way.chains].iloc[0]
            assert nearest["method"] == by_budget.SAMPLER, "no other method is nearer with at least as many chains"
            cyclical = ranked[(ranked["method"] == by_budget.SAMPLER) & (ranked["chains"] == way.chains)].iloc[0]
            assert (way.cycles, way.ratio) == (cyclical["cycles"], pytest.approx(cyclical["score"], abs=0.005))
        assert [way.chains for way in NEAREST[known]] == [1, 2, 4, 8]


@pytest.mark.parametrize("at_once", [None, 2, 3, 8, 50])
@pytest.mark.parametrize("epochs", [100, 1000, 4001])
def test_a_budget_is_spent_on_as_many_chains_as_run_at_once_and_never_overdrawn(
    epochs: int, at_once: int | None
) -> None:
    options = Run(task="digits", budget=epochs, concurrent=at_once, repeats=1)
    task: Any = tasks.make("digits")
    chosen, reason = spend(options, task)
    assert chosen.budget is None and chosen.epochs is not None
    assert epochs - chosen.chains < chosen.chains * chosen.epochs <= epochs
    assert chosen.chains >= min(at_once or 1, by_budget.MOST_CHAINS)
    planned = default_arms.run(options)
    assert planned.notes[0] == reason and f"{epochs:,} epochs" in reason
    (arm,) = planned.comparison.arms
    assert len(arm.chains[0]) == chosen.chains
    assert budget(planned.comparison).unique == chosen.chains * chosen.epochs * task.num_data


def test_the_number_of_steps_says_which_findings_hold() -> None:
    few, many = (spend(Run(task="digits", budget=epochs), tasks.make("digits"))[0] for epochs in (20, 3000))
    for chosen, steps in ((few, min(NEAREST)), (many, max(NEAREST))):
        best = min(NEAREST[steps], key=lambda way: way.ratio)
        assert (chosen.sampler, chosen.chains, chosen.cycles) == (by_budget.SAMPLER, best.chains, best.cycles)


@pytest.mark.parametrize(
    "given", [{}, {"samples_per_cycle": 2}, {"thinning": 3}, {"samples_per_cycle": 2, "thinning": 3}]
)
def test_draws_are_as_asked_for_and_otherwise_about_48(given: dict[str, int]) -> None:
    options = Run(task="digits", budget=1000, repeats=1, **given)
    chosen, _ = spend(options, tasks.make("digits"))
    assert given.items() <= dataclasses.asdict(chosen).items()
    (arm,) = default_arms.run(options).comparison.arms
    kept = sum(schedules.build(spec.schedule).kept for spec in arm.chains[0])
    assert kept == (2 * chosen.chains * (chosen.cycles or 0) if "samples_per_cycle" in given else 48)


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_the_smallest_budgets_have_room_for_their_draws(at_once: int) -> None:
    for epochs in range(at_once, 3 * at_once + 12):
        (arm,) = default_arms.run(Run(task="digits", budget=epochs, concurrent=at_once, repeats=1)).comparison.arms
        assert all(schedules.build(spec.schedule).kept for spec in arm.chains[0])


@pytest.mark.parametrize(
    "given",
    [{"epochs": 3}, {"cycles": 2}, {"exploration": 0.5}, {"sampler": "sgld"}, {"chains": 3}, {"schedule": "constant"}],
)
def test_what_a_budget_chooses_is_refused_beside_it(given: dict[str, Any]) -> None:
    ((name, value),) = given.items()
    with refused(name, str(value), "budget"):
        spend(Run(task="digits", budget=40, **given), tasks.make("digits"))


def test_a_density_has_no_epochs_and_chains_need_one_each() -> None:
    with refused("budget", "40", "steps"):
        default_arms.run(Run(task="mixture25", budget=40))
    with refused("budget", "3", "8"):
        default_arms.run(Run(task="digits", budget=3, concurrent=8))
    assert set(by_budget.CHOSEN) <= set(by_budget.DEFAULTS)


@pytest.mark.parametrize("at_once", range(1, 9))
def test_every_budget_is_a_plan_or_one_line_that_names_it(at_once: int) -> None:
    """Chains of 1, 2, 4 and 8 were tried."""
    least = next(n for n in (1, 2, 4, 8) if n >= at_once)
    for epochs in (*range(1, 10), 17):
        options = Run(task="digits", budget=epochs, concurrent=at_once, repeats=1)
        if epochs < least:
            with refused("budget", f"each of {least} chains", str(epochs)):
                default_arms.run(options)
            continue
        (arm,) = default_arms.run(options).comparison.arms
        assert at_once <= len(arm.chains[0]) <= epochs


def test_options_beside_a_budget_are_kept_and_few_steps_have_one_cycle() -> None:
    chosen, _ = spend(Run(task="digits", budget=40, thinning=200, repeats=1), tasks.make("digits"))
    assert chosen.thinning == 200
    default_arms.run(Run(task="digits", budget=40, thinning=200, repeats=1))
    for epochs in (2, 6, 9):  # a batch of all: an epoch is a step
        options = Run(task="digits", budget=epochs, batch_size=tasks.make("digits").num_data, repeats=1)
        (arm,) = default_arms.run(options).comparison.arms
        assert schedules.build(arm.chains[0][0].schedule).cycle_count == 1
    with refused("budget", "two steps", "1"):
        default_arms.run(dataclasses.replace(options, budget=1))
