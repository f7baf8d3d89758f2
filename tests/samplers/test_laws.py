"""The shared statistical test: every sampler with a stated target on a correlated Gaussian, against its exact law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from raychains.samplers import KINDS
from tests.samplers import laws
from tests.samplers.cases import LINEAR, RUNNING, UNBIASED, gaussian
from tests.samplers.laws import Problem
from tests.samplers.oracles import Setting, closed_form_variance
from tests.samplers.simulate import Measured, Method, assert_law, measure, run

LANES, LR, TEMPERATURE = 20_000, 0.3, 0.7


def late(
    method: Method,
    problem: Problem,
    *,
    lr: float,
    temperature: float,
    burn_in: int,
    times: int = 1,
    apart: int = 1,
    lanes: int = LANES,
    seed: int = 1,
) -> list[np.ndarray]:
    """Draws at ``times`` steps, ``apart`` each, after ``burn_in`` steps from a point mass away from the mean."""
    theta = torch.zeros(lanes, problem.dimension, dtype=torch.float64, requires_grad=True)
    torch.set_num_threads(1)
    sampler = method.make(theta, problem, lr=lr, temperature=temperature, seed=seed)
    steps = [(lr, temperature)] * (burn_in + (times - 1) * apart)
    path = run(sampler, problem, steps, seed=seed + 1000)
    return [x for k, x in enumerate(path, 1) if k >= burn_in and (k - burn_in) % apart == 0]


def test_every_sampler_with_a_target_is_among_the_cases() -> None:
    """Entropy-SGLD, whose law is periodic in its inner loop, has a file of its own."""
    covered = {getattr(m.kind, "kind", None) for m in [*LINEAR.values(), *RUNNING.values()]} | {"entropy-sgld"}
    targeted = {kind for kind, c in KINDS.items() if c.instead is None and "Target: none" not in (c.__doc__ or "")}
    assert targeted <= covered


# --- the laws themselves ---


@pytest.mark.parametrize("name", LINEAR)
def test_the_fixed_point_solves_the_lyapunov_equation(name: str) -> None:
    """Σ = AΣAᵀ + Q by scipy, and the mean by its own equation, for exact gradients with constant noise."""
    problem = gaussian(noise=(0.5, 1.0, 0.2))
    update = LINEAR[name].update(problem, lr=LR, temperature=TEMPERATURE)
    reads = np.eye(problem.dimension, len(update.keep))
    a = update.keep + update.force @ problem.hessian @ reads
    q = update.noise @ update.noise.T + update.force @ np.diag(np.square(problem.noise)) @ update.force.T
    law = laws.stationary(update, problem)
    np.testing.assert_allclose(law.covariance, solve_discrete_lyapunov(a, q), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(a @ law.mean - update.force @ problem.offsets[0], law.mean, rtol=1e-8, atol=1e-10)


def test_the_fixed_point_is_the_closed_form_in_one_dimension() -> None:
    problem = Problem(hessians=np.array([[[0.7]]]), offsets=np.zeros((1, 1)), num_data=50, noise=(0.2,))
    setting = Setting(momentum=0.8, lr=0.4, lam=0.7, temperature=0.5, noise=0.2, num_data=50)
    update = laws.velocity(1, lr=0.4, temperature=0.5, num_data=50, momentum=0.8)
    assert laws.stationary(update, problem).covariance[0, 0] == pytest.approx(closed_form_variance(setting))


@pytest.mark.parametrize("name", UNBIASED)
def test_the_law_becomes_the_target_as_lr_falls(name: str) -> None:
    """θ has the posterior; with an anchor the pair has cov (C, C; C, C + Tη), C the posterior's. The error is ∝ lr.

    By Strang at a fixed friction a₀ per step the limit is (a₀/2)·coth(a₀/2) ≈ 1 + a₀²/12 times that: the target itself
    needs a₀ → 0 too.
    """
    method, problem = LINEAR[name], gaussian()
    target = problem.target(TEMPERATURE).covariance * limit(method)
    if method.law is laws.entropy:
        target = np.kron(np.ones((2, 2)), target) + np.kron(np.diag([0, 1]), TEMPERATURE * 0.3 * np.eye(3))
    far = []
    for lr in (0.04, 0.02, 0.01):
        law = laws.stationary(method.update(problem, lr=lr, temperature=TEMPERATURE), problem).of(len(target))
        far.append(np.abs(law.covariance - target).max())
    assert far[0] < 0.05 * target.max()
    assert far[0] / far[1] == pytest.approx(2, rel=0.1) and far[1] / far[2] == pytest.approx(2, rel=0.05)


def limit(method: Method) -> float:
    """Var θ over its target as lr → 0 at constant settings."""
    half = (1 - method.settings["momentum"]) / 2 if method.settings.get("integrator") == "strang" else 0.0
    return half / np.tanh(half) if half else 1.0


# --- the samplers against them ---


@pytest.mark.parametrize("name", LINEAR)
def test_draws_have_the_exact_stationary_law(name: str) -> None:
    """Lanes started away from the mean, T ≠ 1, N ≠ 1, a prior: mean and covariance within 5 s.e. of the fixed point."""
    method, problem = LINEAR[name], gaussian()
    update = method.update(problem, lr=LR, temperature=TEMPERATURE)
    burn_in = laws.settled(update, problem, 1e-4)  # 2 % of a standard error
    apart = burn_in // 3  # a twentieth is left of the mean's correlation; lanes give the errors, whatever is left
    got = late(method, problem, lr=LR, temperature=TEMPERATURE, burn_in=burn_in, times=5, apart=apart)
    assert_law(got, laws.stationary(update, problem).of(got[0].shape[1]))


def test_the_linear_samplers_are_told_apart_from_their_target() -> None:
    """At this step the exact laws differ from the target by more than the test's tolerance, so that it tests them."""
    problem, apart = gaussian(), 0
    target = problem.target(TEMPERATURE).covariance
    for method in LINEAR.values():
        law = laws.stationary(method.update(problem, lr=LR, temperature=TEMPERATURE), problem).of(3).covariance
        apart += bool(np.abs(law / target - 1).max() > 5 * np.sqrt(2 / LANES))
    assert apart >= len(LINEAR) - 3


