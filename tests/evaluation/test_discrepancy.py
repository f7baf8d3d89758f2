"""W₂ and moments against formulas; the Stein discrepancy against automatic differentiation, and its test's level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from threadpoolctl import threadpool_limits

from raychains.evaluation import stein
from raychains.evaluation.discrepancy import Gaussian, fit, moment_distances, w2
from raychains.evaluation.stein import stein_discrepancy
from tests.checks import refused


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices here are small: a second thread only waits for the first."""
    with threadpool_limits(1):
        yield


# Gaussians


def gaussian(mean: list[float], covariance: np.ndarray | list[list[float]]) -> Gaussian:
    return Gaussian(mean=np.array(mean, dtype=float), covariance=np.array(covariance, dtype=float))


def test_w2_in_one_dimension_is_that_of_mean_and_sd() -> None:
    """√((μ₁−μ₂)² + (σ₁−σ₂)²)."""
    assert w2(gaussian([1], [[4]]), gaussian([4], [[0.25]])) == pytest.approx(np.sqrt(9 + 1.5**2), rel=1e-14)
    assert w2(gaussian([1], [[4]]), gaussian([1], [[0]])) == pytest.approx(2)


def test_w2_of_draws_in_one_dimension_is_that_of_the_sorted_draws() -> None:
    """In one dimension W₂ couples quantiles; two affine images of the same draws are matched exactly."""
    z = np.sort(np.random.default_rng(0).exponential(size=501))
    one, other = 2 * z + 1, 0.5 * z - 3
    scale = np.sqrt(500 / 501)  # the fit's variance is the unbiased one
    shifted = w2(fit(one[:, None]), fit(other[:, None]))
    exact = np.sqrt((one.mean() - other.mean()) ** 2 + (one.std() - other.std()) ** 2 / scale**2)
    assert shifted == pytest.approx(exact, rel=1e-12)
    assert shifted == pytest.approx(np.sqrt(((one - other) ** 2).mean()), rel=1e-3)


def test_w2_of_commuting_covariances_is_that_of_their_axes() -> None:
    a, b = np.array([0.5, 2.0, 0.0]), np.array([1.5, 1.0, 3.0])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    one = gaussian([0, 0, 0], turn @ np.diag(a**2) @ turn.T)
    other = gaussian([3, 0, -4], turn @ np.diag(b**2) @ turn.T)
    assert w2(one, other) == pytest.approx(np.sqrt(25 + 1 + 1 + 9), rel=1e-10)
    assert w2(other, one) == pytest.approx(w2(one, other), rel=1e-8), "a degenerate one may stand on either side"
    assert w2(other, other) < 1e-6


@pytest.mark.parametrize("dim", [2, 5])
def test_w2_equals_scipys_matrix_square_roots(dim: int) -> None:
    rng = np.random.default_rng(dim)
    one, other = (fit(rng.normal(size=(40, dim)) @ rng.normal(size=(dim, dim))) for _ in range(2))
    root = sqrtm(other.covariance)
    cross = np.trace(sqrtm(root @ one.covariance @ root).real)
    squared = np.trace(one.covariance + other.covariance) - 2 * cross
    exact = np.sqrt(((one.mean - other.mean) ** 2).sum() + squared)
    assert w2(one, other) == pytest.approx(exact, rel=1e-8)


def test_moment_distances_are_what_they_say() -> None:
    draws = np.random.default_rng(0).normal(size=(30, 3))
    found = moment_distances(fit(draws), gaussian([0, 0, 1], np.diag([1.0, 4.0, 0.25])))
    assert found.mean_error == pytest.approx(max(abs(draws.mean(0) - [0, 0, 1]) / [1, 2, 0.5]))
    assert found.sd_ratio == pytest.approx(np.median(draws.std(0, ddof=1) / [1, 2, 0.5]))
    off = np.cov(draws.T) - np.diag([1.0, 4.0, 0.25])
    assert found.covariance_error == pytest.approx(np.sqrt((off**2).sum() / (1 + 16 + 0.0625)))
    assert found.w2 == w2(fit(draws), gaussian([0, 0, 1], np.diag([1.0, 4.0, 0.25])))
    same = moment_distances(fit(draws), fit(draws))
    assert (same.mean_error, same.sd_ratio, same.covariance_error) == (0, 1, 0) and same.w2 < 1e-6


