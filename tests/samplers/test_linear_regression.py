"""Linear regression by minibatches drawn with replacement: exact second moments at a finite step, posterior as lr → 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.samplers import laws
from tests.samplers.cases import LINEAR, RUNNING, UNBIASED
from tests.samplers.laws import Law, Problem
from tests.samplers.simulate import Measured, Method, assert_law, gradient, measure, run
from tests.samplers.test_laws import limit

LANES, N, BATCH, DECAY, LR, TEMPERATURE = 20_000, 12, 2, 0.1, 0.15, 0.8


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features [N, 2], correlated, and responses [N]."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]])
    return x, x @ np.array([1.5, -1.0]) + 0.8 * rng.normal(size=N) + 0.5


def regression(batch: int | None = BATCH) -> Problem:
    """Mean loss of ½(xᵢᵀθ − yᵢ)²: Hᵢ = xᵢxᵢᵀ, cᵢ = yᵢxᵢ."""
    x, y = data()
    return Problem(hessians=np.einsum("ni,nj->nij", x, x), offsets=y[:, None] * x, num_data=N, decay=DECAY, batch=batch)


def test_the_posterior_is_that_of_conjugate_regression() -> None:
    """Precision (XᵀX + NλI)/T, mean (XᵀX + NλI)⁻¹Xᵀy."""
    x, y = data()
    precision = x.T @ x + N * DECAY * np.eye(2)
    target = regression().target(TEMPERATURE)
    np.testing.assert_allclose(target.covariance, TEMPERATURE * np.linalg.inv(precision), rtol=1e-12)
    np.testing.assert_allclose(target.mean, np.linalg.solve(precision, x.T @ y), rtol=1e-12)


def test_simulated_gradients_are_those_of_the_loss() -> None:
    """Autograd of the mean squared error; minibatches have its mean and 1/b of the data's covariance (5 s.e.)."""
    x, y = (torch.from_numpy(a) for a in data())
    theta = torch.tensor([[0.3, -0.7]], dtype=torch.float64, requires_grad=True)
    (0.5 * (x @ theta[0] - y) ** 2).mean().backward()
    generator = torch.Generator().manual_seed(0)
    torch.testing.assert_close(gradient(regression(None), theta.detach(), generator), theta.grad)
    drawn = gradient(regression(), theta.detach().expand(LANES, 2), generator).numpy()
    each = (x * (x @ theta[0] - y)[:, None]).detach().numpy()
    assert_law([drawn], Law(each.mean(0), np.cov(each.T, bias=True) / BATCH))


