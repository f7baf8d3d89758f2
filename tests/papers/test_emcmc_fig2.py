"""Two modes: θ keeps the original posterior, θₐ the smoothed one; the pull to the flat mode is a step-size effect."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import norm

from raychains.papers.emcmc.emcmc_fig2 import (
    LARGE,
    NAMES,
    SETUPS,
    SMALL,
    Paths,
    Setup,
    diagonal_density,
    flat_share,
    simulate,
)

LAW = SETUPS["law"]
SEEDS, BURN_IN = 1000, 20_000
"""The modes exchange on a scale of about 5,000 steps, so that e⁻⁴ of the start's share is left after burn-in."""


@pytest.fixture(scope="module")
def law() -> Paths:
    return simulate(LAW, "emcmc", seeds=SEEDS, every=500, first=BURN_IN)


@pytest.mark.long
def test_theta_keeps_its_original_share_of_the_flat_mode(law: Paths) -> None:
    """Its mass .80, ± .04: a share of 1,000 independent seeds has a standard error of √(.8·.2/1000) = .013."""
    assert LAW.task.flat_share == pytest.approx(0.8)
    assert abs(float(flat_share(LAW, law.theta).mean()) - 0.8) < 0.04
    assert abs(float(flat_share(LAW, law.theta[-1]).mean()) - 0.8) < 0.04


def finite_step_variances(setup: Setup, sd: float) -> np.ndarray:
    """Variances of θ and θₐ inside one Gaussian mode at this step size, by the 2×2 Lyapunov equation."""
    h, k = 1 / sd**2, 1 / setup.eta
    a = np.eye(2) - setup.lr * np.array([[h + k, -k], [-k, k]])
    return np.diag(solve_discrete_lyapunov(a, 2 * setup.lr * np.eye(2)))


@pytest.mark.long
@pytest.mark.parametrize("variable", [0, 1], ids=["theta", "anchor"])
def test_histograms_match_the_mixture_with_variances_that_eta_is_added_to(law: Paths, variable: int) -> None:
    """Along the diagonal, bin by bin, within 5 standard errors of the seeds' own time averages, which are independent.

    Variances are those of the finite step, some per cent above σ² and σ² + η, and checked to be; .01 more is allowed
    for the share that the start still has (e⁻⁴ of .3) and for what is not Gaussian between the modes.
    """
    for sd in (LAW.sharp, LAW.flat):
        np.testing.assert_allclose(finite_step_variances(LAW, sd), [sd**2, sd**2 + LAW.eta], rtol=0.04)
    points = (law.theta, law.anchor)[variable]
    assert points is not None
    along = points.sum(-1) / math.sqrt(2)  # [records, seeds]
    edges = np.array([-np.inf, -2.2, -1.8, -1.4, -1.0, -0.6, 0.0, 0.5, 1.0, 1.4, 1.8, 2.4, np.inf])
    parts = [
        weight * np.diff(norm.cdf(edges, centre * math.sqrt(2), math.sqrt(finite_step_variances(LAW, sd)[variable])))
        for weight, centre, sd in ((0.2, -1.0, LAW.sharp), (0.8, 1.0, LAW.flat))
    ]
    expected = np.sum(parts, axis=0)
    each = np.stack([((along >= a) & (along < b)).mean(0) for a, b in itertools.pairwise(edges)])
    se = each.std(1, ddof=1) / math.sqrt(SEEDS)
    assert (np.abs(each.mean(1) - expected) < 5 * se + 0.01 * expected).all(), (each.mean(1) - expected) / se
    other = np.sum(
        [
            weight * np.diff(norm.cdf(edges, c * math.sqrt(2), math.sqrt(finite_step_variances(LAW, sd)[1 - variable])))
            for weight, c, sd in ((0.2, -1.0, LAW.sharp), (0.8, 1.0, LAW.flat))
        ],
        axis=0,
    )
    assert (np.abs(each.mean(1) - other) > 10 * se).any(), "the two laws can be told apart"


def last_share(setup: Setup, method: str, seeds: int) -> float:
    return float(flat_share(setup, simulate(setup, method, seeds=seeds, every=setup.steps).theta[-1]).mean())


def test_at_the_large_step_only_entropy_mcmc_reaches_the_flat_mode() -> None:
    """Share of 100 seeds at the last step; a share of .59 has a standard error of .05: ± .15 is three of them."""
    assert last_share(LARGE, "sgd", 100) < 1e-6
    assert abs(last_share(LARGE, "sgld", 100) - 0.59) < 0.15
    assert last_share(LARGE, "emcmc", 100) >= 0.95


def test_at_the_small_step_entropy_mcmc_has_no_advantage() -> None:
    """1,000 seeds: it is ahead of SGLD by less than two standard errors of the difference; shares are about those of
    the paper's table here."""
    emcmc, sgld = (last_share(SMALL, method, 1000) for method in ("emcmc", "sgld"))
    se = math.sqrt((emcmc * (1 - emcmc) + sgld * (1 - sgld)) / 1000)
    assert emcmc - sgld < 2 * se
    assert abs(sgld - 0.138) < 0.045 and abs(emcmc - 0.098) < 0.04


def test_the_large_step_is_near_the_sharp_modes_stability_limit_and_the_small_one_is_not() -> None:
    assert 1.9 < LARGE.instability("emcmc") < 2 and SMALL.instability("emcmc") < 0.4
    assert LARGE.instability("sgld") == pytest.approx(1.0)


def test_the_exact_density_along_the_diagonal_is_the_histogram_of_exact_draws() -> None:
    rng, n = np.random.default_rng(0), 200_000
    flat = rng.random(n) < 0.8
    sd = np.sqrt(np.where(flat, LAW.flat, LAW.sharp) ** 2 + LAW.eta)
    draws = np.where(flat, 1.0, -1.0)[:, None] + sd[:, None] * rng.normal(size=(n, 2))
    found, edges = np.histogram(draws.sum(1) / math.sqrt(2), bins=40, range=(-4, 4))
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    expected = diagonal_density(LAW, middle, LAW.eta) * width * n
    # 5 standard errors of a count, and 1 % for the density's curvature inside a bin.
    assert (np.abs(found - expected) < 5 * np.sqrt(expected + 1) + 0.01 * expected).all()


def test_simulation_is_reproducible_and_records_what_it_is_asked_for() -> None:
    short = dataclasses.replace(SMALL, steps=400)
    a, b, c = (simulate(short, "emcmc", seeds=3, every=60, seed=s, first=100) for s in (1, 1, 2))
    assert a.steps.tolist() == [120, 180, 240, 300, 360]
    assert a.theta.shape == (5, 3, 2) and a.anchor is not None and a.anchor.shape == (5, 3, 2)
    np.testing.assert_array_equal(a.theta, b.theta)
    assert not np.array_equal(a.theta, c.theta)
    assert [simulate(short, m, seeds=1, every=400).anchor is None for m in NAMES] == [True, True, False]
