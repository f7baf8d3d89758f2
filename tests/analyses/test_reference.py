"""Distances from exact references: of exact draws none, of shifted ones the known, and what the Stein test cannot see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.signal import lfilter

from raychains.analyses import Context, named, reference
from raychains.analyses.reference import independent, spread, stein_row
from raychains.analyses.target import Target, target_of
from raychains.evaluation.base import Array
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.linear_regression import LinearRegression
from raychains.tasks.mixture import AXIS, VARIANCE, Mixture25
from tests.analyses.densities import stored
from tests.analyses.made import Made, drawn, regression

TASK = Gaussian(covariance=[[4.0, -0.6], [-0.6, 0.5]], mean=[1.0, -2.0])


def of(context: Context) -> list[dict[str, Any]]:
    return [dict(row) for row in named("reference").tables(context)["reference"]]


def exact(rng: np.random.Generator, shape: tuple[int, ...], t: float = 1.0) -> Array:
    return rng.multivariate_normal(TASK.mean, t * TASK.covariance, size=shape)


def test_the_numbers_are_those_of_all_chains_draws(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chains = [exact(rng, (500, 2)) for _ in range(3)]
    found = of(stored(tmp_path, TASK, chains))
    assert [r["repeat"] for r in found] == [0, 1]
    for lane, row in enumerate(found):
        theta = np.concatenate([c[:, lane] for c in chains])
        sd = np.sqrt(np.diagonal(TASK.covariance))
        ratios = theta.std(0, ddof=1) / sd
        assert row["mean_error"] == pytest.approx((abs(theta.mean(0) - TASK.mean) / sd).max())
        assert row["sd_ratio"] == pytest.approx(np.median(ratios))
        assert (row["sd_ratio_smallest"], row["sd_ratio_largest"]) == (
            pytest.approx(ratios.min()),
            pytest.approx(ratios.max()),
        )
        root = sqrtm(TASK.covariance)
        fitted = np.cov(theta.T)
        squared = ((theta.mean(0) - TASK.mean) ** 2).sum() + np.trace(
            fitted + TASK.covariance - 2 * sqrtm(root @ fitted @ root)
        )
        assert row["gaussian_w2"] == pytest.approx(np.sqrt(squared.real), rel=1e-5)
        assert row["draws"] == 1500 and row["chains"] == 3 and row["source"] == "closed form" and row["notice"] == ""
        assert row["ksd_p"] > 0.01 and row["ksd_draws"] > 300 and row["ksd_unit"] == "sd"


def test_a_shift_of_one_sd_is_seen_by_every_measure(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sd = np.sqrt(np.diagonal(TASK.covariance))
    (row,) = of(stored(tmp_path, TASK, [exact(rng, (1000, 1)) + sd * [1.0, 0.0]]))
    assert row["mean_error"] == pytest.approx(1, abs=4 / np.sqrt(1000))
    assert row["gaussian_w2"] == pytest.approx(sd[0], abs=0.2)
    assert row["ksd_p"] == 1 / (reference.REPLICATES + 1)


def test_tempered_chains_are_held_against_their_own_law(tmp_path: Path) -> None:
    """Draws at T = .25 agree with Σ/4; under the plan of T = 1 they have half the spread."""
    rng = np.random.default_rng(1)
    draws = exact(rng, (2000, 1), t=0.25)
    (own,) = of(stored(tmp_path / "own", TASK, [draws], temperature=0.25))
    assert own["sd_ratio"] == pytest.approx(1, abs=0.06) and own["ksd_p"] > 0.01 and own["temperature"] == 0.25
    (other,) = of(stored(tmp_path / "other", TASK, [draws]))
    assert other["sd_ratio"] == pytest.approx(0.5, abs=0.03) and other["ksd_p"] < 0.01


def test_weight_decay_moves_the_reference(tmp_path: Path) -> None:
    """exp(−½·precision·θ²) times N(1, 4): precision ¼ + λ."""
    task = Gaussian(covariance=[[4.0]], mean=[1.0])
    context = stored(tmp_path, task, [np.zeros((50, 1, 1))], weight_decay=0.75)
    target = target_of(task, context.comparison.arms[0].chains[0][0])
    assert target.exact is not None
    assert float(target.exact.moments.mean[0]) == pytest.approx(0.25)
    assert float(target.exact.moments.sd[0]) == pytest.approx(1)
    found = target.potential(np.array([[0.25], [1.25]]))
    assert found is not None and found[1][:, 0] == pytest.approx([0, 1])


def test_linear_regression_is_held_against_its_posterior(tmp_path: Path) -> None:
    task = LinearRegression(num_data=40, dim=3, prior_precision=0.5)
    rng = np.random.default_rng(2)
    (row,) = of(stored(tmp_path, task, [rng.multivariate_normal(task.mean, task.covariance, size=(900, 1))]))
    assert row["mean_error"] < 4 * 1.5 / np.sqrt(900) and row["sd_ratio"] == pytest.approx(1, abs=0.1)
    assert row["ksd_p"] > 0.01


def test_the_stein_test_is_blind_to_mode_weights_where_moments_and_masses_are_not(tmp_path: Path) -> None:
    """Draws of one of 25 modes alone pass; the mean is off and one mode holds all."""
    rng = np.random.default_rng(3)
    draws = np.array([AXIS[0], AXIS[2]]) + np.sqrt(VARIANCE) * rng.normal(size=(900, 1, 2))
    context = stored(tmp_path, Mixture25(), [draws])
    (row,) = of(context)
    assert row["ksd_p"] > 0.05 and row["ksd_unit"] == "1"
    assert row["mean_error"] > 1.3 and row["sd_ratio"] < 0.1
    masses = named("diagnostics").tables(context)["modes"]
    assert max(r["share"] for r in masses) == pytest.approx(1)


def test_true_but_dependent_draws_are_rejected_no_oftener_than_the_level_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 chains of AR(1), ρ .8, of the exact law, thinned as any: rejections at 5 % within 4 standard errors (.022)."""
    monkeypatch.setattr(reference, "REPLICATES", 99)
    rng = np.random.default_rng(4)
    target = Target(Gaussian(covariance=[[1.0, 0.0], [0.0, 1.0]], mean=0.0), 1.0, 0.0)
    p_values = []
    for seed in range(100):
        noise = rng.normal(size=(1, 1500, 2))
        noise[:, 1:] *= 0.6
        row, why = stein_row(lfilter([1.0], [1.0, -0.8], noise, axis=1), target, np.ones(2), seed)
        if not why:  # a chain that happens to look slower than it is has no test
            assert 20 <= row["ksd_draws"] < 200
            p_values.append(row["ksd_p"])
    assert len(p_values) > 90
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 4 * 0.022
    assert np.mean(p_values) == pytest.approx(0.5, abs=4 * 0.029)


