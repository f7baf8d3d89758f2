"""Weights of samples: against mpmath, integrals known in closed form, and the optimality of a concave problem."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from raychains.evaluation.averaging_weights import ellipsoid, harmonic_mean, stack, truncated
from tests.checks import refused

# Harmonic mean of likelihoods


def by_mpmath(logs: np.ndarray, group: np.ndarray) -> tuple[list[float], list[float]]:
    """Shares and ln ŵ_m with 60 digits, straight from App. F."""
    with mpmath.workdps(60):
        means = []
        for name in np.unique(group):
            own = [mpmath.mpf(float(v)) for v in logs[group == name]]
            means.append(1 / (mpmath.fsum(1 / mpmath.exp(v) for v in own) / len(own)))
        total = mpmath.fsum(means)
        return [float(v / total) for v in means], [float(mpmath.log(v)) for v in means]


@pytest.mark.parametrize("centre", [0.0, -3.0, -1e5, 2e4])
@pytest.mark.parametrize("spread", [0.5, 50.0])
def test_harmonic_weights_equal_high_precision(centre: float, spread: float) -> None:
    rng = np.random.default_rng(abs(int(centre)) + int(spread))
    group = np.repeat([4, 0, 9, 2], [3, 3, 5, 1])
    logs = centre + rng.uniform(-spread, spread, len(group))
    shares, evidence = by_mpmath(logs, group)
    w = harmonic_mean(logs, group)
    assert w.groups.tolist() == [0, 2, 4, 9]
    assert w.shares == pytest.approx(shares, rel=1e-11, abs=0)
    assert w.log_evidence == pytest.approx(evidence, rel=1e-14, abs=1e-12)
    assert w.samples.sum() == pytest.approx(1, rel=1e-14)
    for name, share in zip(w.groups, w.shares, strict=True):
        assert w.samples[group == name] == pytest.approx(np.full(sum(group == name), share / sum(group == name)))


def test_the_largest_terms_part_is_told() -> None:
    logs = np.log(np.array([1 / 2.0, 1 / 3.0, 1 / 5.0, 1.0]))
    w = harmonic_mean(logs, [0, 0, 0, 1])
    assert w.dominance == pytest.approx([0.5, 1.0])
    assert w.shares == pytest.approx([(3 / 10) / (3 / 10 + 1), 1 / (3 / 10 + 1)])
    assert w.warning is not None and "2 of 2" in w.warning and "group 1" in w.warning and "100%" in w.warning
    even = harmonic_mean(np.zeros(40), np.repeat([0, 1], 20))
    assert even.dominance == pytest.approx([0.05, 0.05]) and even.warning is None


def test_harmonic_weights_refuse_what_has_no_answer() -> None:
    with refused("log_likelihood", "samples"):
        harmonic_mean([], [])
    with refused("log_likelihood", "finite", "nan"):
        harmonic_mean([0.0, np.nan], [0, 1])
    with refused("log_likelihood", "finite"):
        harmonic_mean([0.0, -np.inf], [0, 1])
    with refused("group", "shape"):
        harmonic_mean([0.0, 1.0], [0])


# The mixture that the plain estimator fails on

SD, MASS = np.array([0.3, 0.6]), np.array([0.7, 0.3])


def mixture(seed: int, dim: int, draws: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact draws of both modes of .7·N(−4, .3²I) + .3·N(4, .6²I), its log density + 12.5 and the mode of each draw."""
    rng = np.random.default_rng(seed)
    centres = np.array([-4.0, 4.0])[:, None] * np.ones(dim)
    theta = np.concatenate([c + s * rng.normal(size=(draws, dim)) for c, s in zip(centres, SD, strict=True)])
    squared = ((theta[:, None] - centres) ** 2).sum(-1)
    logs = np.log(MASS) - dim / 2 * np.log(2 * np.pi * SD**2) - squared / (2 * SD**2)
    return theta, np.logaddexp(logs[:, 0], logs[:, 1]) + 12.5, np.repeat([0, 1], draws)


@pytest.mark.parametrize("dim", [1, 2])
def test_truncated_weights_recover_the_masses(dim: int) -> None:
    found, evidence = [], []
    for seed in range(60):
        w = truncated(*mixture(seed, dim))
        assert w.shares[0] == pytest.approx(0.7, rel=0.1), f"seed {seed}"
        found.append(w.shares)
        evidence.append(w.log_evidence - 12.5)
        assert w.warning is None
    shares = np.array(found)
    assert (np.abs(shares[:, 1] - 0.3) < 0.03).mean() > 0.9
    assert np.exp(evidence).mean(0) == pytest.approx(MASS, rel=0.03), "the evidence itself, not only its ratio"
    assert shares.mean(0) == pytest.approx(MASS, rel=0.03)