# --- thermostats that move: the continuous law, and what the step makes of it ---

NOISE = (0.3, 0.5, 0.2)
THERMOSTATS = [
    pytest.param("sgnht", (), id="sgnht"),
    pytest.param("sgnht", NOISE, id="sgnht-noise"),
    pytest.param("sgnht-scalar", (), id="sgnht-scalar"),
    pytest.param("sgnht-scalar", (0.4, 0.4, 0.4), id="sgnht-scalar-isotropic-noise"),
    pytest.param("atmc", (), id="atmc"),
    pytest.param("atmc", NOISE, id="atmc-noise"),
    pytest.param("atmc-relativistic", NOISE, id="atmc-relativistic-noise"),
]


def halved(name: str, problem: Problem, *, temperature: float, halvings: int) -> Measured:
    """Moments of θ at the time step h = .14/2^halvings with the continuous dynamics (D, m_ζ) kept."""
    scale = 0.5**halvings
    method = replace(
        RUNNING[name],
        settings={**RUNNING[name].settings, "momentum": 1 - 0.4 * scale, "thermostat_rate": 0.02 * scale**2},
    )
    burn_in, apart = int(150 / scale), int(20 / scale)
    draws = late(
        method, problem, lr=0.2 * scale**2, temperature=temperature, burn_in=burn_in, times=6, apart=apart, lanes=10_000
    )
    return measure(draws, problem.target(temperature).mean)


@pytest.mark.parametrize(("name", "noise"), THERMOSTATS)
def test_running_thermostats_have_the_target_up_to_their_step(name: str, noise: tuple[float, ...]) -> None:
    """At h and h/2: the smaller step is off by at most 5 s.e. and what Richardson's rule makes of the two.

    Exact in continuous time for gradient noise of constant, diagonal covariance (by the scalar thermostat: isotropic).
    Strang with Gaussian momentum is of second order, so that (4Σ(h/2) − Σ(h))/3 is the target within 5 s.e.;
    relativistic momentum is of first order.
    """
    problem = gaussian(noise=noise)
    target = problem.target(TEMPERATURE)
    coarse, fine = (halved(name, problem, temperature=TEMPERATURE, halvings=k) for k in (0, 1))
    assert np.abs((fine.mean - target.mean) / fine.mean_error).max() < 5
    order = 1 if "relativistic" in name else 2
    far, gap = fine.covariance - target.covariance, np.abs(coarse.covariance - fine.covariance)
    assert (np.abs(far) <= 5 * fine.covariance_error + gap / (2**order - 1)).all()
    assert np.abs(far).max() < 0.04 * target.covariance.max()
    if order == 2:
        extrapolated = (4 * fine.covariance - coarse.covariance) / 3 - target.covariance
        error = np.hypot(4 * fine.covariance_error, coarse.covariance_error) / 3
        assert np.abs(extrapolated / error).max() < 5


def test_gradient_noise_would_show_without_a_moving_thermostat() -> None:
    """The noise of these tests heats SGHMC's and a still thermostat's largest variance by more than a third."""
    problem = gaussian(noise=NOISE)
    target = problem.target(TEMPERATURE).covariance
    for name in ("sghmc", "sgnht-still", "atmc-still"):
        hot = laws.stationary(LINEAR[name].update(problem, lr=0.2, temperature=TEMPERATURE), problem).of(3)
        assert (np.diag(hot.covariance) / np.diag(target)).max() > 1.33
