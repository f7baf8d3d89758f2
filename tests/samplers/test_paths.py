"""The whole path under a cyclical step size: mean, covariance and W₂ to the target follow the exact recursion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from raychains.schedules import EXPLORATION, Cyclical
from tests.samplers import laws
from tests.samplers.cases import LINEAR, gaussian
from tests.samplers.laws import Law
from tests.samplers.simulate import measure, run, start, starting

LANES, TEMPERATURE = 20_000, 0.8
SCHEDULE = Cyclical(steps=48, lr=0.5, cycles=2, exploration=0.25, temperature=TEMPERATURE)
BEGIN = Law(np.array([5.0, 3.0]), np.array([[0.5, -0.2], [-0.2, 0.4]]))
NOISE = (0.3, 0.6)
FALSE_ALARM = 1e-6
"""Chance that a right sampler fails a test; divided by the numbers compared (Bonferroni), which need no independence."""


def errors_allowed(comparisons: int) -> float:
    return float(norm.isf(FALSE_ALARM / 2 / comparisons))


def settings() -> list[tuple[float, float]]:
    return [(s.lr, s.temperature) for s in map(SCHEDULE.at, range(1, SCHEDULE.steps + 1))]


def test_the_schedule_explores_and_samples_in_both_cycles() -> None:
    stages = [SCHEDULE.at(k).stage == EXPLORATION for k in range(1, SCHEDULE.steps + 1)]
    assert stages == ([True] * 6 + [False] * 18) * 2
    assert [t == 0 for _, t in settings()] == stages


@pytest.mark.parametrize("name", LINEAR)
def test_mean_covariance_and_w2_follow_the_exact_recursion(name: str) -> None:
    """At every one of 48 steps, through restarts and noise-free stages, with gradient noise."""
    method, problem = LINEAR[name], gaussian(2, noise=NOISE)
    updates = [method.update(problem, lr=lr, temperature=t) for lr, t in settings()]
    theta = start(LANES, BEGIN, seed=41)
    sampler = method.make(theta, problem, lr=0.1, temperature=TEMPERATURE, seed=42)
    exact = laws.path(starting(method, BEGIN, problem), updates, problem)
    target = problem.target(TEMPERATURE)
    moments, distances, w2 = [], [], []
    for law, draws in zip(exact, run(sampler, problem, settings(), seed=43), strict=True):
        law = law.of(draws.shape[1])
        moments.append(measure([draws], law.mean).deviations(law))
        distances.append(distance_error(draws[:, :2], law.of(2), target))
        w2.append(np.sqrt(laws.wasserstein(law.of(2), target)[0]))
    worst = np.abs(moments).max()
    assert worst < errors_allowed(np.size(moments)), f"a moment is {worst:.1f} s.e. off"
    worst = np.abs(distances).max()
    assert worst < errors_allowed(len(distances)), f"W₂² is {worst:.1f} s.e. off"
    assert w2[0] > 3 * min(w2), "the path comes near the target from afar"


def distance_error(draws: np.ndarray, law: Law, target: Law) -> float:
    """How far W₂² of the draws' moments is from the exact one, in standard errors.

    W₂² changes by the mean of its influence |x − m|² + 2(x − m)ᵀ(m − m_q) − (x − m)ᵀA(x − m), A the optimal map's matrix;
    to second order by at most about what the moments' own errors amount to, |δm|² + tr of the covariance's relative error
    squared, which is added since it is all that is left near the target.
    """
    found = Law(draws.mean(0), np.cov(draws.T, bias=True))
    exact, optimal = laws.wasserstein(law, target)
    away = draws - law.mean
    influence = (away**2).sum(1) + 2 * away @ (law.mean - target.mean) - np.einsum("li,ij,lj->l", away, optimal, away)
    first = influence.std() / np.sqrt(len(draws))
    second = 4 * np.trace(law.covariance + target.covariance) / len(draws)
    return float((laws.wasserstein(found, target)[0] - exact) / (first + second))


def test_w2_is_the_known_one() -> None:
    """Σ(√a − √b)² + |m − m_q|² for commuting covariances, through a rotation; 0 to itself; the map carries one to the other."""
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    p = Law(np.array([1.0, 2.0]), turn @ np.diag([4.0, 0.25]) @ turn.T)
    q = Law(np.array([0.0, 2.0]), turn @ np.diag([1.0, 2.25]) @ turn.T)
    square, optimal = laws.wasserstein(p, q)
    assert square == pytest.approx(1 + (2 - 1) ** 2 + (0.5 - 1.5) ** 2)
    assert laws.wasserstein(p, p)[0] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(optimal @ p.covariance @ optimal, q.covariance, rtol=1e-12)
    oblique = Law(np.zeros(2), np.array([[1.0, 0.7], [0.7, 2.0]]))
    _, optimal = laws.wasserstein(p, oblique)
    np.testing.assert_allclose(optimal @ p.covariance @ optimal, oblique.covariance, rtol=1e-12)


def test_the_influence_is_the_derivative_of_w2() -> None:
    """By central differences in the covariance and the mean of equal clouds of points."""
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(500, 2)) @ np.array([[1.0, 0.4], [0.0, 0.6]])
    law = Law(cloud.mean(0), np.cov(cloud.T, bias=True))
    target = gaussian(2).target(TEMPERATURE)
    _, optimal = laws.wasserstein(law, target)
    weights, step = rng.normal(size=500), 1e-5
    weights -= weights.mean()

    def tilted(sign: float) -> float:
        share = (1 + sign * step * weights) / 500
        mean = share @ cloud
        away = cloud - mean
        return laws.wasserstein(Law(mean, (away * share[:, None]).T @ away), target)[0]

    away = cloud - law.mean
    influence = (away**2).sum(1) + 2 * away @ (law.mean - target.mean) - np.einsum("li,ij,lj->l", away, optimal, away)
    assert (tilted(1) - tilted(-1)) / (2 * step) == pytest.approx(float(influence @ weights) / 500, rel=1e-5)


def test_a_wrong_path_is_noticed() -> None:
    """SGHMC's draws against the law of one that forgets its velocity where the temperature or cycle changes."""
    method, problem = LINEAR["sghmc"], gaussian(2, noise=NOISE)
    exact, law = [], starting(method, BEGIN, problem)
    for k, (lr, t) in enumerate(settings()):
        if k in (6, 24, 30):
            zero = np.kron(np.diag([1.0, 0.0]), np.eye(2))
            law = Law(zero @ law.mean, zero @ law.covariance @ zero)
        (law,) = laws.path(law, [method.update(problem, lr=lr, temperature=t)], problem)
        exact.append(law.of(2))
    theta = start(LANES, BEGIN, seed=41)
    sampler = method.make(theta, problem, lr=0.1, temperature=TEMPERATURE, seed=42)
    draws = run(sampler, problem, settings(), seed=43)
    off = [np.abs(measure([x], w.mean).deviations(w)).max() for w, x in zip(exact, draws, strict=True)]
    assert max(off) > 2 * errors_allowed(len(off) * 6)
