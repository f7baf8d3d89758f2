"""Theorem 1: its parts against closed forms, lanes against the exact operator, pseudo-values, slopes and claims."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from raychains.papers.claims import judge
from raychains.papers.theory import theorem1
from raychains.papers.theory.lanes import in_groups, pseudo_values, seeds
from raychains.papers.theory.theorem1 import DoubleWell


def potential(a: float, x: np.ndarray) -> np.ndarray:
    """−log of ½N(x; −a, 1) + ½N(x; a, 1), up to a constant."""
    return np.asarray(-np.logaddexp(stats.norm.logpdf(x, -a), stats.norm.logpdf(x, a)))


@pytest.mark.parametrize("a", [0.0, 0.7, 1.5, 3.0])
def test_the_average_is_the_quadratures(a: float) -> None:
    x = np.linspace(-15, 15, 30_001)
    weights = np.exp(-potential(a, x))
    assert DoubleWell(a).average == pytest.approx((weights * x**2).sum() / weights.sum(), rel=1e-9)


def test_the_gradient_is_the_potentials() -> None:
    target, x = DoubleWell(1.5), np.linspace(-6, 6, 41)
    slope = (potential(1.5, x + 1e-5) - potential(1.5, x - 1e-5)) / 2e-5
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
    found = theorem1.exact_errors(DoubleWell(0.0), lrs.tolist(), both, start=start, gradient_sd=sd)
    assert found[1] == pytest.approx((bias, mse), rel=1e-7)
    assert found[0] == pytest.approx((second[0] - 1, fourth[0, 0] - 2 * second[0] + 1), rel=1e-7)


def test_lumps_keep_the_time_and_the_weights() -> None:
    lrs, weights = [0.5, 0.01, 0.02, 0.03, 0.5, 0.01], np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.ones(6)])
    found = list(theorem1.lumps(lrs, weights, 0.04))
    assert [lr for lr, _ in found] == pytest.approx([0.5, 0.06, 0.5, 0])
    assert [w.tolist() for _, w in found] == [[1, 1], [9, 3], [5, 1], [6, 1]]
    found = list(theorem1.lumps([0.5, 0.01, 0.02, 0.6], np.array([[1.0, 2.0, 3.0, 4.0]]), 0.04))
    assert [lr for lr, _ in found] == pytest.approx([0.5, 0, 0.63]) and [w.item() for _, w in found] == [1, 5, 4]


@pytest.mark.parametrize("power", [1 / 2, 1 / 6, 0.0])
def test_lanes_of_the_public_sampler_agree_with_the_operator(power: float) -> None:
    """Both averages, bias and MSE: all within 4.5 standard errors over 20 groups (P < 1e-3 for the 12 of them)."""
    plan = theorem1.Plan(steps=(32, 64, 128, 256), lanes=4_000)
    found, exact = theorem1.averages(plan, power, 64, seed=3), theorem1.exact(plan, power, 64)
    for average, values in zip(theorem1.AVERAGES, found, strict=True):
        away = values - DoubleWell(plan.a).average
        for lanes, known in zip((away, away**2), exact[average], strict=True):
            means = in_groups(lanes, plan.groups).mean(1)
            error = means.std(ddof=1) / plan.groups**0.5
            assert abs(means.mean() - known) < 4.5 * error
            assert error < 0.08 * abs(known)  # so sharp that another step size would not pass


def test_one_seed_gives_the_same_lanes_and_another_others() -> None:
    plan = theorem1.Plan(steps=(1024, 1028, 1032, 1036), lanes=40)
    told: list[tuple[int, int]] = []
    one = theorem1.averages(plan, 0.5, 1024, 5, lambda d, n: told.append((d, n)))
    two, other = theorem1.averages(plan, 0.5, 1024, 5), theorem1.averages(plan, 0.5, 1024, 6)
    assert np.array_equal(one, two) and not np.any(np.equal(one, other))
    assert told == [(512, 1024), (1024, 1024)]


@pytest.mark.parametrize("plan", theorem1.PLANS.values())
def test_plans_have_groups_of_one_size_and_steps_to_fit_a_slope_to(plan: theorem1.Plan) -> None:
    assert plan.groups >= 2 and plan.lanes % plan.groups == 0
    assert len(plan.steps) >= 4 and list(plan.steps) == sorted(set(plan.steps))


def test_their_interval_is_the_jackknifes() -> None:
    """Of a slope, with polyfit and the jackknife written out: equal standard errors, and f(all) less its bias."""
    steps, groups = [10, 20, 40], np.random.default_rng(1).gamma(9, size=(12, 3))

    def slope(some: np.ndarray) -> float:
        return float(np.polyfit(np.log(steps), np.log(some.mean(0)), 1)[0])

    without = np.array([slope(np.delete(groups, g, 0)) for g in range(12)])
    error = math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    found = np.array(pseudo_values(lambda some: theorem1.slope(steps, some.mean(0)), groups))
    assert found.std(ddof=1) / math.sqrt(12) == pytest.approx(error, rel=1e-9)
    assert found.mean() == pytest.approx(12 * slope(groups) - 11 * without.mean(), rel=1e-9)


def test_claims_hold_for_lanes_of_the_right_exponent_and_fail_for_a_wrong_one() -> None:
    """The bias of α₀ ∝ K^(−1/2) beside that of K^(−1/6), which falls too slowly, and the control's."""
    powers = (("root", 1 / 2), ("sixth", 1 / 6), (theorem1.CONTROL, 0.0))
    plan = theorem1.Plan(steps=(64, 128, 256, 512), powers=powers)
    groups = [
        {"sweep": sweep, "steps": steps, **row}
        for n, (sweep, power) in enumerate(powers)
        for steps in plan.steps
        for average, values in zip(
            theorem1.AVERAGES, theorem1.averages(plan, power, steps, seeds(3, n, steps)), strict=True
        )
        for row in theorem1._of_groups(plan, average, values, {})
    ]
    cells = theorem1.cells(plan, groups)

    def verdict(name: str, sweep: str) -> str:
        row = theorem1.key(sweep, theorem1.WEIGHTED)
        values = [c["value"] for c in cells if (c["row"], c["column"]) == (row, "bias")]
        (claim,) = [c for c in theorem1.CLAIMS if c.name == name]
        return judge(claim, values, None).verdict

    assert verdict("bias-falls", "root") == verdict("control-bias-stays", theorem1.CONTROL) == "holds"
    assert verdict("bias-falls", "sixth") == verdict("bias-falls", theorem1.CONTROL) == "does not hold"
    assert verdict("control-bias-stays", "root") == "does not hold"


