"""Theorem 1's parts against closed forms, and that its check can tell a right exponent from a wrong one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from raychains.errors import UserError
from raychains.experiments.theory import operator, slopes, weak
from raychains.experiments.theory.double_well import DoubleWell
from raychains.experiments.theory.slopes import FAILS, HOLDS, UNDECIDED, Estimate


@pytest.mark.parametrize("a", [0.0, 0.7, 1.5, 3.0])
def test_the_quadrature_gives_the_mixtures_moments(a: float) -> None:
    """Of N(±a, 1) in equal parts: E θ² = 1+a², E θ⁴ = a⁴+6a²+3, E cos θ = e^(−½)·cos a."""
    known = {1 + a**2: np.square, a**4 + 6 * a**2 + 3: lambda x: x**4, math.exp(-0.5) * math.cos(a): np.cos}
    for value, test in known.items():
        assert DoubleWell(a).average(test) == pytest.approx(value, rel=1e-9)


def test_the_gradient_is_the_potentials() -> None:
    target, x = DoubleWell(1.5), np.linspace(-6, 6, 41)
    slope = (target.potential(x + 1e-5) - target.potential(x - 1e-5)) / 2e-5
    assert np.allclose(target.slope(x), slope, atol=1e-9)
    assert np.allclose(target.gradient(torch.from_numpy(x)).numpy(), target.slope(x), atol=1e-14)


def test_the_operator_gives_a_gaussian_chains_bias_and_mse_in_closed_form() -> None:
    """a = 0 is N(0, 1): the path is jointly Gaussian, and Isserlis' theorem gives E θ_j²θ_k²."""
    lrs, sd, start = np.array([0.3, 0.2, 0.25, 0.05, 0.4, 0.1, 0.3]), 1.3, 0.8
    weights = np.array([0.1, 0.3, 0.1, 0.1, 0.2, 0.1, 0.1])
    mean, path = start * np.cumprod(1 - lrs), np.zeros((7, 7))
    variance = 0.0
    for k, lr in enumerate(lrs):
        variance = (1 - lr) ** 2 * variance + 2 * lr + (lr * sd) ** 2
        path[k, k] = variance
        for j in range(k):
            path[j, k] = path[k, j] = path[j, j] * np.prod(1 - lrs[j + 1 : k + 1])
    second = np.diag(path) + mean**2
    fourth = np.outer(second, second) + 2 * path**2 + 4 * np.outer(mean, mean) * path
    bias = weights @ second - 1
    mse = weights @ fourth @ weights - 2 * weights @ second + 1
    both = np.stack([np.eye(7)[0], weights])
    found = operator.errors(DoubleWell(0.0), lrs.tolist(), both, start=start, gradient_sd=sd, average=1.0)
    assert found[1] == pytest.approx((bias, mse), rel=1e-7)
    assert found[0] == pytest.approx((second[0] - 1, fourth[0, 0] - 2 * second[0] + 1), rel=1e-7)


def test_lumps_keep_the_time_and_the_weights() -> None:
    lrs, weights = [0.5, 0.01, 0.02, 0.03, 0.5, 0.01], np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.ones(6)])
    found = list(operator.lumps(lrs, weights, 0.04))
    assert [lr for lr, _ in found] == pytest.approx([0.5, 0.06, 0.5, 0])
    assert [w.tolist() for _, w in found] == [[1, 1], [9, 3], [5, 1], [6, 1]]
    found = list(operator.lumps([0.5, 0.01, 0.02, 0.6], np.array([[1.0, 2.0, 3.0, 4.0]]), 0.04))
    assert [lr for lr, _ in found] == pytest.approx([0.5, 0, 0.63]) and [w.item() for _, w in found] == [1, 5, 4]


@pytest.fixture(scope="module")
def small() -> weak.Result:
    powers = (("root", 1 / 2), ("sixth", 1 / 6), (weak.CONTROL, 0.0))
    return weak.run(weak.Plan(steps=(64, 128, 256, 512), lanes=4_000, exact_until=64, powers=powers, seed=3))


def test_lanes_of_the_public_sampler_agree_with_the_operator(small: weak.Result) -> None:
    """Both averages, bias and MSE: all within 4.5 standard errors over 20 groups (P < 1e-3 for the 12 of them)."""
    rows = [r for r in small.rows if r["exact_bias"] is not None]
    assert len(rows) == 6
    for r in rows:
        for quantity in ("bias", "mse"):
            error = (r[f"{quantity}_high"] - r[f"{quantity}_low"]) / 2 / 2.093
            assert abs(r[quantity] - r[f"exact_{quantity}"]) < 4.5 * error
            assert error < 0.08 * abs(r[f"exact_{quantity}"])  # so sharp that another step size would not pass


def test_the_stated_exponent_passes_the_control_flattens_and_a_wrong_exponent_is_caught(small: weak.Result) -> None:
    found = {r["sweep"]: r for r in small.slopes if r["average"] == weak.WEIGHTED and r["quantity"] == "bias"}
    assert found["root"]["stated"] == -0.5 and found["root"]["verdict"] == HOLDS
    assert found["root"]["detectable"] < 0.1
    control = found[weak.CONTROL]
    assert control["flat"] == HOLDS and control["verdict"] == FAILS and control["from_steps"] == 256
    wrong = found["sixth"]
    assert slopes.at_most(Estimate(wrong["slope"], wrong["low"], wrong["high"]), -0.5) == FAILS
    assert wrong["stated"] == pytest.approx(-1 / 6) and wrong["verdict"] == HOLDS


