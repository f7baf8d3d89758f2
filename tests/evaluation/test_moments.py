"""Gaussian W₂ against closed forms and scipy's matrix square root; the other moments against numpy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from raychains.evaluation.moments import (
    Gaussian,
    GaussianMoments,
    Reference,
    SampledMoments,
    fit,
    gaussian_w2,
    moment_distances,
    sd_ratio,
    w2,
)
from tests.checks import refused

MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]])


def w2_by_sqrtm(away: np.ndarray, covariance: np.ndarray, target: np.ndarray) -> float:
    root = sqrtm(target)
    cross = np.trace(sqrtm(root @ covariance @ root).real)
    return float(np.sqrt(away @ away + np.trace(covariance) + np.trace(target) - 2 * cross))


def random_covariance(rng: np.random.Generator, dim: int) -> np.ndarray:
    a = rng.normal(size=(dim, dim + 2))
    return a @ a.T


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_w2_equals_scipys_matrix_square_roots(dim: int) -> None:
    rng = np.random.default_rng(dim)
    for _ in range(20):
        away, c, target = rng.normal(size=dim), random_covariance(rng, dim), random_covariance(rng, dim)
        exact = w2_by_sqrtm(away, c, target)
        assert gaussian_w2(away, c, target, np.linalg.cholesky(target)) == pytest.approx(exact, rel=1e-8)
        one, other = gaussian(away + 7, c), gaussian(np.full(dim, 7), target)
        assert (w2(one, other), w2(other, one)) == pytest.approx((exact, exact), rel=1e-8), "it is symmetric"


def blocks(count: int = 4, draws: int = 50, lanes: int = 3) -> list[torch.Tensor]:
    """Draws [draws, lanes, 3] of another Gaussian in each lane."""
    rng = np.random.default_rng(2)
    roots = [np.linalg.cholesky(random_covariance(rng, 3)) for _ in range(lanes)]
    noise = rng.normal(size=(count, draws, lanes, 3))
    found = np.stack([noise[:, :, k] @ root.T + rng.normal(size=3) for k, root in enumerate(roots)], axis=2)
    return [torch.from_numpy(b) for b in found]


def test_summary_and_curve_equal_numpys_moments_of_all_draws_so_far() -> None:
    evaluation, samples = GaussianMoments(mean=MEAN, covariance=COVARIANCE), blocks()
    made = [evaluation.predict({"theta": b}, 0) for b in samples]
    assert made[0].shape == (3, 1 + 3 + 9) and evaluation.shards == 1
    reduced = evaluation.reduce(made, 0)
    summary, curve = evaluation.summarise([reduced]), evaluation.curve([reduced])
    assert len(summary) == len(curve) == 3
    for lane in range(3):
        for s in range(len(samples)):
            draws = torch.cat(samples[: s + 1])[:, lane].numpy()
            away, covariance = draws.mean(0) - MEAN, np.cov(draws.T, bias=True)
            ratios = draws.var(0) / np.diag(COVARIANCE)
            expected = {
                "w2": w2_by_sqrtm(away, covariance, COVARIANCE),
                "mean_error": np.abs(away / np.sqrt(np.diag(COVARIANCE))).max(),
                "variance_error": np.abs(ratios - 1).max(),
                "variance_ratio": sorted(ratios)[1],
            }
            assert {n: v[s] for n, v in curve[lane].items()} == pytest.approx(expected, rel=1e-8)
        assert summary[lane] == pytest.approx(expected, rel=1e-8)
    assert {m.name for m in evaluation.metrics} < set(summary[0])


def test_float32_draws_far_from_zero_lose_nothing() -> None:
    """Sums are about the target's mean and in float64, so that their difference of squares does not cancel."""
    mean = np.array([1000.0, -1000.0])
    evaluation = GaussianMoments(mean=mean, covariance=1e-2 * np.eye(2))
    draws = np.random.default_rng(4).normal(mean, 0.1, size=(4000, 1, 2)).astype(np.float32)
    (found,) = evaluation.summarise([evaluation.reduce([evaluation.predict({"theta": draws}, 0)], 0)])
    ratios = draws[:, 0].astype(np.float64).var(0) / 1e-2
    assert found["variance_error"] == pytest.approx(np.abs(ratios - 1).max(), abs=1e-9)