def test_moments_refuse_what_has_no_answer() -> None:
    with refused("draws", "2"):
        fit(np.zeros((1, 3)))
    with refused("draws", "finite"):
        fit([[0.0], [np.inf]])
    with refused("dimensions"):
        w2(gaussian([0], [[1]]), gaussian([0, 0], np.eye(2)))
    with refused("covariance", "eigenvalue"):
        w2(gaussian([0, 0], [[1, 2], [2, 1]]), gaussian([0, 0], np.eye(2)))
    with refused("reference", "vary"):
        moment_distances(gaussian([0], [[1]]), gaussian([0], [[0]]))


# Kernel Stein discrepancy


def by_autograd(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """u(x_i, x_j) from the kernel alone: its derivatives by automatic differentiation."""
    n, dim = x.shape
    scores = torch.tensor(s)
    a = torch.tensor(x)[:, None].repeat(1, n, 1).requires_grad_()
    b = torch.tensor(x)[None].repeat(n, 1, 1).requires_grad_()
    kernel = (1 + ((a - b) ** 2).sum(-1)) ** -0.5
    by_a, by_b = torch.autograd.grad(kernel.sum(), (a, b), create_graph=True)
    trace = sum(torch.autograd.grad(by_a[..., d].sum(), b, retain_graph=True)[0][..., d] for d in range(dim))
    u = (scores @ scores.T) * kernel + (scores[:, None] * by_b).sum(-1) + (scores * by_a).sum(-1) + trace
    return u.detach().numpy()


def test_the_stein_kernel_equals_automatic_differentiation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stein, "ROWS", 4)  # three blocks, the last one short
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(10, 3)) + 5, rng.normal(size=(10, 3))
    rows, values = zip(*stein.stein_rows(x, s), strict=True)
    assert np.concatenate(rows).tolist() == list(range(10))
    u = by_autograd(x, s)
    assert np.concatenate(values) == pytest.approx(u, abs=1e-12)
    found = stein_discrepancy(x, s)
    assert found.ksd == pytest.approx(np.sqrt(u.mean()), rel=1e-12)
    assert found.unbiased == pytest.approx((u.sum() - np.trace(u)) / 90, rel=1e-10) and found.draws == 10
    assert stein_discrepancy(3 * x, s / 3, scale=3.0).ksd == pytest.approx(found.ksd, rel=1e-12)


def test_the_p_value_is_the_share_of_replicates_at_least_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stein, "ROWS", 7)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 2))
    u = by_autograd(x, -x)
    signs = stein.wild_signs(99, 20, 0.5, np.random.default_rng(3))
    sums = np.einsum("bi,ij,bj->b", signs, u, signs)
    expected = (1 + (sums >= u.sum()).sum()) / 100
    assert stein_discrepancy(x, -x, replicates=99, seed=3).p_value == expected and 0.01 < expected < 1


def test_signs_are_fair_and_flip_as_often_as_asked() -> None:
    signs = stein.wild_signs(400, 300, 0.1, np.random.default_rng(0))
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(signs[:, 0].mean()) < 0.2 and abs(signs.mean()) < 0.1
    assert (signs[:, 1:] != signs[:, :-1]).mean() == pytest.approx(0.1, abs=0.005)


def test_the_unbiased_square_has_mean_zero_under_the_target_and_its_known_value_off_it() -> None:
    """Draws of N(a, 1) against N(0, 1): u's mean is a²·E k(x, y), because the scores differ by the constant a."""
    rng = np.random.default_rng(0)
    away = rng.normal(size=(2_000_000, 2))
    mean_kernel = (1 + (away[:, 0] - away[:, 1]) ** 2).__pow__(-0.5).mean()
    for a in (0.0, 1.0):
        found = []
        for _ in range(60):
            x = rng.normal(size=(200, 1)) + a
            found.append(stein_discrepancy(x, -x, replicates=1).unbiased)
        assert np.mean(found) == pytest.approx(a**2 * mean_kernel, abs=4 * np.std(found) / np.sqrt(60))


