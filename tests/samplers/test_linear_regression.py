"""Linear regression by minibatches drawn with replacement: exact second moments at a finite step, posterior as lr →
0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.samplers import laws
from tests.samplers.cases import LINEAR, RUNNING, data, regression
from tests.samplers.laws import Law, Problem
from tests.samplers.simulate import Measured, Method, assert_law, gradient, late, measure
from tests.spread import witnessed

LANES, N, BATCH, DECAY, LR, TEMPERATURE = 20_000, 12, 2, 0.1, 0.15, 0.8


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
    """Mean and covariance of θ (and θₐ) are the fixed point's within 5 s.e., and it is well apart from the
    posterior."""
    method, problem = LINEAR[name], regression()
    update = method.update(problem, lr=LR, temperature=TEMPERATURE)
    burn_in = laws.settled(update, problem, 1e-4)
    (last,) = late(method, problem, lr=LR, temperature=TEMPERATURE, burn_in=burn_in, lanes=LANES // 3, seed=21)
    law = laws.stationary(update, problem).of(last.shape[1])
    assert_law([last], law)
    posterior = problem.target(TEMPERATURE).covariance
    assert np.abs(law.of(2).covariance / posterior - 1).max() > 0.05


def running(method: Method, problem: Problem, *, scale: float) -> Measured:
    """Moments of θ with a moving thermostat at lr = .1·scale²; D and m_ζ are kept."""
    settings = {**method.settings, "momentum": 1 - 0.4 * scale, "thermostat_rate": 0.02 * scale**2}
    lr, burn_in, apart = 0.1 * scale**2, int(250 / scale), int(25 / scale)
    moving, where = Method(kind=method.kind, settings=settings), {"burn_in": burn_in, "times": 5, "apart": apart}
    kept = late(moving, problem, lr=lr, temperature=TEMPERATURE, lanes=LANES // 2, seed=31, **where)
    return measure(kept, problem.target(TEMPERATURE).mean)


@pytest.mark.parametrize("name", witnessed(RUNNING, "sgnht"))
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
