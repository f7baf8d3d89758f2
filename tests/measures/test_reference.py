"""Distances from exact references: of exact draws none, of shifted ones the known; the Stein discrepancy's
definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from raychains.evaluation import moments
from raychains.evaluation.evaluation import Array
from raychains.measures import Context, named, reference
from raychains.measures.draws import Target
from raychains.measures.reference import independent, spread, stein_discrepancy, stein_row
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.linear_regression import LinearRegression
from raychains.tasks.mixture import AXIS, VARIANCE, Mixture25
from tests.checks import refused
from tests.evaluation.test_diagnostics import ar1
from tests.measures.densities import stored
from tests.measures.made import Made, drawn, regression

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
        law = moments.Gaussian(mean=np.array(TASK.mean), covariance=np.array(TASK.covariance))
        away = moments.moment_distances(moments.fit(theta), law)
        names = ("mean_error", "sd_ratio", "sd_ratio_smallest", "sd_ratio_largest", "gaussian_w2")
        assert {name: row[name] for name in names} == pytest.approx({name: away[name] for name in names}, rel=1e-9)
        assert row["draws"] == 1500 and row["chains"] == 3 and row["source"] == "closed form" and row["notice"] == ""
        assert row["ksd_squared"] < 0.02 and row["ksd_draws"] > 300 and row["ksd_unit"] == "sd"


def test_tempered_chains_are_held_against_their_own_law(tmp_path: Path) -> None:
    """Draws at T = .25 agree with Σ/4; under the plan of T = 1 they have half the spread."""
    rng = np.random.default_rng(1)
    draws = exact(rng, (2000, 1), t=0.25)
    (own,) = of(stored(tmp_path / "own", TASK, [draws], temperature=0.25))
    assert own["sd_ratio"] == pytest.approx(1, abs=0.06) and own["ksd_squared"] < 0.02 and own["temperature"] == 0.25
    (other,) = of(stored(tmp_path / "other", TASK, [draws]))
    assert other["sd_ratio"] == pytest.approx(0.5, abs=0.03) and other["ksd_squared"] > 0.3


def test_linear_regression_is_held_against_its_posterior(tmp_path: Path) -> None:
    task = LinearRegression(num_data=40, dim=3, prior_precision=0.5)
    rng = np.random.default_rng(2)
    (row,) = of(stored(tmp_path, task, [rng.multivariate_normal(task.mean, task.covariance, size=(900, 1))]))
    assert row["mean_error"] < 4 * 1.5 / np.sqrt(900) and row["sd_ratio"] == pytest.approx(1, abs=0.1)
    assert row["ksd_squared"] < 0.05


def test_the_stein_discrepancy_is_blind_to_mode_weights_where_moments_and_masses_are_not(tmp_path: Path) -> None:
    """Draws of one of 25 modes alone pass; the mean is off and one mode holds all."""
    rng = np.random.default_rng(3)
    draws = np.array([AXIS[0], AXIS[2]]) + np.sqrt(VARIANCE) * rng.normal(size=(900, 1, 2))
    context = stored(tmp_path, Mixture25(), [draws])
    (row,) = of(context)
    assert row["ksd_squared"] < 0.05 and row["ksd_unit"] == "1"
    assert row["mean_error"] > 1.3 and row["sd_ratio"] < 0.1
    masses = named("diagnostics").tables(context)["modes"]
    assert max(r["share"] for r in masses) == pytest.approx(1)


def test_of_true_but_dependent_draws_its_square_has_mean_zero() -> None:
    """100 chains of AR(1), ρ .8, of the exact law, thinned as any, within 4 standard errors."""
    rng = np.random.default_rng(4)
    target = Target(Gaussian(covariance=[[1.0, 0.0], [0.0, 1.0]], mean=0.0), 1.0, 0.0)
    squares = []
    for _ in range(100):
        row, why = stein_row(ar1(rng, 0.8, (1, 1500, 2)), target, np.ones(2))
        if not why:  # a chain that happens to look slower than it is has no discrepancy
            assert 20 <= row["ksd_draws"] < 200
            squares.append(row["ksd_squared"])
    assert len(squares) > 90
    assert abs(np.mean(squares)) < 4 * np.std(squares) / np.sqrt(len(squares))


def test_what_hardly_moves_is_not_tested(tmp_path: Path) -> None:
    (stuck,) = of(stored(tmp_path / "stuck", TASK, [np.full((300, 1, 2), 0.5)]))
    assert np.isnan(stuck["ksd"]) and "too dependent" in stuck["notice"] and stuck["sd_ratio"] == 0
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
    monkeypatch.setattr(reference, "ROWS", 4)  # three blocks, the last one short
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(10, 3)) + 5, rng.normal(size=(10, 3))
    rows, values = zip(*reference.stein_rows(x, s), strict=True)
    assert np.concatenate(rows).tolist() == list(range(10))
    u = by_autograd(x, s)
    assert np.concatenate(values) == pytest.approx(u, abs=1e-12)
    found = stein_discrepancy(x, s, np.ones(3))
    assert found["ksd"] == pytest.approx(np.sqrt(u.mean()), rel=1e-12)
    assert found["ksd_squared"] == pytest.approx((u.sum() - np.trace(u)) / 90, rel=1e-10) and found["ksd_draws"] == 10
    assert stein_discrepancy(3 * x, s / 3, np.full(3, 3.0))["ksd"] == pytest.approx(found["ksd"], rel=1e-12)


def test_numbers_that_are_none_are_one_line() -> None:
    with refused("score", "finite"):
        stein_discrepancy(np.zeros((4, 2)), np.full((4, 2), np.nan), np.ones(2))