def test_the_ellipsoid_holds_what_the_quadratic_form_says_and_has_its_volume() -> None:
    rng = np.random.default_rng(3)
    spread = np.array([[1.0, 0.4, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, 2.0]])
    fitted, asked = rng.normal(size=(50, 3)) @ spread + 5, rng.normal(size=(4000, 3)) @ spread * 2 + 5
    inside, log_volume = ellipsoid(fitted, asked)
    covariance = np.cov(fitted.T)
    z = asked - fitted.mean(0)
    assert (inside == (np.einsum("ni,ij,nj->n", z, np.linalg.inv(covariance), z) < 4)).all() and inside.mean() > 0.1
    assert np.exp(log_volume) == pytest.approx(4 / 3 * np.pi * 4**1.5 * np.sqrt(np.linalg.det(covariance)), rel=1e-10)


def test_a_group_that_spans_two_modes_is_warned_of() -> None:
    theta, logs, _ = mixture(0, 2)
    order = np.random.default_rng(0).permutation(len(theta))
    assert truncated(*mixture(0, 2)).warning is None
    near = np.concatenate([theta[order], [[0.0, 0.0]]]), np.concatenate([logs[order], [12.5 - 80.0]])
    warning = truncated(*near, np.zeros(len(theta) + 1, dtype=int)).warning
    assert warning is not None and "100%" in warning


def test_truncated_weights_refuse_what_has_no_answer() -> None:
    theta, logs, group = mixture(0, 2)
    with refused("draws", "dim"):
        truncated(theta[:, 0], logs, group)
    with refused("log_density", "draws"):
        truncated(theta, logs[:5], group)
    with refused("draws", "group", "8"):
        truncated(theta[:6], logs[:6], group[:6])
    with refused("draws of group 0", "span", "2"):
        truncated(theta[:40] * [1, 0], logs[:40], group[:40])
    with refused("finite"):
        truncated(np.where(theta > 4, np.nan, theta), logs, group)
    apart = np.concatenate([theta[:20], theta[-20:]])
    with refused("none in group 0", "ellipsoid"):
        truncated(apart, np.concatenate([logs[:20], logs[-20:]]), np.zeros(40, dtype=int))


# Stacking


def log_probabilities(seed: int, samples: int, examples: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.log(rng.dirichlet(np.full(4, 0.4), size=(samples, examples))[..., 0] + 1e-12) - 300


def score(logs: np.ndarray, w: np.ndarray) -> float:
    """Mean ln Σ_s w_s p_s."""
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce(logs + np.log(w)[:, None], axis=0).mean())


@pytest.mark.parametrize(("samples", "examples"), [(2, 30), (5, 200), (12, 100), (40, 500), (60, 20)])
def test_stacking_meets_the_conditions_of_optimality(samples: int, examples: int) -> None:
    logs = log_probabilities(samples, samples, examples)
    w = stack(logs)
    assert (w >= 0).all() and w.sum() == pytest.approx(1, rel=1e-12)
    with np.errstate(divide="ignore"):
        mixture = np.logaddexp.reduce(logs + np.log(w)[:, None], axis=0)
    gradient = np.exp(logs - mixture).mean(1)
    # The score is known to some 1e-16, and so is the best point to its root.
    assert gradient.max() - 1 <= 1e-7, "the gap to the best score, in nats per example"
    assert gradient[w > 1e-3] == pytest.approx(1, abs=1e-5)
    assert score(logs, w) > score(logs, np.full(samples, 1 / samples))


def test_stacking_goes_on_where_samples_predict_alike() -> None:
    """A step's gain is hidden by rounding long before the best point: there one sample has all the weight."""
    generator = np.random.default_rng(13)
    logs = -generator.exponential(0.3, size=200) + 0.01 * generator.normal(size=(20, 200))
    w = stack(logs)
    gradient = np.exp(logs - np.logaddexp.reduce(logs[w > 0] + np.log(w[w > 0])[:, None], axis=0)).mean(1)
    assert gradient.max() - 1 <= 1e-8 and w[15] == pytest.approx(1, abs=1e-6)


def test_stacking_of_two_samples_solves_the_quadratic() -> None:
    """One example liked by each: (1/3) ln(w) + (2/3) ln(1−w) is largest at w = 1/3."""
    logs = np.array([[0.0, -np.inf, -np.inf], [-np.inf, 0.0, 0.0]])
    assert stack(logs) == pytest.approx([1 / 3, 2 / 3], rel=1e-7)


def test_stacking_takes_the_best_of_ordered_samples_alone_and_any_of_equal_ones() -> None:
    worse = np.log(np.random.default_rng(0).uniform(0.2, 0.8, 50))
    assert stack(np.stack([worse - 0.1, worse, worse - 2])) == pytest.approx([0, 1, 0], abs=1e-7)
    same = np.stack([worse] * 3)
    assert score(same, stack(same)) == pytest.approx(worse.mean())
    assert stack(worse[None]).tolist() == [1.0]


def test_stacking_refuses_what_has_no_answer() -> None:
    with refused("log_p", "nan"):
        stack([[0.0, np.nan]])
    with refused("log_p", "example 1"):
        stack([[0.0, -np.inf], [-1.0, -np.inf]])
