"""The plan of a fit and its decisions: pilots stay within a third of the budget, and held-out densities alone decide."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from raychains.core.config import Fit
from raychains.core.errors import UserError
from raychains.planning import fitting
from raychains.planning.fitting import FitPlan, Tried, decide
from tests.checks import refused


def planned(budget: int = 1000, examples: int = 700, **settings: Any) -> FitPlan:
    about: dict[str, Any] = {"has_val": False, "several_folds": True, "batch_size": None}
    given = {name: settings.pop(name) for name in about if name in settings}
    return fitting.plan(Fit(**settings), budget=budget, examples=examples, **(about | given))


@pytest.mark.parametrize("examples", [100, 599, 700, 50_000])
def test_pilots_take_at_most_a_third_of_the_budget(examples: int) -> None:
    for budget in (400, 1000, 5000):
        plan = planned(budget, examples)
        pilots = sum(r.candidates * r.chains * r.epochs * plan.folds for r in plan.rungs)
        assert budget / 6 < pilots <= budget / 3
        assert plan.folds == (3 if examples < 600 else 1)
        assert [r.candidates for r in plan.rungs] == sorted({r.candidates for r in plan.rungs}, reverse=True)
        for variant in plan.candidates:
            options = plan.final(variant.name, budget - pilots)
            members = str(options.get("init_from", "")).partition(":")[2].partition(",")[0]
            assert options["chains"] * (options["epochs"] + int(members or 0)) <= budget - pilots
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


def tried(mean: float, n: int = 50, seed: int = 0) -> Tried:
    noise = np.random.default_rng(seed).normal(size=n)
    return Tried(log_p=mean + noise, epochs=1.0)


def test_the_first_of_those_within_a_standard_error_of_the_best_is_chosen() -> None:
    # Paired differences of the same noise have no scatter: a candidate .001 behind is behind.
    found = decide({"a": tried(-1.001), "b": tried(-1.0)}, rung=2, keep=1)
    assert [(j.candidate, j.kept) for j in found] == [("b", True), ("a", False)] and "nats behind b" in found[1].why
    # With noise of their own they are tied, and the order of the candidates decides.
    given = {"a": tried(-1.001, seed=1), "b": tried(-0.9, seed=2)}
    found = decide(given, rung=2, keep=1)
    a, b = (given[name].log_p for name in "ab")
    behind = b - a if b.mean() > a.mean() else a - b
    se = behind.std(ddof=1) / math.sqrt(50)
    assert behind.mean() <= se and next(j.candidate for j in found if j.kept) == "a"
    worse = max(found, key=lambda j: j.behind)
    assert worse.behind == pytest.approx(behind.mean()) and worse.behind_se == pytest.approx(se)
    assert found[0].density >= found[1].density and found[0].behind == 0


def test_the_best_go_on_and_candidates_without_a_finite_density_do_not() -> None:
    absurd = Tried(log_p=np.array([-1.0, -np.inf]), epochs=2.0)
    given = {"a": tried(-3), "failed": Tried(log_p=None, epochs=0.0, failed="1 of 2 chains failed"), "b": tried(-1)}
    found = decide({**given, "absurd": absurd, "c": tried(-2)}, rung=1, keep=2)
    assert [j.candidate for j in found] == ["b", "c", "a", "failed", "absurd"]
    assert [j.kept for j in found] == [True, True, False, False, False]
    assert found[3].why == "1 of 2 chains failed" and "not finite" in found[4].why
    assert found[4].epochs == 2.0 and math.isnan(found[4].density)
    with refused("none", "failed: 1 of 2 chains failed", "absurd: its log density is not finite"):
        decide({"failed": given["failed"], "absurd": absurd}, rung=1, keep=2)
