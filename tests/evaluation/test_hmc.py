"""Hamiltonian Monte Carlo against closed forms and numerical integration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from raychains.core.errors import RaychainsError
from raychains.evaluation import hmc
from raychains.evaluation.mcmc_diagnostics import ess

MEAN = np.array([1.0, -2.0, 30.0])
COVARIANCE = np.array([[2.0, -0.9, 0.1], [-0.9, 0.5, 0.0], [0.1, 0.0, 40.0]])
PRECISION = np.linalg.inv(COVARIANCE)


def quadratic(theta: np.ndarray) -> np.ndarray:
    away = theta - MEAN
    return np.asarray(0.5 * ((away @ PRECISION) * away).sum(-1))


def slope(theta: np.ndarray) -> np.ndarray:
    return np.asarray((theta - MEAN) @ PRECISION)


@pytest.mark.parametrize("metric", [COVARIANCE, np.diag([1.0, 1.0, 20.0])], ids=["its own", "another"])
def test_a_gaussian_has_its_moments_whatever_the_metric(metric: np.ndarray) -> None:
    """Within 5 standard errors, from the effective sample sizes of the draws and of their products."""
    found = hmc.sample(quadratic, slope, centre=MEAN + 1, covariance=metric, draws=2_000, seed=1).values
    assert found.shape == (8, 2_000, 3)
    away = found - MEAN
    sd = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(away.mean((0, 1))) < 5 * sd / np.sqrt(ess(found, "mean"))).all()
    products = away[..., :, None] * away[..., None, :]
    error = products.std((0, 1)) / np.sqrt(ess(products, "mean"))
    assert (np.abs(products.mean((0, 1)) - COVARIANCE) < 5 * error).all()
    assert (error < 0.05 * np.outer(sd, sd)).all(), "the test would notice 25 %"


def test_a_diagonal_metric_is_the_matrix_that_it_stands_for() -> None:
    diagonal = np.array([1.0, 1.0, 20.0])
    given = {"centre": MEAN, "chains": 3, "draws": 50, "warmup": 20}
    one, other = (hmc.sample(quadratic, slope, covariance=c, **given) for c in (diagonal, np.diag(diagonal)))
    np.testing.assert_allclose(one.values, other.values, rtol=1e-6)


@pytest.mark.parametrize("metric", [COVARIANCE, np.array([1.0, 1.0, 20.0])], ids=["matrix", "diagonal"])
def test_draws_go_on_at_the_last_ones_with_their_step(metric: np.ndarray) -> None:
    begun = hmc.sample(quadratic, slope, centre=MEAN, covariance=metric, chains=4, draws=100, seed=1)
    asked: list[np.ndarray] = []

    def noted(theta: np.ndarray) -> np.ndarray:
        asked.append(theta)
        return quadratic(theta)

    more = hmc.sample(noted, slope, centre=MEAN, covariance=metric, draws=2_000, seed=2, goes_on=begun)
    np.testing.assert_allclose(asked[0], begun.values[:, -1], rtol=1e-9)
    assert more.step == pytest.approx(begun.step) and more.values.shape == (4, 2_000, 3)
    away = more.values - MEAN
    assert (np.abs(away.mean((0, 1))) < 5 * np.sqrt(np.diag(COVARIANCE)) / np.sqrt(ess(more.values, "mean"))).all()


def logistic(slopes: np.ndarray, prior_variance: float) -> tuple[Any, Any]:
    """Potential and gradient of Σ log(1 + exp(−sᵢ·θ)) + ‖θ‖²/2v, s [n, dim], written with scipy's functions."""
    from scipy.special import expit

    def potential(theta: np.ndarray) -> np.ndarray:
        return np.asarray(-stats.logistic.logcdf(theta @ slopes.T).sum(-1) + (theta**2).sum(-1) / (2 * prior_variance))

    def gradient(theta: np.ndarray) -> np.ndarray:
        return np.asarray(-expit(-(theta @ slopes.T)) @ slopes + theta / prior_variance)

    return potential, gradient


def test_a_logistic_posterior_in_two_dimensions_has_the_moments_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    slopes = rng.normal([0.6, 0.2], 1.0, size=(12, 2))
    potential, gradient = logistic(slopes, 4.0)
    axis = np.linspace(-9, 11, 501)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    weights = np.exp(-potential(points))
    weights /= weights.sum()
    mean = np.einsum("ij,ijk->k", weights, points)
    covariance = np.einsum("ij,ijk,ijl->kl", weights, points - mean, points - mean)
    found = hmc.reference(potential, gradient, centre=[0.0, 0.0], covariance=np.eye(2), seed=5)
    error = found.sd / np.sqrt(found.ess)
    assert (np.abs(found.mean - mean) < 5 * error).all()
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=0.08 * covariance.max())
    assert (np.abs(found.sd / np.sqrt(np.diag(covariance)) - 1) < 0.05).all()
    assert (found.ess > 2_000).all() and (found.r_hat < 1.01).all() and found.chains == 8


def test_a_point_of_no_density_is_never_taken() -> None:
    """A standard normal above −2 alone: U is infinite below, where its slope goes on. Mean φ(2)/Φ(2)."""

    def potential(theta: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(theta[:, 0] > -2, theta[:, 0] ** 2 / 2, np.inf))

    drawn = hmc.sample(potential, lambda t: t, centre=[0.5], covariance=[[1.0]], draws=4_000, seed=2).values[..., 0]
    assert drawn[:, 1:].min() > -2
    mean = stats.norm.pdf(2) / stats.norm.cdf(2)
    error = drawn.std() / math.sqrt(float(ess(drawn, "mean")))
    assert abs(drawn.mean() - mean) < 5 * error and mean > 5 * error


def test_equal_seeds_give_equal_draws_and_the_acceptance_is_the_one_asked_for() -> None:
    def drawn(seed: int) -> hmc.Draws:
        return hmc.sample(quadratic, slope, centre=MEAN, covariance=COVARIANCE, chains=4, draws=300, seed=seed)

    one, two, other = drawn(0), drawn(0), drawn(1)
    np.testing.assert_array_equal(one.values, two.values)
    assert not np.isin(other.values[..., 0], one.values[..., 0]).any()
    assert abs(one.acceptance - hmc.ACCEPTANCE) < 0.07


def test_a_reference_doubles_its_draws_until_it_is_good_enough_or_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"centre": MEAN, "covariance": COVARIANCE, "chains": 4, "seed": 0, "draws": 100}
    found = hmc.reference(quadratic, slope, least_ess=900, **asked)
    assert found.draws in (400, 800) and (found.ess >= 900).all()
    monkeypatch.setattr(hmc, "MOST_DRAWS", 300)
    with pytest.raises(RaychainsError, match="did not converge: 4 chains of 200 draws"):
        hmc.reference(quadratic, slope, least_ess=900, **asked)