def test_what_hardly_moves_is_not_tested(tmp_path: Path) -> None:
    (stuck,) = of(stored(tmp_path / "stuck", TASK, [np.full((300, 1, 2), 0.5)]))
    assert np.isnan(stuck["ksd_p"]) and "too dependent" in stuck["notice"] and stuck["sd_ratio"] == 0
    (few,) = of(stored(tmp_path / "few", TASK, [np.zeros((3, 1, 2))]))
    assert "3 draws a chain" in few["notice"]


def test_an_optimiser_is_held_against_temperature_one(tmp_path: Path) -> None:
    (row,) = of(stored(tmp_path, TASK, [exact(np.random.default_rng(0), (200, 1))], temperature=0.0))
    assert row["temperature"] == 1.0 and row["sd_ratio"] == pytest.approx(1, abs=0.25)


def test_thinning_takes_the_middle_of_each_share() -> None:
    assert spread(np.arange(10), 5).tolist() == [1, 3, 5, 7, 9]
    assert spread(np.arange(4), 9).tolist() == [0, 1, 2, 3] and spread(np.arange(4), 0).tolist() == []


def test_the_worst_coordinate_says_how_many_draws_are_independent() -> None:
    rng = np.random.default_rng(0)
    slow = lfilter([1.0], [1.0, -0.9], rng.normal(size=5000))
    both = np.stack([rng.normal(size=5000), slow], axis=1)
    assert independent(both) == pytest.approx(5000 / 19, rel=0.35)
    assert independent(np.ones((9, 2))) == 0


def test_a_network_has_no_reference(tmp_path: Path) -> None:
    task = regression()
    context = Made(tmp_path, task, [(0, 0, "theta", drawn(1, task))]).context()
    why = named("reference").why_not(context)
    assert why is not None and "network" in why
    known = stored(tmp_path / "other", TASK, [np.zeros((9, 1, 2))])
    assert named("reference").why_not(known) is None
