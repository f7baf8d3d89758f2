"""Effective sample sizes, R-hat and autocorrelation against processes of known autocorrelation and formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm, rankdata

from raychains.evaluation import mcmc_diagnostics


def ar1(rng: np.random.Generator, rho: float, shape: tuple[int, ...]) -> np.ndarray:
    """Stationary AR(1) along axis 1 with unit variance: its ESS is n(1−ρ)/(1+ρ)."""
    noise = rng.normal(size=shape)
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_known(rho: float) -> None:
    """The bulk ESS of a Gaussian process is that of its mean, n(1−ρ)/(1+ρ), but for the ranks (arcsine law: a
    little)."""
    x = ar1(np.random.default_rng(1), rho, (4, 10_000))
    exact = x.size * (1 - rho) / (1 + rho)
    assert mcmc_diagnostics.ess(x, "mean") == pytest.approx(exact, rel=0.1)
    assert mcmc_diagnostics.ess(x) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_tail_ess_of_an_autoregression_is_that_of_the_indicator(rho: float) -> None:
    """Independent: n/(1 + 2 Σ corr(1[x₀ ≤ q], 1[x_t ≤ q])), q the 5 % quantile, by the bivariate normal
    distribution."""
    from scipy.stats import multivariate_normal, norm

    q = norm.ppf(0.05)
    both = [multivariate_normal.cdf([q, q], cov=[[1, rho**t], [rho**t, 1]]) for t in range(1, 60)]
    exact = 40_000 / (1 + 2 * sum((b - 0.05**2) / (0.05 * 0.95) for b in both))
    found = mcmc_diagnostics.ess(ar1(np.random.default_rng(2), rho, (4, 10_000)), "tail")
    assert found == pytest.approx(exact, rel=0.12)


def test_ess_takes_trailing_axes_one_by_one() -> None:
    x = ar1(np.random.default_rng(0), 0.5, (2, 300, 3, 2))
    found = mcmc_diagnostics.ess(x)
    assert found.shape == (3, 2)
    assert found[2, 1] == mcmc_diagnostics.ess(x[:, :, 2, 1]) and found[2, 1] != found[0, 0]


def halves(x: np.ndarray) -> np.ndarray:
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def split_r_hat(parts: np.ndarray) -> float:
    """The formula: √(((n−1)/n·W + B/n)/W) over the halves."""
    n = parts.shape[1]
    within, between = parts.var(axis=1, ddof=1).mean(), parts.mean(axis=1).var(ddof=1)
    return float(np.sqrt(((n - 1) / n * within + between) / within))


def normal_scores(x: np.ndarray) -> np.ndarray:
    return np.asarray(norm.ppf((rankdata(x, axis=None).reshape(x.shape) - 3 / 8) / (x.size + 1 / 4)))


def test_r_hat_is_the_larger_split_form_of_ranks_and_of_folded_ranks() -> None:
    rng = np.random.default_rng(0)
    for chains, draws in ((2, 11), (4, 100), (3, 8), (1, 40)):
        x = rng.normal(size=(chains, draws)).cumsum(axis=1)
        parts = halves(halves(x) if chains == 1 else x)
        forms = [split_r_hat(normal_scores(v)) for v in (parts, np.abs(parts - np.median(parts)))]
        assert mcmc_diagnostics.r_hat(x) == pytest.approx(max(forms), rel=1e-12)


def test_autocorrelation_equals_the_direct_sum() -> None:
    x = ar1(np.random.default_rng(0), 0.7, (2, 50, 3))
    found = mcmc_diagnostics.autocorrelation(x, lags=20)
    assert found.shape == (2, 21, 3)
    z = x - x.mean(1, keepdims=True)
    for t in (0, 1, 7, 20):
        assert found[:, t] == pytest.approx((z[:, : 50 - t] * z[:, t:]).sum(1) / (z**2).sum(1), abs=1e-12)
    assert mcmc_diagnostics.autocorrelation(x[..., 0], 49).shape == (2, 50)
    long = mcmc_diagnostics.autocorrelation(ar1(np.random.default_rng(0), 0.7, (1, 100_000)), lags=3)
    assert long[0] == pytest.approx([1, 0.7, 0.49, 0.343], abs=0.02)


def test_the_means_error_allows_for_autocorrelation() -> None:
    """sd/√(n(1−ρ)/(1+ρ)); and over repeats, means lie as far from 0 as their errors say."""
    rng = np.random.default_rng(0)
    found = [mcmc_diagnostics.mean(ar1(rng, 0.8, (2, 2000))) for _ in range(100)]
    exact = 1 / np.sqrt(4000 * 0.2 / 1.8)
    assert np.median([e.error for e in found]) == pytest.approx(exact, rel=0.1)
    assert np.std([e.value for e in found]) == pytest.approx(exact, rel=0.25)
    few = mcmc_diagnostics.mean(np.array([[1.0, 2.0, 6.0]]))
    assert np.isnan(few.error) and few.value == 3


def test_what_never_moves_and_what_is_not_finite() -> None:
    x = np.random.default_rng(0).normal(size=(2, 50, 3))
    x[:, :, 1], x[1, 4, 2] = 7.0, np.nan
    assert mcmc_diagnostics.ess(x)[1] == 100 and np.isnan(mcmc_diagnostics.ess(x)[2])
    assert np.isfinite(mcmc_diagnostics.r_hat(x)[0]) and np.isnan(mcmc_diagnostics.r_hat(x)[1:]).all()
