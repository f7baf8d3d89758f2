"""Densities with an exact answer: mode coverage by a k-d tree and by hand, shares of modes by torch's own densities."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from raychains.evaluation.exact import ModeCoverage, ModeShare

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


def test_fingerprint_identifies_what_a_block_depends_on() -> None:
    moved = [(x + 1, y) for x, y in CENTRES]
    prints = {coverage().fingerprint, coverage(radius=0.3).fingerprint, coverage(centres=moved).fingerprint}
    assert len(prints) == 3
    assert coverage().fingerprint == coverage(more_than=7).fingerprint, "counts do not depend on the threshold"


# Shares of modes that overlap


OVERLAPPING = [[-1.0, -1.0], [1.0, 1.0], [0.0, 2.0]]
SCALES = [0.6, 0.9, 0.4]
WEIGHTS = [0.2, 0.5, 0.3]


def share(**change: Any) -> ModeShare:
    return ModeShare(**{"centres": OVERLAPPING, "scales": SCALES, "weights": WEIGHTS, "mode": 1, **change})


def mixture() -> MixtureSameFamily:
    covariances = torch.stack([s**2 * torch.eye(2, dtype=torch.float64) for s in SCALES])
    parts = MultivariateNormal(torch.tensor(OVERLAPPING, dtype=torch.float64), covariances)
    return MixtureSameFamily(Categorical(probs=torch.tensor(WEIGHTS, dtype=torch.float64)), parts)


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mixture().sample(torch.Size(shape))


def test_responsibilities_equal_bayes_rule_with_torchs_densities() -> None:
    theta = torch.cat([draws(300), torch.tensor([[30.0, -40.0], [-1.0, -1.0]], dtype=torch.float64)])
    density = mixture()
    component: Any = density.component_distribution
    joint = component.log_prob(theta.unsqueeze(1)) + torch.log(torch.tensor(WEIGHTS, dtype=torch.float64))
    expected = torch.exp(joint - torch.logsumexp(joint, dim=1, keepdim=True))
    np.testing.assert_allclose(share().responsibilities(theta.numpy()), expected.numpy(), rtol=1e-9, atol=1e-12)


def test_summary_and_curve_equal_averaging_all_draws_so_far() -> None:
    evaluation, samples = share(), [draws(40, 3, seed=s) for s in range(4)]
    made = [evaluation.predict({"theta": b}, 0) for b in samples]
    assert made[0].shape == (3, 4) and evaluation.shards == 1 and evaluation.exact == 0.5
    np.testing.assert_allclose(made[0][:, 1:].sum(1), 40)
    reduced = evaluation.reduce(made, 0)
    summary, curve = evaluation.summarise([reduced]), evaluation.curve([reduced])
    assert len(summary) == len(curve) == 3
    for lane in range(3):
        for s in range(4):
            so_far = torch.cat(samples[: s + 1])[:, lane].numpy()
            expected = float(evaluation.responsibilities(so_far)[:, 1].mean())
            assert curve[lane]["flat_share"][s] == pytest.approx(expected, rel=1e-12)
            assert curve[lane]["flat_share_error"][s] == pytest.approx(abs(expected - 0.5), rel=1e-9)
        assert summary[lane] == {name: values[-1] for name, values in curve[lane].items()}
    assert {m.name for m in evaluation.metrics} < set(summary[0])


def test_fingerprint_of_shares_identifies_what_a_block_depends_on() -> None:
    others = [share(centres=[[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), share(scales=[0.1, 0.9, 0.4])]
    prints = {e.fingerprint for e in [share(), *others, share(weights=[0.3, 0.4, 0.3])]}
    assert len(prints) == 4 and share().fingerprint == share(mode=0).fingerprint
