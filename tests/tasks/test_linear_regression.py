"""Bayesian linear regression: posterior, gradient and minibatches against plain formulas and exact fixed points."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from raychains import tasks
from raychains.samplers import SGLD
from raychains.spec import TaskSpec
from raychains.tasks.linear_regression import LinearRegression, make_data
from tests.checks import refused

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


def test_minibatch_gradients_are_unbiased() -> None:
    """At one point in 40,000 lanes, within 5 standard errors."""
    task, lanes = LinearRegression(**SMALL), 40_000
    whole = LinearRegression(**{**SMALL, "minibatch": None})
    model = start(task, 1)
    model.theta = torch.nn.Parameter(model.theta.detach().repeat(lanes, 1))
    task.backward(model, None, torch.Generator().manual_seed(1))
    one = start(task, 1)
    whole.backward(one, None, torch.Generator())
    gradients = model.theta.grad
    z = (gradients.mean(0) - one.theta.grad[0]) / (gradients.std(0) / math.sqrt(lanes))
    assert float(z.abs().max()) < 5


def fixed_point(task: LinearRegression, lr: float, temperature: float) -> np.ndarray:
    """Stationary covariance of SGLD: e' = (I − lr·Ĥ)e − lr·r̂ + √(2·lr·T/N)ξ around the posterior mean, solved as one
    linear system in vec C. Ĥ and r̂ are means of B independent (Aᵢ + α/N, rᵢ), rᵢ = xᵢ(xᵢᵀm − yᵢ)/σ² + αm/N.
    """
    x, y = data(task)
    n, d = x.shape
    prior = task.prior_precision / n
    each = x[:, :, None] * x[:, None, :] / task.noise**2 + prior * np.eye(d)
    errors = x * (x @ task.mean - y)[:, None] / task.noise**2 + prior * task.mean
    mean = each.mean(0)
    contraction = np.eye(d) - lr * mean
    wobble = np.mean([np.kron(a - mean, a - mean) for a in each], axis=0) * lr**2 / task.minibatch
    # The cross terms of Ĥe with r̂ are linear in E e, which is 0.
    constant = lr**2 / task.minibatch * np.cov(errors.T, bias=True) + 2 * lr * temperature / n * np.eye(d)
    system = np.eye(d * d) - np.kron(contraction, contraction) - wobble
    return np.linalg.solve(system, constant.reshape(-1)).reshape(d, d)


@pytest.mark.parametrize(("lr", "temperature"), [(0.2, 1.0), (0.3, 0.25), (0.02, 1.0)])
def test_sgld_reaches_the_exact_fixed_point_of_its_second_moments(lr: float, temperature: float) -> None:
    """Independent lanes; standard errors from the lanes themselves, because the law is not Gaussian. 5 of them."""
    task, lanes = LinearRegression(**SMALL), 20_000
    exact = fixed_point(task, lr, temperature)
    model = start(task, lanes)
    model.theta = torch.nn.Parameter(torch.from_numpy(task.mean).repeat(lanes, 1))
    sampler = SGLD(model.parameters(), lr=lr, num_data=task.num_data, temperature=temperature, seed=1)
    generator = torch.Generator().manual_seed(2)
    x, _ = data(task)
    slowest = np.linalg.eigvalsh(x.T @ x / task.num_data / task.noise**2).min() + task.prior_precision / task.num_data
    steps = math.ceil(math.log(1e-3) / (2 * math.log(1 - lr * slowest)))
    assert steps < 500
    for _ in range(steps):
        task.backward(model, None, generator)
        sampler.step()
    away = model.theta.detach().numpy() - task.mean
    products = away[:, :, None] * away[:, None, :]
    se = products.std(0) / math.sqrt(lanes)
    assert (np.abs(products.mean(0) - exact) < 5 * se + 1e-3 * np.abs(exact)).all()
    assert (np.abs(away.mean(0)) < 5 * away.std(0) / math.sqrt(lanes)).all()


def test_the_fixed_point_tends_to_the_posterior_as_the_step_does_to_zero() -> None:
    task = LinearRegression(**SMALL)
    far = [np.abs(fixed_point(task, lr, 1.0) / task.covariance - 1).max() for lr in (1e-2, 1e-3, 1e-4)]
    assert far[0] > 0.05 and far[2] < 0.01 and far[1] / far[2] == pytest.approx(10, rel=0.1)


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
    assert torch.equal(theta, start(task, lanes, seed=3).theta) and not torch.equal(theta, start(task, lanes, 4).theta)


@pytest.mark.parametrize("settings", [{}, SMALL, {**SMALL, "minibatch": None}])
def test_spec_rebuilds_the_task_and_its_data(settings: dict[str, Any]) -> None:
    task = LinearRegression(**settings)
    again = tasks.build(TaskSpec.from_json(json.loads(json.dumps(task.spec().to_json()))))
    assert isinstance(again, LinearRegression) and again.spec() == task.spec()
    np.testing.assert_array_equal(again.mean, task.mean)


def test_fingerprint_is_that_of_the_data() -> None:
    prints = [LinearRegression(**{**SMALL, **c}).fingerprint for c in ({}, {"seed": 5}, {"noise": 0.9}, {"dim": 2})]
    assert len(set(prints)) == 4
    assert LinearRegression(**{**SMALL, "prior_precision": 9.0, "minibatch": 1}).fingerprint == prints[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_data", 0), ("num_data", 1.5), ("dim", 0), ("minibatch", 0), ("minibatch", 2.5), ("noise", 0.0),
        ("noise", math.nan), ("prior_precision", 0.0), ("prior_precision", "1"), ("seed", -1), ("seed", 1.0),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(field: str, value: object) -> None:
    with refused(field):
        LinearRegression(**{**SMALL, field: value})
