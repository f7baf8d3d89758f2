"""Quantiles of weighted samples against NumPy's, and of mixtures of Gaussians against a root finder."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from raychains.inference.intervals import interval, mixture_quantiles, weighted_quantile


@pytest.mark.parametrize("q", [0.01, 0.05, 0.3, 0.5, 0.95, 0.999])
def test_weighted_quantiles_are_numpys(q: float) -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(13, 4, 3)), rng.random(13)
    wide = np.broadcast_to(weights[:, None, None], values.shape)
    expected = np.quantile(values, q, axis=0, weights=wide, method="inverted_cdf")
    np.testing.assert_array_equal(weighted_quantile(values, weights, q), expected)


def test_a_quantile_counts_shares_exactly_and_passes_over_weights_of_nothing() -> None:
    values = np.arange(20.0)[::-1]
    assert weighted_quantile(values, np.ones(20), 0.05) == 0, "one of 20 is 5 %"
    assert weighted_quantile(values, np.ones(20), 0.051) == 1
    assert weighted_quantile(values, np.ones(20, np.float32), (1 + 0.9) / 2) == 18
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, 1.0]), 0.2) == 2
    assert weighted_quantile(np.array([5.0]), np.array([2.0]), 0.5) == 5


def test_an_interval_holds_its_share_of_samples() -> None:
    rng = np.random.default_rng(1)
    values = rng.random((1000, 5))
    low, high = np.moveaxis(interval(values, np.ones(1000), 0.9), -1, 0)
    inside = ((values >= low) & (values <= high)).mean(0)
    assert low.shape == (5,) and (abs(inside - 0.9) <= 0.002).all()


@pytest.mark.parametrize("q", [1e-6, 0.001, 0.05, 0.5, 0.62, 0.95, 1 - 1e-6])
def test_quantiles_of_a_mixture_are_the_roots_of_its_distribution(q: float) -> None:
    rng = np.random.default_rng(2)
    means, noises, weights = 10 * rng.normal(size=(6, 3, 2)), 0.01 + rng.random(6), rng.random(6)
    found = mixture_quantiles(means, noises, weights, [q])
    assert found.shape == (3, 2, 1)
    for n, d in np.ndindex(3, 2):
        mixture = norm(means[:, n, d], noises)
        shares = weights / weights.sum()
        # both tails, so that a quantile near 1 has all its digits
        root = brentq(
            lambda y, m=mixture, w=shares: (w @ m.cdf(y) - q) if q < 0.5 else (1 - q) - w @ m.sf(y),
            -100,
            100,
            xtol=1e-12,
        )
        assert found[n, d, 0] == pytest.approx(root, abs=1e-7)


def test_a_mixture_of_one_is_a_gaussian_at_any_scale() -> None:
    found = mixture_quantiles(np.full((1, 1, 1), 1e6), np.array([1e-3]), np.array([5.0]), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found[0, 0], norm(1e6, 1e-3).ppf([0.1, 0.5, 0.9]), rtol=1e-15)
