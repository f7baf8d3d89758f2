"""Bayesian linear regression: posterior, gradient and minibatches against plain formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from raychains.tasks.linear_regression import LinearRegression, make_data

SMALL: dict[str, Any] = {"num_data": 40, "dim": 3, "minibatch": 5, "noise": 0.8, "prior_precision": 2.0, "seed": 4}


def data(task: LinearRegression) -> tuple[np.ndarray, np.ndarray]:
    return make_data(task.num_data, task.dim, task.noise, task.seed)


def start(task: LinearRegression, lanes: int, seed: int = 0) -> Any:
    model: Any = task.build_model(seed=seed, lanes=lanes)
    return model


def test_the_posterior_is_the_minimum_and_the_inverse_hessian_of_the_potential() -> None:
    """By autograd of −log likelihood − log prior, which are torch's own densities."""
    task = LinearRegression(**SMALL)
    x, y = (torch.from_numpy(a) for a in data(task))

    def potential(theta: torch.Tensor) -> torch.Tensor:
        likelihood = torch.distributions.Normal(x @ theta, task.noise).log_prob(y).sum()
        # Numbers alone would make torch's density a float32 one.
        prior = torch.distributions.Normal(torch.zeros(3, dtype=torch.float64), task.prior_precision**-0.5)
        return -likelihood - prior.log_prob(theta).sum()

    mean = torch.from_numpy(task.mean).requires_grad_()
    (gradient,) = torch.autograd.grad(potential(mean), mean)
    assert float(gradient.abs().max()) < 1e-9
    hessian: Any = torch.autograd.functional.hessian(potential, torch.zeros(3, dtype=torch.float64))
    np.testing.assert_allclose(task.covariance @ hessian.numpy(), np.eye(3), atol=1e-10)


def test_full_gradient_is_the_potentials_over_n() -> None:
    """∇U/N with U = ½‖y − Xθ‖²/σ² + ½α‖θ‖²: the prior is the task's, not the sampler's."""
    task = LinearRegression(**{**SMALL, "minibatch": None})
    model, (x, y) = start(task, 6), data(task)
    loss = task.backward(model, None, torch.Generator())
    theta = model.theta.detach().numpy()
    residual = theta @ x.T - y
    np.testing.assert_allclose(
        model.theta.grad.numpy(), (residual @ x / task.noise**2 + task.prior_precision * theta) / task.num_data
    )
    assert loss is not None and float(loss) == pytest.approx((residual**2).mean() / (2 * task.noise**2))
    energy, slope = task.potential(theta)
    np.testing.assert_allclose(slope, task.num_data * model.theta.grad.numpy(), rtol=1e-8)
    expected = (residual**2).sum(1) / task.noise**2 / 2 + task.prior_precision * (theta**2).sum(1) / 2
    assert np.ptp(energy - expected) < 1e-9
    assert task.minibatch == task.num_data


def test_minibatches_are_drawn_per_lane_with_replacement_from_the_given_generator() -> None:
    task, lanes = LinearRegression(**SMALL), 7
    model, (x, y) = start(task, lanes), data(task)
    loss = task.backward(model, None, torch.Generator().manual_seed(9))
    chosen = torch.randint(40, (lanes, 5), generator=torch.Generator().manual_seed(9)).numpy()
    losses = []
    for lane in range(lanes):
        theta = model.theta[lane].detach().numpy()
        residual = x[chosen[lane]] @ theta - y[chosen[lane]]
        gradient = residual @ x[chosen[lane]] / 5 / task.noise**2 + task.prior_precision / 40 * theta
        np.testing.assert_allclose(model.theta.grad[lane].numpy(), gradient, rtol=1e-10)
        losses.append((residual**2).mean() / (2 * task.noise**2))
    assert loss is not None and float(loss) == pytest.approx(np.mean(losses))
    assert len({tuple(sorted(row)) for row in chosen.tolist()}) == lanes


def test_exact_draws_have_the_splits_moments() -> None:
    task = LinearRegression(**SMALL)
    target = task.splits()["target"]
    draws = np.random.default_rng(0).multivariate_normal(task.mean, task.covariance, size=(50_000, 2))
    for lane in target.summarise([target.reduce([target.predict({"theta": draws}, 0)], 0)]):
        # 5 s.e.: of a mean 1/√n, of a variance √(2/n), in units of the target's.
        assert lane["mean_error"] < 5 / math.sqrt(50_000) and lane["variance_error"] < 5 * math.sqrt(2 / 50_000)


def test_chains_start_at_draws_from_the_prior() -> None:
    task, lanes = LinearRegression(**SMALL), 20_000
    theta = start(task, lanes, seed=3).theta.detach()
    assert abs(float(theta.square().mean()) * task.prior_precision - 1) < 5 * math.sqrt(2 / (3 * lanes))


def test_fingerprint_is_that_of_the_data() -> None:
    prints = [LinearRegression(**{**SMALL, **c}).fingerprint for c in ({}, {"seed": 5}, {"noise": 0.9}, {"dim": 2})]
    assert len(set(prints)) == 4
    assert LinearRegression(**{**SMALL, "prior_precision": 9.0, "minibatch": 1}).fingerprint == prints[0]
