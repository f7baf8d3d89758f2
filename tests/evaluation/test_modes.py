"""Mode coverage against a k-d tree and against counting by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from raychains.evaluation.modes import ModeCoverage

CENTRES = [(float(x), float(y)) for x, y in itertools.product((-4, -2, 0, 2, 4), repeat=2)]
RADIUS, MORE_THAN = 0.25, 100


def coverage(**change: Any) -> ModeCoverage:
    return ModeCoverage(**{"centres": CENTRES, "radius": RADIUS, "more_than": MORE_THAN, **change})


def blocks(count: int, draws: int = 3000, lanes: int = 3) -> list[torch.Tensor]:
    """Draws [draws, lanes, 2] that stay in a few modes per lane, others in more."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(count):
        modes = np.asarray(CENTRES)[rng.integers(1, 1 + 8 * np.arange(1, lanes + 1), size=(draws, lanes))]
        out.append(torch.from_numpy(modes + rng.normal(scale=0.03**0.5, size=modes.shape)))
    return out


def by_tree(draws: np.ndarray) -> np.ndarray:
    """Counts [lanes, modes] within the radius."""
    lanes = [cKDTree(draws[:, lane]) for lane in range(draws.shape[1])]
    return np.array([tree.query_ball_point(CENTRES, RADIUS, return_length=True) for tree in lanes])


def test_counts_equal_a_kd_trees() -> None:
    draws = blocks(1)[0]
    got = coverage().predict({"theta": draws}, 0)
    assert got.shape == (3, 25) and got.dtype == np.int64
    np.testing.assert_array_equal(got, by_tree(draws.numpy()))
    assert got.sum() > 0.5 * 3 * len(draws) * 0.64, "most draws are counted"


def test_summary_and_curve_equal_counting_all_draws_so_far() -> None:
    evaluation, samples = coverage(), blocks(4, draws=400)
    reduced = evaluation.reduce([evaluation.predict({"theta": b}, 0) for b in samples], 0)
    expected = [
        np.count_nonzero(by_tree(torch.cat(samples[: s + 1]).numpy()) > MORE_THAN, axis=1) for s in range(len(samples))
    ]
    assert len({int(n) for row in expected for n in row}) >= 3, "the curves move"
    assert evaluation.summarise([reduced]) == [{"modes": float(n)} for n in expected[-1]]
    assert evaluation.curve([reduced]) == [{"modes": [float(row[lane]) for row in expected]} for lane in range(3)]


def test_a_mode_needs_more_than_the_threshold() -> None:
    draws = torch.zeros(101, 2, 2)
    draws[100, 1] = 50.0  # lane 0 has 101 draws in the mode at 0, lane 1 has 100
    evaluation = coverage()
    reduced = evaluation.reduce([evaluation.predict({"theta": draws}, 0)], 0)
    assert evaluation.summarise([reduced]) == [{"modes": 1.0}, {"modes": 0.0}]


@pytest.mark.parametrize(("distance", "counted"), [(0.25, 1), (0.2500001, 0), (0.0, 1)])
def test_the_radius_is_inclusive(distance: float, counted: int) -> None:
    draws = torch.tensor([[[2.0 + distance, -4.0]]], dtype=torch.float64)
    assert coverage().predict({"theta": draws}, 0).sum() == counted


def test_counts_of_several_chains_add_up_lane_by_lane() -> None:
    evaluation = coverage()
    first, second = torch.zeros(60, 1, 2), torch.zeros(60, 1, 2)
    alone = evaluation.reduce([evaluation.predict({"theta": first}, 0)], 0)
    both = evaluation.reduce([evaluation.predict({"theta": b}, 0) for b in (first, second)], 0)
    assert evaluation.summarise([alone]) == [{"modes": 0.0}] and evaluation.summarise([both]) == [{"modes": 1.0}]


def test_fingerprint_identifies_what_a_block_depends_on() -> None:
    moved = [(x + 1, y) for x, y in CENTRES]
    prints = {coverage().fingerprint, coverage(radius=0.3).fingerprint, coverage(centres=moved).fingerprint}
    assert len(prints) == 3
    assert coverage().fingerprint == coverage(more_than=7).fingerprint, "counts do not depend on the threshold"
