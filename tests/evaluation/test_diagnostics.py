"""Diagnostics against processes of known autocorrelation, temperatures against exact draws, projections against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from scipy.signal import lfilter

from raychains.evaluation import diagnostics, temperature
from raychains.evaluation.vectors import flat, projections
from tests.checks import refused


def ar1(rng: np.random.Generator, rho: float, shape: tuple[int, ...]) -> np.ndarray:
    """Stationary AR(1) along axis 1 with unit variance: its ESS is n(1−ρ)/(1+ρ)."""
    noise = rng.normal(size=shape)
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


# ESS, R-hat, autocorrelation


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_known(rho: float) -> None:
    """The bulk ESS of a Gaussian process is that of its mean, n(1−ρ)/(1+ρ), but for the ranks (arcsine law: a little)."""
    x = ar1(np.random.default_rng(1), rho, (4, 10_000))
    exact = x.size * (1 - rho) / (1 + rho)
    assert diagnostics.ess(x, "mean") == pytest.approx(exact, rel=0.1)
    assert diagnostics.ess(x) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_tail_ess_of_an_autoregression_is_that_of_the_indicator(rho: float) -> None:
    """Independent: n/(1 + 2 Σ corr(1[x₀ ≤ q], 1[x_t ≤ q])), q the 5 % quantile, by the bivariate normal distribution."""
    from scipy.stats import multivariate_normal, norm

    q = norm.ppf(0.05)
    both = [multivariate_normal.cdf([q, q], cov=[[1, rho**t], [rho**t, 1]]) for t in range(1, 60)]
    exact = 40_000 / (1 + 2 * sum((b - 0.05**2) / (0.05 * 0.95) for b in both))
    found = diagnostics.ess(ar1(np.random.default_rng(2), rho, (4, 10_000)), "tail")
    assert found == pytest.approx(exact, rel=0.12)


def test_ess_takes_trailing_axes_one_by_one() -> None:
    x = ar1(np.random.default_rng(0), 0.5, (2, 300, 3, 2))
    found = diagnostics.ess(x)
    assert found.shape == (3, 2)
    assert found[2, 1] == diagnostics.ess(x[:, :, 2, 1]) and found[2, 1] != found[0, 0]


def split_r_hat(x: np.ndarray) -> float:
    """The formula: √(((n−1)/n·W + B/n)/W) over the halves."""
    half = x.shape[1] // 2
    parts = np.concatenate([x[:, :half], x[:, -half:]])
    within, between = parts.var(axis=1, ddof=1).mean(), parts.mean(axis=1).var(ddof=1)
    return float(np.sqrt(((half - 1) / half * within + between) / within))


def test_split_r_hat_equals_its_formula() -> None:
    rng = np.random.default_rng(0)
    for chains, draws in ((2, 11), (4, 100), (3, 8)):
        x = rng.normal(size=(chains, draws)).cumsum(axis=1)
        assert diagnostics.r_hat(x, "split") == pytest.approx(split_r_hat(x), rel=1e-12)
    one = rng.normal(size=(1, 40)).cumsum(axis=1)
    assert diagnostics.r_hat(one, "split") == pytest.approx(split_r_hat(one.reshape(2, 20)), rel=1e-12)


def test_r_hat_tells_agreement_from_shift_scale_and_drift() -> None:
    rng = np.random.default_rng(0)
    same = rng.normal(size=(4, 1000))
    assert diagnostics.r_hat(same) < 1.01 and diagnostics.r_hat(same, "split") < 1.01
    assert diagnostics.r_hat(same[:1]) < 1.02
    shifted = same + np.array([0, 0, 0, 1.5])[:, None]
    assert diagnostics.r_hat(shifted) > 1.1 and diagnostics.r_hat(shifted, "split") > 1.1
    wider = same * np.array([1, 1, 1, 4])[:, None]
    assert diagnostics.r_hat(wider) > 1.1 > diagnostics.r_hat(wider, "split"), "the folded ranks see it"
    drift = same + np.linspace(0, 3, 1000)
    assert diagnostics.r_hat(drift) > 1.1 and diagnostics.r_hat(drift[:1]) > 1.1


def test_autocorrelation_equals_the_direct_sum() -> None:
    x = ar1(np.random.default_rng(0), 0.7, (2, 50, 3))
    found = diagnostics.autocorrelation(x, lags=20)
    assert found.shape == (2, 21, 3)
    z = x - x.mean(1, keepdims=True)
    for t in (0, 1, 7, 20):
        assert found[:, t] == pytest.approx((z[:, : 50 - t] * z[:, t:]).sum(1) / (z**2).sum(1), abs=1e-12)
    assert diagnostics.autocorrelation(x[..., 0]).shape == (2, 50)
    long = diagnostics.autocorrelation(ar1(np.random.default_rng(0), 0.7, (1, 100_000)), lags=3)
    assert long[0] == pytest.approx([1, 0.7, 0.49, 0.343], abs=0.02)


def test_the_means_error_allows_for_autocorrelation() -> None:
    """sd/√(n(1−ρ)/(1+ρ)); and over repeats, means lie as far from 0 as their errors say."""
    rng = np.random.default_rng(0)
    found = [diagnostics.mean(ar1(rng, 0.8, (2, 2000))) for _ in range(100)]
    exact = 1 / np.sqrt(4000 * 0.2 / 1.8)
    assert np.median([e.error for e in found]) == pytest.approx(exact, rel=0.1)
    assert np.std([e.value for e in found]) == pytest.approx(exact, rel=0.25)
    assert np.isnan(diagnostics.mean([[1.0, 2.0, 6.0]]).error) and diagnostics.mean([[1.0, 2.0, 6.0]]).value == 3


def test_blocks_are_diagnosed_lane_by_lane() -> None:
    rng = np.random.default_rng(0)
    slow, fast = ar1(rng, 0.9, (2, 5000, 1)), rng.normal(size=(2, 5000, 1))
    apart = slow + np.array([0.0, 3.0]).reshape(2, 1, 1)
    lanes = np.stack([np.concatenate([slow, fast], -1), np.concatenate([fast, apart], -1)], axis=2)
    chains = [lanes[0], np.concatenate([np.full((40, 2, 2), 1e3), lanes[1]])]
    found = diagnostics.of_blocks(chains)
    assert found.draws == 10_000 and found.bulk_ess.shape == found.r_hat.shape == found.tail_ess.shape == (2, 2)
    assert found.bulk_ess[0] == pytest.approx([10_000 / 19, 10_000], rel=0.2)
    assert found.tail_ess[0, 0] < found.tail_ess[0, 1] / 2
    assert (found.r_hat[0] < 1.02).all() and found.r_hat[1, 0] < 1.02 and found.r_hat[1, 1] > 1.1
    assert found.r_hat[1, 1] == diagnostics.r_hat(lanes[:, :, 1, 1])
    assert diagnostics.of_blocks(chains[:1]).draws == 5000


def test_what_never_moves_and_what_is_not_finite() -> None:
    x = np.random.default_rng(0).normal(size=(2, 50, 3))
    x[:, :, 1], x[1, 4, 2] = 7.0, np.nan
    assert diagnostics.ess(x)[1] == 100 and np.isnan(diagnostics.ess(x)[2])
    assert np.isfinite(diagnostics.r_hat(x)[0]) and np.isnan(diagnostics.r_hat(x)[1:]).all()


def test_fewer_than_ten_draws_a_chain_have_no_effective_sample_size() -> None:
    """Two chains 50 standard deviations apart: the library's own answer is its ceiling, 16·log10 16, as if all were well."""
    from arviz_stats.base import array_stats

    x = np.random.default_rng(0).normal(size=(2, 10)) + np.array([[0.0], [50.0]])
    assert array_stats.ess(x[:, :9], method="mean") == pytest.approx(16 * np.log10(16))
    assert np.isnan(diagnostics.ess(x[:, :9])) and np.isnan(diagnostics.mean(x[:, :9]).error)
    assert diagnostics.ess(x) < 8 and diagnostics.mean(x).error > 10