def test_slopes_can_be_recomputed_from_the_rows_per_group(small: weak.Result) -> None:
    """With polyfit and the jackknife written out once more."""
    rows = [r for r in weak.by_group(small.plan, small.averages) if (r["sweep"], r["average"]) == ("root", "plain")]
    table = np.zeros((20, 4))
    for r in rows:
        table[r["group"], small.plan.steps.index(r["steps"])] = r["mse"]
    x = np.log(small.plan.steps)
    left = [np.polyfit(x, np.log(np.delete(table, g, 0).mean(0)), 1)[0] for g in range(20)]
    half = 2.0930240544 * np.sqrt(19 / 20 * ((left - np.mean(left)) ** 2).sum())
    want = next(r for r in small.slopes if (r["sweep"], r["average"], r["quantity"]) == ("root", "plain", "mse"))
    assert want["slope"] == pytest.approx(np.polyfit(x, np.log(table.mean(0)), 1)[0])
    assert want["detectable"] == pytest.approx(half)


def test_the_slope_of_an_exact_power_law_is_its_exponent() -> None:
    steps = (10, 30, 100, 1000)
    found = slopes.slope(steps, np.tile(-3 * np.array(steps) ** -0.4, (5, 1)))
    assert (found.value, found.low, found.high) == pytest.approx((-0.4, -0.4, -0.4))


def test_the_slopes_interval_covers_95_percent() -> None:
    """Of 400 noisy power laws between 91 and 98.5 % are covered: ± 3.3 standard errors of a share of 95 %."""
    rng, steps = np.random.default_rng(0), np.array([64, 256, 1024, 4096])
    truth = 2 * steps**-0.5
    groups = truth * (1 + 0.2 * rng.standard_normal((400, 20, 4)))
    inside = [(e := slopes.slope(steps.tolist(), g)).low <= -0.5 <= e.high for g in groups]
    assert 0.914 < np.mean(inside) < 0.986


def test_an_error_that_changes_sign_decides_nothing() -> None:
    found = slopes.slope((1, 2, 4), np.tile([1.0, 0.5, -0.1], (4, 1)))
    assert math.isnan(found.value)
    assert slopes.at_most(found, -0.5) == slopes.flat(found, -0.5) == UNDECIDED


@pytest.mark.parametrize(
    ("low", "high", "verdict", "flat"),
    [
        (-0.7, -0.6, HOLDS, FAILS),
        (-0.53, -0.45, HOLDS, FAILS),
        (-0.48, -0.4, FAILS, FAILS),
        (-0.05, 0.02, FAILS, HOLDS),
        (-0.9, 0.0, UNDECIDED, UNDECIDED),
    ],
)
def test_what_an_interval_decides(low: float, high: float, verdict: str, flat: str) -> None:
    found = Estimate((low + high) / 2, low, high)
    assert (slopes.at_most(found, -0.5), slopes.flat(found, -0.5)) == (verdict, flat)


def test_the_theorems_verdict_needs_both_claims_and_both_controls() -> None:
    def rows(bias: str, mse: str, control: str, flat: str) -> list[dict[str, object]]:
        made = [("root", "bias", bias, None), ("third", "mse", mse, None)]
        made += [(weak.CONTROL, q, control, flat) for q in ("bias", "mse")]
        keys = ("sweep", "quantity", "verdict", "flat")
        plain = {"average": weak.PLAIN, "sweep": "root", "quantity": "bias", "verdict": FAILS, "flat": None}
        return [plain] + [{"average": weak.WEIGHTED, **dict(zip(keys, m, strict=True))} for m in made]

    assert weak.decided(rows(HOLDS, HOLDS, FAILS, HOLDS)) == HOLDS
    assert weak.decided(rows(HOLDS, FAILS, FAILS, HOLDS)) == FAILS
    assert weak.decided(rows(HOLDS, UNDECIDED, FAILS, HOLDS)) == UNDECIDED
    assert weak.decided(rows(HOLDS, HOLDS, HOLDS, HOLDS)) == UNDECIDED
    assert weak.decided(rows(HOLDS, HOLDS, FAILS, FAILS)) == UNDECIDED


def test_stated_exponents() -> None:
    assert [weak.stated("bias", p) for p in (1 / 2, 1 / 3, 2 / 3)] == pytest.approx([-1 / 2, -1 / 3, -1 / 3])
    assert [weak.stated("mse", p) for p in (1 / 2, 1 / 3, 1 / 4)] == pytest.approx([-1 / 2, -2 / 3, -1 / 2])


def test_one_seed_gives_the_same_lanes_and_another_others() -> None:
    plan = weak.Plan(steps=(8, 12, 16, 20), lanes=40, exact_until=0)
    told: list[tuple[int, int]] = []
    one, two = weak.simulate(plan, lambda d, n: told.append((d, n))), weak.simulate(plan)
    other = weak.simulate(dataclasses.replace(plan, seed=1))
    assert all(np.array_equal(one[k], two[k]) and not np.array_equal(one[k], other[k]) for k in one)
    assert told[-1] == (168, 168) and [d for d, _ in told] == sorted(d for d, _ in told)


@pytest.mark.parametrize("wrong", [{"lanes": 30}, {"groups": 1}, {"steps": (64, 32, 128, 256)}, {"steps": (8, 16)}])
def test_a_plan_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"must"):
        weak.Plan(**wrong)  # type: ignore[arg-type]