def test_the_recursion_of_moments_is_the_mean_over_all_minibatches() -> None:
    """One step of SGHMC from a point, by enumerating all N² minibatches of two data."""
    problem, point = regression(), np.array([0.3, -0.7])
    update = laws.velocity(2, lr=LR, temperature=TEMPERATURE, num_data=N, momentum=0.6)
    state = np.concatenate([point, [0.1, 0.2]])
    outcomes = []
    for i in range(N):
        for j in range(N):
            h = (problem.hessians[i] + problem.hessians[j]) / 2
            g = h @ point - (problem.offsets[i] + problem.offsets[j]) / 2 + DECAY * point
            outcomes.append(update.keep @ state + update.force @ g)
    (law,) = laws.path(Law(state, np.zeros((4, 4))), [update], problem)
    np.testing.assert_allclose(law.mean, np.mean(outcomes, axis=0), rtol=1e-12)
    expected = np.cov(np.array(outcomes).T, bias=True) + update.noise @ update.noise.T
    np.testing.assert_allclose(law.covariance, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", LINEAR)
def test_draws_have_the_exact_second_moments(name: str) -> None:
    """Mean and covariance of θ (and θₐ) are the fixed point's within 5 s.e., and it is well apart from the posterior."""
    method, problem = LINEAR[name], regression()
    update = method.update(problem, lr=LR, temperature=TEMPERATURE)
    theta = torch.zeros(LANES, 2, dtype=torch.float64, requires_grad=True)
    torch.set_num_threads(1)
    sampler = method.make(theta, problem, lr=LR, temperature=TEMPERATURE, seed=21)
    *_, last = run(sampler, problem, [(LR, TEMPERATURE)] * laws.settled(update, problem, 1e-4), seed=22)
    law = laws.stationary(update, problem).of(last.shape[1])
    assert_law([last], law)
    posterior = problem.target(TEMPERATURE).covariance
    assert np.abs(law.of(2).covariance / posterior - 1).max() > 0.05


@pytest.mark.parametrize("name", UNBIASED)
def test_the_exact_moments_become_the_posteriors_as_lr_falls(name: str) -> None:
    """θ's error halves with lr: all minibatch noise vanishes. (By Strang at a fixed a₀ up to (a₀/2)·coth(a₀/2).)"""
    method, problem = LINEAR[name], regression()
    target = problem.target(TEMPERATURE)
    far = []
    for lr in (0.004, 0.002, 0.001):
        law = laws.stationary(method.update(problem, lr=lr, temperature=TEMPERATURE), problem).of(2)
        far.append(np.abs(law.covariance - limit(method) * target.covariance).max())
        np.testing.assert_allclose(law.mean, target.mean, rtol=1e-6)  # gradients are unbiased and affine
    assert far[0] < 0.1 * target.covariance.max()
    assert far[0] / far[1] == pytest.approx(2, rel=0.1) and far[1] / far[2] == pytest.approx(2, rel=0.05)


def running(method: Method, problem: Problem, *, scale: float) -> Measured:
    """Moments of θ with a moving thermostat at lr = .1·scale²; D and m_ζ are kept."""
    settings = {**method.settings, "momentum": 1 - 0.4 * scale, "thermostat_rate": 0.02 * scale**2}
    lr, burn_in, apart = 0.1 * scale**2, int(250 / scale), int(25 / scale)
    theta = torch.zeros(LANES // 2, 2, dtype=torch.float64, requires_grad=True)
    sampler = Method(kind=method.kind, settings=settings).make(theta, problem, lr=lr, temperature=TEMPERATURE, seed=31)
    path = run(sampler, problem, [(lr, TEMPERATURE)] * (burn_in + 4 * apart), seed=32)
    kept = [x for k, x in enumerate(path, 1) if k >= burn_in and (k - burn_in) % apart == 0]
    return measure(kept, problem.target(TEMPERATURE).mean)


@pytest.mark.parametrize("name", RUNNING)
def test_thermostats_reach_the_posterior_as_their_step_falls(name: str) -> None:
    """Not the posterior at any lr > 0, and not even nearer to it than a still thermostat: neither is claimed.

    Gradient noise of regression is correlated and depends on θ, while a thermostat by coordinate undoes a constant
    diagonal one and a scalar thermostat an isotropic one. What holds: the noise is ∝ h in the limit of small steps, so
    that halving h (D and m_ζ kept) halves the error of mean and covariance, to .65 of it at these steps, within 5 s.e.
    """
    method, problem = RUNNING[name], regression()
    target = problem.target(TEMPERATURE)
    coarse, fine = (running(method, problem, scale=scale) for scale in (0.7, 0.35))
    before, after = (np.abs(m.covariance - target.covariance) for m in (coarse, fine))
    assert (before.max() > 10 * coarse.covariance_error).all(), "minibatches matter at this step"
    tolerance = 5 * np.hypot(fine.covariance_error, 0.65 * coarse.covariance_error)
    assert (after <= 0.65 * before + tolerance).all()
    assert after.max() < 0.12 * target.covariance.max()
    before, after = (np.abs(m.mean - target.mean) for m in (coarse, fine))
    assert (after <= 0.65 * before + 5 * np.hypot(fine.mean_error, 0.65 * coarse.mean_error)).all()