def test_errors_that_fall_as_a_power_have_it_as_their_slope() -> None:
    plan = theorem1.Plan(steps=(16, 32, 64, 128), lanes=8, groups=4)
    rng = np.random.default_rng(0)
    groups = [
        {"sweep": s, "average": a, "steps": k, "group": g, "bias": size * k**-0.5, "mse": size * k ** (-2 / 3)}
        for s, _ in plan.powers
        for a in theorem1.AVERAGES
        for g, size in enumerate(rng.uniform(1, 2, 4))
        for k in plan.steps
    ]
    cells = theorem1.cells(plan, groups)
    assert len(cells) == 3 * 2 * 2 * 4
    for one in cells:
        assert one["value"] == pytest.approx(-0.5 if one["column"] == "bias" else -2 / 3, abs=1e-9)
    groups[0]["bias"] = -100.0  # an error that changes its sign has no slope
    assert any(math.isnan(c["value"]) for c in theorem1.cells(plan, groups))


def test_exponents_are_the_stated_ones() -> None:
    """Bias O(1/(α₀K) + α₀) and MSE O(1/(α₀K) + α₀²) at α₀ ∝ K^(−p): the slower of the two terms."""
    for sweep, ((_, bias), (_, mse)) in theorem1.STATED.items():
        p = theorem1.POWERS[sweep]
        assert (bias, mse) == pytest.approx((max(p - 1, -p), max(p - 1, -2 * p)))


def test_the_figure_is_drawn_from_its_table_alone() -> None:
    kinds = [(s, a) for s in theorem1.SWEEPS for a in theorem1.MEANS]
    rows = []
    for n, (sweep, average) in enumerate(kinds, 1):
        for k in (16, 64):
            row = {"sweep": sweep, "average": average, "steps": k, "lr": 0.1, "mse_exact": math.nan}
            row |= {"bias": -n / k, "bias_low": -1.5 * n / k, "bias_high": -0.75 * n / k, "bias_exact": -0.9 * n / k}
            rows.append(row | {"mse": 10 * n / k, "mse_low": 9 * n / k, "mse_high": 12 * n / k})
    experiment = theorem1.STUDY
    (drawing,) = experiment.figures("cpu", {"errors": pd.DataFrame(rows)})
    bias, mse = drawing.draw().axes
    for n in range(1, len(kinds) + 1):
        for axis, values in ((bias, (n, 0.9 * n)), (mse, (10 * n,))):
            shown = [np.asarray(line.get_xydata()) for line in axis.lines]
            for value in values:
                expected = [[16, value / 16], [64, value / 64]]
                assert sum(s.shape == (2, 2) and np.allclose(s, expected, rtol=1e-12) for s in shown) == 1
        bars = [segment for line in bias.collections for segment in line.get_segments()]  # type: ignore[attr-defined]
        ends = [[16, 0.75 * n / 16], [16, 1.5 * n / 16]]
        assert sum(np.allclose(segment, ends, rtol=1e-12) for segment in bars) == 1
    assert list(experiment.figures("cpu", {})) == []
