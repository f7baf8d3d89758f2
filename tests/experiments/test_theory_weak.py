"""Theorem 1's parts against closed forms, and lanes of the public sampler against the exact operator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from raychains.errors import UserError
from raychains.experiments.theory import operator, slopes, weak
from raychains.experiments.theory.double_well import DoubleWell


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


@pytest.mark.parametrize("power", [1 / 2, 1 / 6, 0.0])
def test_lanes_of_the_public_sampler_agree_with_the_operator(power: float) -> None:
    """Both averages, bias and MSE: all within 4.5 standard errors over 20 groups (P < 1e-3 for the 12 of them)."""
    plan = weak.Plan(steps=(32, 64, 128, 256), lanes=4_000)
    found, exact = weak.averages(plan, power, 64, seed=3), weak.exact(plan, power, 64)
    for average, values in zip(weak.AVERAGES, found, strict=True):
        away = values - DoubleWell(plan.a).average(np.square)
        for lanes, known in zip((away, away**2), exact[average], strict=True):
            it = slopes.jackknife(float, slopes.in_groups(lanes, plan.groups))
            error = (it.high - it.low) / 2 / 2.093
            assert abs(it.value - known) < 4.5 * error
            assert error < 0.08 * abs(known)  # so sharp that another step size would not pass


def test_one_seed_gives_the_same_lanes_and_another_others() -> None:
    plan = weak.Plan(steps=(1024, 1028, 1032, 1036), lanes=40)
    told: list[tuple[int, int]] = []
    one = weak.averages(plan, 0.5, 1024, 5, lambda d, n: told.append((d, n)))
    two, other = weak.averages(plan, 0.5, 1024, 5), weak.averages(plan, 0.5, 1024, 6)
    assert np.array_equal(one, two) and not np.any(np.equal(one, other))
    assert told == [(512, 1024), (1024, 1024)]


@pytest.mark.parametrize("wrong", [{"lanes": 30}, {"groups": 1}, {"steps": (64, 32, 128, 256)}, {"steps": (8, 16)}])
def test_a_plan_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"must"):
        weak.Plan(**wrong)  # type: ignore[arg-type]
