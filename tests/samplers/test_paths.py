"""Whole paths on a Gaussian against the exact recursion: under a cyclical step size, and of Entropy-SGLD's nested
loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from raychains.samplers import EntropySGLD
from raychains.schedules import Cyclical
from tests.samplers import laws
from tests.samplers.cases import BEGIN, INNER, LINEAR, OWN, gaussian, local_entropy_path
from tests.samplers.laws import Law
from tests.samplers.simulate import measure, run, start, starting

LANES, TEMPERATURE = 10_000, 0.8


# Under a cyclical step size

SCHEDULE = Cyclical(steps=48, lr=0.5, cycles=2, exploration=0.25, temperature=TEMPERATURE)
FAR = Law(np.array([5.0, 3.0]), BEGIN.covariance)
HEAT = (0.3, 0.6)
FALSE_ALARM = 1e-6
"""Chance that a right sampler fails a test; divided by the numbers compared (Bonferroni), which need no
independence."""


def settings() -> list[tuple[float, float]]:
    return [(s.lr, s.temperature) for s in map(SCHEDULE.at, range(1, SCHEDULE.steps + 1))]


@pytest.mark.parametrize("name", LINEAR)
def test_mean_and_covariance_follow_the_exact_recursion(name: str) -> None:
    """At every one of 48 steps, through restarts and noise-free stages, with gradient noise."""
    method, problem = LINEAR[name], gaussian(2, noise=HEAT)
    updates = [method.update(problem, lr=lr, temperature=t) for lr, t in settings()]
    theta = start(LANES, FAR, seed=41)
    sampler = method.make(theta, problem, lr=0.1, temperature=TEMPERATURE, seed=42)
    exact = laws.path(starting(method, FAR, problem), updates, problem)
    moments = []
    for law, draws in zip(exact, run(sampler, problem, settings(), seed=43), strict=True):
        law = law.of(draws.shape[1])
        moments.append(measure([draws], law.mean).deviations(law))
    worst = np.abs(moments).max()
    assert worst < norm.isf(FALSE_ALARM / 2 / np.size(moments)), f"a moment is {worst:.1f} s.e. off"


# Entropy-SGLD


@pytest.mark.parametrize(("momentum", "growth"), [(0.0, 0.0), (0.6, 0.05)])
def test_the_path_of_x_follows_the_exact_recursion(momentum: float, growth: float) -> None:
    """Mean and covariance of x behind each of 12 outer steps, with minibatch-like noise, and T = 0 for the first 3."""
    problem = gaussian(2, noise=(0.3, 0.6))
    settings = [(0.5 if k < 24 else 0.2, 0.0 if k < 12 else TEMPERATURE) for k in range(12 * INNER)]
    theta = start(LANES, BEGIN, seed=51)
    sampler = EntropySGLD(
        [theta],
        lr=0.5,
        num_data=problem.num_data,
        temperature=TEMPERATURE,
        weight_decay=problem.decay,
        momentum=momentum,
        inner_steps=INNER,
        gamma_growth=growth,
        seed=52,
        lanes=LANES,
        **OWN,
    )
    exact = local_entropy_path(problem, settings, growth=growth, momentum=momentum)
    off = []
    for law, draws in zip(exact, run(sampler, problem, settings, seed=53), strict=True):
        x = law.of(2, start=2)
        off.append(measure([draws], x.mean).deviations(x))
    worst = np.abs(off).max()
    assert worst < norm.isf(FALSE_ALARM / 2 / np.size(off)), f"a moment is {worst:.1f} s.e. off"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_target_is_the_local_entropys(momentum: float) -> None:
    """N(H⁻¹c, (T/N)·(I + H/γ)·H⁻¹): the exact recursion goes there as lr, lr′ → 0 with L → ∞ and a → 1.

    On ℓ = ½θᵀHθ the integral over θ′ gives F(x) = ½xᵀHγ(H + γ)⁻¹x, and exp(−N·F/(γT)) has covariance (T/N)(H + γ)H⁻¹.
    The error halves with lr, once the inner loop is long.
    """
    problem, gamma = gaussian(2), OWN["gamma"]
    h = problem.hessian
    target = TEMPERATURE / problem.num_data * (h + gamma * np.eye(2)) @ np.linalg.inv(h)
    far = []
    for lr in (0.02, 0.01, 0.005):
        inner, outer = (
            laws.recursion(
                laws.local_entropy(
                    2, lr=lr, temperature=TEMPERATURE, num_data=problem.num_data, inner_lr=0.02, inner_noise=1e-4,
                    gamma=gamma, averaging=0.9, outer=last, momentum=momentum,
                ),
                problem,
            )
            for last in (False, True)
        )  # fmt: skip
        far.append(np.abs(cycle(inner, outer, count=1000).of(2, start=2).covariance - target).max())
    assert far[0] < 0.1 * target.max()
    assert far[0] / far[1] == pytest.approx(2, rel=0.1) and far[1] / far[2] == pytest.approx(2, rel=0.05)


def cycle(inner: tuple[np.ndarray, np.ndarray], outer: tuple[np.ndarray, np.ndarray], *, count: int) -> Law:
    """The fixed point of ``count`` − 1 inner steps and an outer one."""
    once, last = (
        np.block([[op, noise[:, None]], [np.zeros((1, len(noise))), np.ones((1, 1))]]) for op, noise in (inner, outer)
    )
    whole = last @ np.linalg.matrix_power(once, count - 1)
    operator, noise = whole[:-1, :-1], whole[:-1, -1]
    size = int(np.sqrt(len(noise)))
    known = np.linalg.solve(np.eye(size**2 - 1) - operator[:-1, :-1], noise[:-1] + operator[:-1, -1])
    return Law.from_moments(np.append(known, 1.0).reshape(size, size))
