"""The mixture of 25 Gaussians: its start, and how many modes the published chains cover."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

from raychains.chain.chain import Chain
from raychains.core.sample import Sample
from raychains.schedules import Cyclical, Decreasing, Schedule
from raychains.tasks.mixture import Mixture25
from tests.chain.chain_cases import sgld_on


def test_chains_start_uniformly_in_the_box() -> None:
    lanes = 20_000
    start = Mixture25().build_model(seed=5, lanes=lanes).get_parameter("theta").detach()
    assert start.shape == (lanes, 2) and float(start.abs().max()) <= 10
    # Variance of U[−10, 10] is 100/3; a sample variance of n uniforms has relative s.e. √(.8/n).
    assert abs(float(start.double().square().mean()) / (100 / 3) - 1) < 4 * math.sqrt(0.8 / (2 * lanes))
    assert abs(float(start.mean())) < 4 * math.sqrt(100 / 3 / (2 * lanes))


def test_the_gradient_of_a_pack_is_the_gradient_and_a_points_bits_are_its_own() -> None:
    task = Mixture25()
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.float64, 1e-12)):
        points = torch.rand(1003, 2, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 24 - 12
        packed = task.packed_gradient(points)
        expected = task.potential(points.numpy())[1]
        np.testing.assert_allclose(packed.numpy(), expected, rtol=0, atol=tolerance)
        for first, last in ((0, 1), (3, 10), (5, 1003), (1000, 1003)):
            assert torch.equal(task.packed_gradient(points[first:last]), packed[first:last])
            assert torch.equal(task.gradient(points[first:last]), task.gradient(points)[first:last])


REPEATS, CHAINS = 10, 4
CYCLES = pytest.mark.parametrize("cycles", [6, pytest.param(30, marks=pytest.mark.long)])
"""The published chains have 30."""


DECREASING = Decreasing(steps=10_000, a=0.05, b=0.0, gamma=0.55)
"""A fifth of the published steps: later ones are smaller and leave no mode."""


@cache
def counts(cycles: int | None) -> np.ndarray:
    """Return the draws per mode, [chains, repeats, 25], of cyclical chains, or of decreasing ones for None.

    All chains of a schedule are lanes of one: lanes are independent, and a step of forty takes little more than one of
    ten.
    """
    task = Mixture25()
    target = task.splits()["target"]
    schedule: Schedule = DECREASING
    if cycles is not None:
        schedule = Cyclical(steps=50_000 * cycles // 30, lr=0.09, cycles=cycles, exploration=0.25)
    spec = sgld_on(task, schedule, lanes=CHAINS * REPEATS, block_draws=2000)
    found = sum(target.predict(e.tensors, 0) for e in Chain(spec) if isinstance(e, Sample))
    return np.reshape(found, (CHAINS, REPEATS, 25))


def distinct(drawn: int) -> tuple[float, float]:
    """Return mean and standard deviation of how many of 25 equally likely modes are among so many."""
    one, two = (24 / 25) ** drawn, (23 / 25) ** drawn  # a mode, two modes are not among them
    return 25 * (1 - one), math.sqrt(25 * one + 600 * two - (25 * one) ** 2)


def modes(counts: np.ndarray) -> np.ndarray:
    return np.count_nonzero(counts > 100, axis=-1)


@CYCLES
def test_cyclical_chains_cover_the_expected_number_of_modes(cycles: int) -> None:
    """Each cycle lands in one uniformly random mode: of 30, 25(1 − .96³⁰) = 17.65, sd of one run 1.60; of the 120 of
    four chains together 24.81, sd .42."""
    covered, (mean, sd) = modes(counts(cycles)), distinct(cycles)
    assert abs(covered[0].mean() - mean) < sd, "first chain, 10 repeats"
    assert abs(covered.mean() - mean) < 4 * sd / math.sqrt(CHAINS * REPEATS), "all 40 chains"
    mean, sd = distinct(CHAINS * cycles)
    assert abs(modes(counts(cycles).sum(0)).mean() - mean) < 3.4 * sd / math.sqrt(REPEATS), "four chains together"


def test_a_decreasing_chain_stays_in_its_first_mode_and_four_cover_four_random_ones() -> None:
    """25(1 − .96⁴) = 3.77 distinct of four."""
    covered = modes(counts(None))
    assert 1.0 <= covered[0].mean() <= 1.3
    assert 1.0 <= covered.mean() <= 1.3
    assert abs(modes(counts(None).sum(0)).mean() - 3.77) < 0.7
