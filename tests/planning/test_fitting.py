"""The plan of a fit and its decisions: pilots stay within a third of the budget, and held-out densities alone
decide."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from raychains.core.config import Fit
from raychains.core.errors import UserError
from raychains.planning import fitting
from raychains.planning.fitting import FitPlan, Judged, Tried
from tests.checks import refused


def planned(budget: int = 1000, examples: int = 700, **settings: Any) -> FitPlan:
    about: dict[str, Any] = {"has_val": False, "several_folds": True, "regression": True, "batch_size": None}
    given = {name: settings.pop(name) for name in about if name in settings}
    return fitting.plan(Fit(**settings), budget=budget, examples=examples, **(about | given))


@pytest.mark.parametrize("examples", [100, 599, 700, 50_000])
def test_pilots_take_at_most_a_quarter_of_the_budget(examples: int) -> None:
    for budget in (400, 1000, 5000):
        plan = planned(budget, examples)
        pilots = sum(r.candidates * r.chains * r.epochs * plan.folds for r in plan.rungs)
        assert budget / 8 < pilots <= budget / 4 and len(plan.rungs) == 1 + (budget == 5000)
        assert plan.folds == (3 if examples < 600 else 1)
        assert [r.candidates for r in plan.rungs] == sorted({r.candidates for r in plan.rungs}, reverse=True)
        for variant in plan.candidates:
            options, left = plan.final(variant.name, budget - pilots), budget - pilots
            assert options["chains"] * options["epochs"] <= left < options["chains"] * (options["epochs"] + 1)
    least = next(n for n in range(1000) if not refuses(n, examples))
    with refused("budget", f"at least {least} epochs", str(least - 1)):
        planned(least - 1, examples)


def refuses(budget: int, examples: int) -> bool:
    try:
        planned(budget, examples)
    except UserError:
        return True
    return False


def test_a_plan_is_json_and_read_again() -> None:
    plan = planned(prior=("laplace:1",), seed=3)
    assert FitPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.shared["batch_size"] == 32 and plan.shared["seed"] == 3
    assert {v.options["prior"] for v in plan.candidates if "prior" in v.options} == {("laplace:1",)}
    with refused("not a fit that this version reads"):
        FitPlan.from_json({"task": "digits"})


def test_folds_are_refused_where_a_task_has_one_way_to_be_judged() -> None:
    assert planned(has_val=True).held_out == 0 and planned(has_val=True, examples=100).folds == 1
    assert planned(several_folds=False, examples=100).folds == 1
    for about in ({"has_val": True}, {"several_folds": False}):
        with refused("folds must be left out", "got 2"):
            planned(folds=2, **about)


def tried(log_p: Any, epochs: float = 1.0) -> Tried:
    return Tried(log_p=np.asarray(log_p, dtype=float), epochs=epochs)


def decide(
    given: dict[str, Tried], rung: int, keep: int, bases: tuple[str, ...] = ("base", "other-base")
) -> list[Judged]:
    return fitting.decide(given, rung, keep, bases)


RNG = np.random.default_rng(0)
HARD = RNG.random(400) < 0.5
"""Examples that one candidate finds hard and the other one easy."""


def test_a_mixture_of_two_that_find_other_examples_hard_has_shares_that_no_other_beats() -> None:
    base, other = np.where(HARD, -3.0, -0.1), np.where(HARD, -0.2, -2.0)
    found = {judged.candidate: judged for judged in decide({"base": tried(base), "other": tried(other)}, 1, 1)}
    share = found["other"].share
    grid = np.linspace(0.01, 0.99, 99)
    scores = [np.logaddexp(base + np.log(1 - w), other + np.log(w)).sum() + np.log(w) + np.log(1 - w) for w in grid]
    assert share == pytest.approx(grid[int(np.argmax(scores))], abs=0.01) and found["base"].share == pytest.approx(
        1 - share
    )
    assert found["other"].mixed == pytest.approx(np.logaddexp(base + np.log1p(-share), other + np.log(share)).mean())
    assert found["base"].density == pytest.approx(base.mean())
    assert found["base"].mixed == found["base"].density < found["other"].mixed
    assert found["base"].se == pytest.approx(base.std(ddof=1) / 20)


def test_few_examples_keep_both_and_a_candidate_without_use_has_no_share() -> None:
    # A candidate that is better by .1 nats at each of five examples would have all weight by stacking alone.
    few = {j.candidate: j for j in decide({"base": tried(np.full(5, -1.1)), "other": tried(np.full(5, -1.0))}, 1, 1)}
    assert 0.4 < few["base"].share < 0.5 < few["other"].share < 0.6
    many = {"base": tried(np.full(4000, -1.0)), "other": tried(np.full(4000, -1.5))}
    alone = {j.candidate: j for j in decide(many, 1, 1)}
    assert alone["base"].share == 1 and alone["other"].share == 0
    assert alone["base"].kept and not alone["other"].kept and alone["other"].why == "a share below 10%"


def test_the_first_of_those_within_a_standard_error_of_the_best_mixture_is_chosen() -> None:
    base = np.where(HARD, -3.0, -0.1)
    noise = np.random.default_rng(1).normal(size=400)
    given = {"base": tried(base), "a": tried(np.where(HARD, -0.2, -2.0)), "b": tried(np.where(HARD, -0.19, -1.99))}
    kept = [j.candidate for j in decide(given, 1, 1) if j.kept]
    assert kept == ["base", "b"], "on the same examples a difference without scatter is a difference"
    given["b"] = tried(given["a"].log_p + 0.01 + noise)
    chosen = [j for j in decide(given, 1, 1) if j.kept]
    mixed = {j.candidate: j.mixed for j in decide(given, 1, 1)}
    assert [j.candidate for j in chosen] == ["base", "a" if mixed["b"] - mixed["a"] < 0.02 else "b"]


def test_the_base_is_the_best_of_several_or_the_first_within_a_standard_error() -> None:
    base, scattered = np.full(400, -1.0), 0.05 + np.random.default_rng(2).normal(size=400)
    for other, first in ((base + 0.2, "other-base"), (base + scattered - scattered.mean() + 0.01, "base")):
        found = decide({"base": tried(base), "other-base": tried(other), "good": tried(base - 0.1)}, 1, 1)
        assert found[0].candidate == first and found[0].mixed == found[0].density
        assert {j.candidate for j in found} == {"base", "other-base", "good"}, "the other one may be mixed with it"


def test_members_that_stop_early_make_room_for_others() -> None:
    assert [fitting.members(4, cost, 100.0) for cost in (95.0, 40.0, 5.0)] == [4, 9, 20]


def test_the_base_takes_its_share_of_what_is_left_within_a_third_and_two_thirds() -> None:
    assert [fitting.part(share) for share in (0.1, 0.5, 0.9)] == [1 / 3, 0.5, 2 / 3]


def test_chains_are_at_most_four_times_as_long_as_the_pilots_that_chose_them() -> None:
    plan = planned(examples=100)
    (rung,) = plan.rungs
    few, many = (plan.final("cpsgld", epochs) for epochs in (100, 20 * 4 * rung.epochs))
    assert (few["chains"], few["epochs"]) == (4, 25)
    assert (many["chains"], many["epochs"]) == (20, 4 * rung.epochs)
    assert plan.final("cpsgld", 10**5)["chains"] == 20
    assert planned(examples=100, chains=30).final("cpsgld", 10**5)["chains"] == 30


def test_the_best_go_on_and_candidates_without_a_finite_density_do_not() -> None:
    absurd = tried([-1.0, -np.inf, -1.0], epochs=2.0)
    failed = Tried(log_p=None, epochs=0.0, failed="1 of 2 chains failed")
    given = {"base": tried([-2, -2, -2]), "failed": failed, "good": tried([-1, -1.5, -1]), "bad": tried([-9, -9, -9])}
    found = decide({**given, "absurd": absurd}, rung=1, keep=2)
    assert [j.candidate for j in found] == ["base", "good", "bad", "failed", "absurd"]
    assert [j.kept for j in found] == [True, True, False, False, False] and "behind good" in found[2].why
    assert found[3].why == "1 of 2 chains failed" and "not finite" in found[4].why
    assert found[4].epochs == 2.0 and math.isnan(found[4].density)
    alone = decide({"base": failed, "good": given["good"]}, rung=1, keep=1)
    assert [(j.candidate, j.share) for j in alone] == [("good", 1.0), ("base", 0.0)], "the base may fail itself"
    with refused("none", "failed: 1 of 2 chains failed", "absurd: its log density is not finite"):
        decide({"failed": failed, "absurd": absurd}, rung=1, keep=2)
