"""What tasks say of their own target: potential and gradient, exact moments, masses of modes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from raychains.evaluation.exact import Exact, Modes, gaussian, mixture
from raychains.tasks import Task
from raychains.tasks.digits import Digits
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.linear_regression import LinearRegression
from raychains.tasks.mixture import Mixture25, Position
from raychains.tasks.two_modes import TwoModes
from tests.checks import refused

TARGETS: list[tuple[Task, int]] = [
    (Gaussian(covariance=[[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]], mean=[1.0, -2.0, 0.5]), 3),
    (LinearRegression(minibatch=None, noise=0.7, prior_precision=2.0), 5),
    (Mixture25(), 2),
    (TwoModes(), 2),
]


def ids(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize(("task", "dim"), TARGETS, ids=ids)
def test_the_potentials_gradient_is_what_chains_follow(task: Task, dim: int) -> None:
    """N times the gradient of `backward` without minibatch noise, and the slope of the potential itself."""
    theta = np.random.default_rng(0).normal(size=(40, dim)) * 1.5
    found = task.potential(theta)
    assert found is not None
    energy, gradient = found
    model: Any = Position(torch.from_numpy(theta.copy()))
    task.backward(model, None, torch.Generator())
    assert gradient == pytest.approx(task.num_data * model.theta.grad.numpy(), rel=1e-8, abs=1e-8)
    step = 1e-5
    for d in range(dim):
        ahead, behind = (task.potential(theta + side * step * np.eye(dim)[d]) for side in (1, -1))
        assert ahead is not None and behind is not None
        slope = (ahead[0] - behind[0]) / (2 * step)
        assert slope == pytest.approx(gradient[:, d], rel=1e-4, abs=1e-4)
    assert energy.shape == (40,)
    shaped = task.potential(theta.reshape(4, 10, dim))
    assert shaped is not None and shaped[0] == pytest.approx(energy.reshape(4, 10), rel=1e-12)


@pytest.mark.parametrize(("task", "limits"), [(Mixture25(), 6.0), (TwoModes(), 4.0)], ids=ids)
def test_exact_moments_and_masses_are_the_integrals_over_the_density(task: Task, limits: float) -> None:
    """On a fine grid; a mode's mass is the integral of its responsibility, so that overlaps count right."""
    axis = np.arange(-limits, limits, 0.04)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    found, exact = task.potential(grid), task.reference()
    assert found is not None and exact is not None and exact.modes is not None
    weight = np.exp(-(found[0] - found[0].min()))
    weight /= weight.sum()
    mean = weight @ grid
    covariance = (grid - mean).T @ ((grid - mean) * weight[:, None])
    assert mean == pytest.approx(exact.moments.mean, abs=1e-6)
    assert covariance == pytest.approx(exact.moments.covariance, abs=1e-5)
    modes = exact.modes
    squared = ((grid[:, None] - modes.centres) ** 2).sum(-1)
    parts = modes.weights / modes.scales**2 * np.exp(-squared / (2 * modes.scales**2))
    share = parts / np.maximum(parts.sum(1, keepdims=True), 1e-300)
    assert weight @ share == pytest.approx(modes.weights, abs=1e-6)
    assert len(modes.names) == len(modes.weights) and not exact.gaussian


def test_gaussian_targets_say_their_moments_and_others_say_nothing() -> None:
    for task, _ in TARGETS[:2]:
        exact = task.reference()
        assert exact is not None and exact.gaussian
        assert exact.moments.mean == pytest.approx(task.mean)  # type: ignore[attr-defined]
        assert exact.moments.covariance == pytest.approx(task.covariance)  # type: ignore[attr-defined]
    network = Digits(train=90, hidden=[4])
    assert network.reference() is None and network.potential(np.zeros((1, 2))) is None


def test_temperature_and_weight_decay_change_a_gaussian_as_the_product_of_densities() -> None:
    """exp(−[U + ½p‖θ‖²]/T) on points: its log density differs from the claimed Gaussian's by one constant."""
    task = TARGETS[0][0]
    exact = task.reference()
    assert exact is not None
    moved = exact.at(0.3, 1.7)
    assert moved is not None and moved.gaussian
    theta = np.random.default_rng(1).normal(size=(30, 3))
    found = task.potential(theta)
    assert found is not None
    log = -(found[0] + 1.7 * (theta**2).sum(1) / 2) / 0.3
    claimed = MultivariateNormal(
        torch.from_numpy(moved.moments.mean), torch.from_numpy(moved.moments.covariance)
    ).log_prob(torch.from_numpy(theta))
    assert np.ptp(log - claimed.numpy()) < 1e-8
    assert exact.at() is exact


def test_a_mixture_is_known_at_temperature_one_only() -> None:
    modes = Modes(
        names=("a", "b"), centres=np.array([[0.0], [4.0]]), scales=np.array([1.0, 2.0]), weights=np.array([0.25, 0.75])
    )
    exact = mixture(modes)
    assert exact.at(0.5) is None and exact.at(1.0, 0.1) is None and exact.at(1.0) is exact
    assert float(exact.moments.mean[0]) == 3.0
    assert float(exact.moments.covariance[0, 0]) == pytest.approx(0.25 * (1 + 9) + 0.75 * (4 + 1))
    with refused("temperature", "positive"):
        exact.at(0.0)
    with refused("precision", "0"):
        gaussian([0.0], [[1.0]]).at(1.0, -1.0)
    assert isinstance(exact, Exact) and math.isclose(float(gaussian([0.0], [[4.0]]).at(1.0, 0.75).moments.sd[0]), 1.0)  # type: ignore[union-attr]