def test_diagnostics_refuse_what_has_no_answer() -> None:
    with refused("series", "4"):
        diagnostics.ess(np.zeros((2, 3)))
    with refused("series", "8"):
        diagnostics.r_hat(np.zeros((1, 7)))
    with refused("series", "chains"):
        diagnostics.ess(np.zeros(9))
    with refused("lags", "10"):
        diagnostics.autocorrelation(np.zeros((1, 10)), lags=10)
    with refused("chains", "1"):
        diagnostics.of_blocks([])
    with refused("chains", "lanes"):
        diagnostics.of_blocks([np.zeros((9, 2, 2)), np.zeros((9, 2, 3))])
    with refused("gradient", "shape"):
        temperature.configurational(np.zeros((1, 9, 2)), np.zeros((1, 9, 3)))
    with refused("momentum", "0"):
        temperature.kinetic_of_velocity(np.zeros((1, 9, 2)), lr=0.1, num_data=1, momentum=1.0)


# Temperatures


def near(found: diagnostics.Estimate, exact: float, spread: float) -> None:
    """Within 4 standard errors of ``exact``, and the error is the one that independent draws have."""
    assert abs(found.value - exact) < 4 * found.error
    assert found.error == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("t", [1.0, 0.25])
def test_kinetic_temperature_of_exact_momenta(t: float) -> None:
    """‖p‖²/d of N(0, T·I) has mean T and variance 2T²/d."""
    p = np.random.default_rng(0).normal(size=(2, 4000, 5)) * np.sqrt(t)
    near(temperature.kinetic(p), t, t * np.sqrt(2 / 5 / 8000))


