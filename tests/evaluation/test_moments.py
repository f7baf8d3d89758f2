"""Gaussian W₂ against closed forms and scipy's matrix square root; the other moments against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from raychains.evaluation.moments import GaussianMoments, gaussian_w2

MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]])


def w2(away: np.ndarray, covariance: np.ndarray, target: np.ndarray) -> float:
    return float(gaussian_w2(np.asarray(away, dtype=float), covariance, target, np.linalg.cholesky(target)))


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
        assert w2(away, c, target) == pytest.approx(w2_by_sqrtm(away, c, target), rel=1e-8)
        assert w2(away, c, target) == pytest.approx(w2(away, target, c), rel=1e-8), "it is symmetric"


def test_w2_of_commuting_gaussians_is_that_of_their_axes() -> None:
    """Between N(0, diag a²) and N(δ, diag b²) it is √(‖δ‖² + ‖a − b‖²); a point has variance 0."""
    a, b, away = np.array([0.5, 2.0, 0.0]), np.array([1.5, 1.0, 3.0]), np.array([3.0, 0.0, -4.0])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    got = w2(turn @ away, turn @ np.diag(a**2) @ turn.T, turn @ np.diag(b**2) @ turn.T)
    assert got == pytest.approx(np.sqrt(25 + 1 + 1 + 9), rel=1e-10)
    assert w2(np.zeros(3), COVARIANCE, COVARIANCE) < 1e-7


def test_w2_of_a_stack_is_that_of_each() -> None:
    rng = np.random.default_rng(1)
    away = rng.normal(size=(4, 2, 3))
    stack = np.stack([[random_covariance(rng, 3) for _ in range(2)] for _ in range(4)])
    got = gaussian_w2(away, stack, COVARIANCE, np.linalg.cholesky(COVARIANCE))
    assert got.shape == (4, 2)
    for i in range(4):
        for j in range(2):
            assert got[i, j] == pytest.approx(w2_by_sqrtm(away[i, j], stack[i, j], COVARIANCE), rel=1e-8)


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


def test_hand_made_draws() -> None:
    """Two draws at μ ± 2σ along the first axis: mean right, variance 4 there and 0 elsewhere."""
    evaluation = GaussianMoments(mean=MEAN, covariance=np.diag([0.25, 1.0, 9.0]))
    draws = torch.from_numpy(MEAN + np.array([[[1.0, 0.0, 0.0]], [[-1.0, 0.0, 0.0]]]))
    (found,) = evaluation.summarise([evaluation.reduce([evaluation.predict({"theta": draws}, 0)], 0)])
    assert found["mean_error"] == pytest.approx(0, abs=1e-12) and found["variance_error"] == pytest.approx(3)
    assert found["variance_ratio"] == pytest.approx(0, abs=1e-12)
    assert found["w2"] == pytest.approx(np.sqrt((1 - 0.5) ** 2 + 1 + 9))


def test_exact_draws_are_close_to_the_target_and_closer_with_more_of_them() -> None:
    """Errors of both moments fall as 1/√n and so does W₂: 100 times more draws are about 10 times closer."""
    evaluation = GaussianMoments(mean=MEAN, covariance=COVARIANCE)
    rng = np.random.default_rng(3)
    found = []
    for n in (1_000, 100_000):
        draws = rng.multivariate_normal(MEAN, COVARIANCE, size=(n, 20))
        reduced = evaluation.reduce([evaluation.predict({"theta": draws}, 0)], 0)
        found.append(np.mean([lane["w2"] for lane in evaluation.summarise([reduced])]))
    assert found[0] < 0.12 and 6 < found[0] / found[1] < 16


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
