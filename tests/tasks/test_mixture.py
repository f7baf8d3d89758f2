"""The mixture of 25 Gaussians: its start, and how many modes the published chains cover."""

from __future__ import annotations

import math

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


STEPS, REPEATS, CHAINS = 50_000, 10, 4
SCHEDULES: dict[str, Schedule] = {
    "cyclical": Cyclical(steps=STEPS, lr=0.09, cycles=30, exploration=0.25),
    "decreasing": Decreasing(
        steps=10_000, a=0.05, b=0.0, gamma=0.55
    ),  # a fifth: later steps are smaller and leave no mode
}


@pytest.fixture(scope="module")
def counts() -> dict[str, np.ndarray]:
    """Per schedule the draws per mode, [chains, repeats, 25].

    All chains of a schedule are lanes of one: lanes are independent, and a step of forty takes little more than one of ten.
    """
    return {name: _counts(schedule).reshape(CHAINS, REPEATS, 25) for name, schedule in SCHEDULES.items()}


def _counts(schedule: Schedule) -> np.ndarray:
    task = Mixture25()
    target = task.splits()["target"]
    spec = sgld_on(task, schedule, lanes=CHAINS * REPEATS, block_draws=2000)
    return sum(target.predict(e.tensors, 0) for e in Chain(spec) if isinstance(e, Sample))


def modes(counts: np.ndarray) -> np.ndarray:
    return np.count_nonzero(counts > 100, axis=-1)


def test_a_single_cyclical_chain_covers_the_expected_number_of_modes(counts: dict[str, np.ndarray]) -> None:
    """Each cycle lands in one uniformly random mode: 25(1 − .96³⁰) = 17.65, sd of one run 1.60."""
    covered = modes(counts["cyclical"])
    assert abs(covered[0].mean() - 17.65) < 1.6, "first chain, 10 repeats"
    assert abs(covered.mean() - 17.65) < 4 * 1.6 / math.sqrt(CHAINS * REPEATS), "all 40 chains"


def test_four_cyclical_chains_together_cover_nearly_all_modes(counts: dict[str, np.ndarray]) -> None:
    """25(1 − .96¹²⁰) = 24.81, sd of one run .42."""
    assert abs(modes(counts["cyclical"].sum(0)).mean() - 24.81) < 0.45


def test_a_single_decreasing_chain_stays_in_its_first_mode(counts: dict[str, np.ndarray]) -> None:
    covered = modes(counts["decreasing"])
    assert 1.0 <= covered[0].mean() <= 1.3
    assert 1.0 <= covered.mean() <= 1.3


def test_four_decreasing_chains_cover_four_random_modes(counts: dict[str, np.ndarray]) -> None:
    """25(1 − .96⁴) = 3.77 distinct of four."""
    assert abs(modes(counts["decreasing"].sum(0)).mean() - 3.77) < 0.7