def test_true_draws_are_rejected_as_often_as_the_level_says() -> None:
    """1,000 repetitions: the share's standard error is .007, so that [.02, .08] is 4 of them on either side of .05."""
    rng = np.random.default_rng(0)
    spread = np.array([[1.0, 0.0], [0.6, 0.8]])
    precision = np.linalg.inv(spread @ spread.T)
    p_values = []
    for repetition in range(1000):
        x = rng.normal(size=(100, 2)) @ spread.T + [3, -1]
        p_values.append(stein_discrepancy(x, -(x - [3, -1]) @ precision, replicates=99, seed=repetition).p_value)
    assert 0.02 <= np.mean(np.array(p_values) <= 0.05) <= 0.08
    assert np.mean(np.array(p_values) <= 0.5) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_a_shift_of_one_sd_is_detected(dim: int) -> None:
    rng = np.random.default_rng(dim)
    shift = np.eye(dim)[0]
    for seed in range(10):
        x = rng.normal(size=(300, dim))
        assert stein_discrepancy(x + shift, -(x + shift), seed=seed, replicates=99).p_value == 0.01


def test_a_wrong_width_is_detected_and_a_wrong_mode_weight_is_not() -> None:
    """The masses of modes that lie apart leave no trace in ∇ln p: half of the target missing passes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    assert stein_discrepancy(1.4 * x, -1.4 * x).p_value < 0.01
    centres = np.array([[-6.0, 0.0], [6.0, 0.0]])

    def score(theta: np.ndarray) -> np.ndarray:
        squared = ((theta[:, None] - centres) ** 2).sum(-1)
        share = 1 / (1 + np.exp((squared[:, 0] - squared[:, 1]) / 2))
        return share[:, None] * centres[0] + (1 - share[:, None]) * centres[1] - theta

    one, shifted = x + centres[0], x + centres[0] + np.array([1.0, 0.0])
    assert stein_discrepancy(one, score(one)).p_value > 0.05
    assert stein_discrepancy(shifted, score(shifted)).p_value < 0.01


def test_dependent_draws_need_rarer_flips() -> None:
    """An AR(1) with the right law is taken for a misfit with independent signs, and seldom with signs that follow it."""
    rng = np.random.default_rng(0)
    plain, following = [], []
    for seed in range(40):
        x = rng.normal(size=(1, 1))
        chain = [x]
        for noise in rng.normal(size=(299, 1, 1)):
            chain.append(0.9 * chain[-1] + np.sqrt(1 - 0.81) * noise)
        x = np.concatenate(chain)
        plain.append(stein_discrepancy(x, -x, replicates=99, seed=seed).p_value)
        following.append(stein_discrepancy(x, -x, replicates=99, seed=seed, flip=0.02).p_value)
    assert np.mean(np.array(plain) <= 0.05) > 0.5
    assert np.mean(np.array(following) <= 0.05) < 0.2


def test_long_series_are_thinned_evenly() -> None:
    assert stein.thin(np.arange(11), 6).tolist() == [0, 2, 4, 6, 8, 10]
    assert stein.thin(np.arange(5), 6).tolist() == [0, 1, 2, 3, 4]
    x = np.random.default_rng(0).normal(size=(501, 2))
    found = stein_discrepancy(x, -x, most=51, replicates=19)
    assert found == stein_discrepancy(x[::10], -x[::10], replicates=19) and found.draws == 51


def test_the_stein_discrepancy_refuses_what_has_no_answer() -> None:
    x = np.zeros((4, 2))
    with refused("score", "shape"):
        stein_discrepancy(x, x[:3])
    with refused("draws", "2"):
        stein_discrepancy(x[:1], x[:1])
    with refused("score", "finite"):
        stein_discrepancy(x, x + np.nan)
    with refused("scale", "positive"):
        stein_discrepancy(x, x, scale=[1.0, 0.0])
    with refused("scale", "shape"):
        stein_discrepancy(x, x, scale=[1.0, 1.0, 1.0])
    with refused("flip", "0.5"):
        stein_discrepancy(x, x, flip=0.9)
    with refused("replicates", "1"):
        stein_discrepancy(x, x, replicates=0)
