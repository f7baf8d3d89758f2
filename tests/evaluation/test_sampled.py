"""Moments against a sampled reference: the same as against a Gaussian of its moments, and the ratio of spreads by hand."""

from __future__ import annotations

import numpy as np
import pytest

from raychains.evaluation.hmc import Reference
from raychains.evaluation.moments import GaussianMoments
from raychains.evaluation.sampled import SampledMoments, moved, sd_ratio

CENTRE = np.array([1.0, -2.0, 5.0])
AWAY = np.array([0.25, -0.5, 0.125])
COVARIANCE = np.array([[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]])


class Drawn:
    """A reference that counts how often it is drawn."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Reference:
        self.times += 1
        ones = np.ones(3)
        return Reference(
            mean=CENTRE + AWAY, covariance=COVARIANCE, ess=ones, r_hat=ones, chains=1, draws=9, acceptance=0.9
        )


def blocks() -> list[np.ndarray]:
    """Draws [draws, lanes, dim]."""
    rng = np.random.default_rng(0)
    return [CENTRE + AWAY + rng.normal(size=(n, 2, 3)) @ np.diag([1.0, 2.0, 0.5]) for n in (40, 7, 100)]


def test_sums_about_one_point_become_those_about_another() -> None:
    draws, unit = blocks()[0], np.eye(3)
    here = GaussianMoments(mean=CENTRE, covariance=unit).predict({"theta": draws}, 0)
    there = GaussianMoments(mean=CENTRE + AWAY, covariance=unit).predict({"theta": draws}, 0)
    np.testing.assert_allclose(moved(here, AWAY), there, rtol=1e-9, atol=1e-9)


def test_everything_but_the_spread_is_what_a_gaussian_of_the_same_moments_gives() -> None:
    drawn = Drawn()
    ours = SampledMoments(centre=CENTRE, identity="a", reference=drawn)
    exact = GaussianMoments(mean=CENTRE + AWAY, covariance=COVARIANCE)
    samples = blocks()
    made = [ours.predict({"theta": b}, 0) for b in samples]
    assert drawn.times == 0, "predicting needs no reference"
    parts = [ours.reduce(made, 0)]
    expected = [exact.reduce([exact.predict({"theta": b}, 0) for b in samples], 0)]
    for mine, theirs in zip(ours.curve(parts), exact.curve(expected), strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-8)
    every = np.concatenate(samples)
    for lane, (mine, other) in enumerate(zip(ours.summarise(parts), exact.summarise(expected), strict=True)):
        r = every[:, lane].std(0) / np.sqrt(np.diag(COVARIANCE))
        assert mine.pop("sd_ratio") == pytest.approx(sorted(np.maximum(r, 1 / r))[1])
        assert mine == pytest.approx(other, rel=1e-8)
    ours.warm()
    assert drawn.times == 1 and ours.reference.draws == 9
    assert ours.shards == 1 and {m.name for m in ours.metrics} == {"w2", "mean_error", "variance_error", "sd_ratio"}


def test_the_ratio_of_spreads_counts_too_little_as_it_counts_too_much() -> None:
    rng = np.random.default_rng(1)
    z = rng.standard_normal((500, 4, 3))
    z = (z - z.mean(0)) / z.std(0)
    sd = np.array([0.1, 1.0, 10.0])
    for factors, ratio in (((1, 1, 1), 1.0), ((2, 2, 2), 2.0), ((0.5, 0.5, 0.5), 2.0), ((0.25, 1.5, 1.0), 1.5)):
        np.testing.assert_allclose(sd_ratio(z * sd * factors + 7, sd), np.full(4, ratio))
    assert np.isinf(sd_ratio(np.ones((5, 2, 3)), sd)).all()
    z[3, 1, 0] = np.nan
    assert np.isnan(sd_ratio(z, sd)).tolist() == [False, True, False, False]


def test_the_fingerprint_is_the_targets_and_does_not_need_the_reference() -> None:
    drawn = Drawn()
    one, same, other = (SampledMoments(centre=CENTRE, identity=i, reference=drawn).fingerprint for i in ("a", "a", "b"))
    assert one == same != other and drawn.times == 0