def test_fingerprint_identifies_what_a_block_depends_on() -> None:
    here = GaussianMoments(mean=MEAN, covariance=COVARIANCE).fingerprint
    assert here == GaussianMoments(mean=MEAN, covariance=2 * COVARIANCE).fingerprint
    assert here != GaussianMoments(mean=MEAN + 1e-3, covariance=COVARIANCE).fingerprint
    assert here == GaussianMoments(mean=MEAN * (1 + 1e-15), covariance=COVARIANCE).fingerprint, "rounding is no change"


# Fitted Gaussians


def gaussian(mean: Any, covariance: Any) -> Gaussian:
    return Gaussian(mean=np.array(mean, dtype=float), covariance=np.array(covariance, dtype=float))


def test_w2_of_commuting_covariances_is_that_of_their_axes() -> None:
    a, b = np.array([0.5, 2.0, 0.0]), np.array([1.5, 1.0, 3.0])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    one = gaussian([0, 0, 0], turn @ np.diag(a**2) @ turn.T)
    other = gaussian([3, 0, -4], turn @ np.diag(b**2) @ turn.T)
    assert w2(one, other) == pytest.approx(np.sqrt(25 + 1 + 1 + 9), rel=1e-10)
    assert w2(other, one) == pytest.approx(w2(one, other), rel=1e-8), "a degenerate one may stand on either side"
    assert w2(other, other) < 1e-6


def test_moment_distances_are_what_they_say() -> None:
    draws = np.random.default_rng(0).normal(size=(30, 3))
    found = moment_distances(fit(draws), gaussian([0, 0, 1], np.diag([1.0, 4.0, 0.25])))
    assert found["mean_error"] == pytest.approx(max(abs(draws.mean(0) - [0, 0, 1]) / [1, 2, 0.5]))
    assert found["sd_ratio"] == pytest.approx(np.median(draws.std(0, ddof=1) / [1, 2, 0.5]))
    ratios = draws.std(0, ddof=1) / [1, 2, 0.5]
    assert (found["sd_ratio_smallest"], found["sd_ratio_largest"]) == pytest.approx((ratios.min(), ratios.max()))
    off = np.cov(draws.T) - np.diag([1.0, 4.0, 0.25])
    assert found["covariance_error"] == pytest.approx(np.sqrt((off**2).sum() / (1 + 16 + 0.0625)))
    assert found["gaussian_w2"] == w2(fit(draws), gaussian([0, 0, 1], np.diag([1.0, 4.0, 0.25])))
    same = moment_distances(fit(draws), fit(draws))
    assert (same["mean_error"], same["sd_ratio"], same["covariance_error"]) == (0, 1, 0) and same["gaussian_w2"] < 1e-6


def test_moments_refuse_what_has_no_answer() -> None:
    with refused("draws", "finite"):
        fit([[0.0], [np.inf]])
    with refused("dimensions"):
        w2(gaussian([0], [[1]]), gaussian([0, 0], np.eye(2)))
    with refused("covariance", "eigenvalue"):
        w2(gaussian([0, 0], [[1, 2], [2, 1]]), gaussian([0, 0], np.eye(2)))
    with refused("reference", "vary"):
        moment_distances(gaussian([0], [[1]]), gaussian([0], [[0]]))


# Against a sampled reference


CENTRE = np.array([1.0, -2.0, 5.0])
AWAY = np.array([0.25, -0.5, 0.125])


class Drawn:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Reference:
        self.times += 1
        ones = np.ones(3)
        return Reference(mean=CENTRE + AWAY, covariance=COVARIANCE, ess=ones, r_hat=ones, chains=1, draws=9)


def drawn_blocks() -> list[np.ndarray]:
    """Draws [draws, lanes, dim]."""
    rng = np.random.default_rng(0)
    return [CENTRE + AWAY + rng.normal(size=(n, 2, 3)) @ np.diag([1.0, 2.0, 0.5]) for n in (40, 7, 100)]


def test_everything_but_the_spread_is_what_a_gaussian_of_the_same_moments_gives() -> None:
    drawn = Drawn()
    ours = SampledMoments(centre=CENTRE, identity="a", reference=drawn)
    exact = GaussianMoments(mean=CENTRE + AWAY, covariance=COVARIANCE)
    samples = drawn_blocks()
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