@pytest.mark.parametrize(("lr", "m", "curvature"), [(0.5, 0.9, 1.0), (0.01, 0.5, 3.0), (0.8, 0.1, 1.5)])
def test_kinetic_temperature_of_sghmcs_velocity(lr: float, m: float, curvature: float) -> None:
    """Exact draws of the stationary velocity, whose variance solves the discrete Lyapunov equation of the update."""
    t, n = 0.3, 50.0
    step = np.array([[1 - lr * curvature, m], [-lr * curvature, m]])
    noise = np.full((2, 2), 2 * (1 - m) * lr * t / n)
    variance = solve_discrete_lyapunov(step, noise)[1, 1]
    v = np.random.default_rng(0).normal(size=(2, 4000, 5)) * np.sqrt(variance)
    given = {"lr": lr, "num_data": n, "momentum": m}
    near(temperature.kinetic_of_velocity(v, **given, curvature=curvature), t, t * np.sqrt(2 / 5 / 8000))
    unit = np.ones((1, 4, 1)) * np.sqrt(variance)
    assert temperature.kinetic_of_velocity(unit, **given, curvature=curvature).value == pytest.approx(t, rel=1e-10)
    assert temperature.kinetic_of_velocity(unit, **given).value == pytest.approx(t / (1 - lr * curvature / 2 / (1 + m)))


@pytest.mark.parametrize("t", [1.0, 0.25])
def test_configurational_temperature_of_exact_draws(t: float) -> None:
    """U = ½(θ−μ)ᵀΛ(θ−μ), θ ~ N(μ, TΛ⁻¹): about μ, ⟨(θ−μ)·∇U⟩/d has mean T and variance 2T²/d; about 0 more."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5)) + 3 * np.eye(5)
    precision, mean = root @ root.T, np.arange(5.0)
    z = np.sqrt(t) * rng.normal(size=(2, 4000, 5)) @ np.linalg.inv(root)
    gradient = z @ precision
    near(temperature.configurational(z + mean, gradient, centre=mean), t, t * np.sqrt(2 / 5 / 8000))
    spread = np.sqrt((2 * t**2 * 5 + t * mean @ precision @ mean) / 25 / 8000)
    near(temperature.configurational(z + mean, gradient), t, spread)


def test_configurational_temperature_of_a_density_that_is_not_gaussian() -> None:
    """U = √(1 + θ²)-like tails: θ Laplace-distributed with scale T has U = |θ|, θ·∇U = |θ|, mean T."""
    theta = np.random.default_rng(0).laplace(scale=0.6, size=(1, 20_000, 1))
    near(temperature.configurational(theta, np.sign(theta)), 0.6, 0.6 / np.sqrt(20_000))


# Projections of networks


def networks(count: int) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [
        {"w": torch.randn(40, 30), "b": torch.randn(30).double(), "h": torch.randn(7).bfloat16(), "n": torch.tensor(3)}
        for _ in range(count)
    ]


def test_projections_are_those_of_the_flat_vector_on_unit_directions() -> None:
    samples = networks(3)
    vectors = np.stack([flat(s) for s in samples])
    assert vectors.shape == (3, 40 * 30 + 30 + 7)
    found = projections(samples, count=3, seed=5)
    assert found["norm"] == pytest.approx(np.linalg.norm(vectors, axis=1), rel=1e-12)
    # The direction itself, coordinate by coordinate: the projections of unit vectors.
    ask = [{"a": np.eye(6)[i, :4], "z": np.eye(6)[i, 4:]} for i in range(6)]
    unit = projections(ask, count=2, seed=5)
    for name in ("projection 1", "projection 2"):
        assert np.linalg.norm(unit[name]) == pytest.approx(1, rel=1e-12)
        x = np.random.default_rng(0).normal(size=6)
        mixed = projections([{"z": x[4:], "a": x[:4]}], count=2, seed=5)
        assert mixed[name] == pytest.approx([unit[name] @ x], rel=1e-12)
    assert abs(unit["projection 1"] @ unit["projection 2"]) < 0.99
    other = projections([{"a": np.ones(5), "b": -np.ones(5)}], count=1)["projection 1"]
    assert abs(other[0]) > 1e-3, "tensors of one shape have directions of their own"


def test_projections_depend_on_the_seed_alone_and_have_the_sphere_s_law() -> None:
    samples = networks(1)
    again = projections(iter(samples), seed=1)
    assert again["projection 2"] == pytest.approx(projections(samples, seed=1)["projection 2"], abs=0)
    assert again["projection 2"] != projections(samples, seed=2)["projection 2"]
    assert again["projection 1"] != again["projection 2"]
    many = projections(samples, count=400)
    along = np.concatenate([many[f"projection {r + 1}"] for r in range(400)]) / many["norm"]
    assert along.std() * np.sqrt(flat(samples[0]).size) == pytest.approx(1, abs=0.15)


def test_only_the_named_tensors_count() -> None:
    sample = networks(1)[0]
    assert flat(sample, ["b"]) == pytest.approx(sample["b"].numpy(), abs=0)
    got = projections([sample], names=["h", "b"])["norm"]
    assert got == pytest.approx([float(torch.cat([sample["h"].double(), sample["b"]]).norm())])
    with refused("tensor", "bb", "b"):
        flat(sample, ["bb"])
    with refused("samples", "1"):
        projections([])
