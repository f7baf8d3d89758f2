"""Shares of a mixture's modes against torch's own densities and against the modes' exact masses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from raychains.evaluation.mode_share import ModeShare

CENTRES = [[-1.0, -1.0], [1.0, 1.0], [0.0, 2.0]]
SCALES = [0.6, 0.9, 0.4]
WEIGHTS = [0.2, 0.5, 0.3]


def share(**change: Any) -> ModeShare:
    return ModeShare(**{"centres": CENTRES, "scales": SCALES, "weights": WEIGHTS, "mode": 1, **change})


def mixture() -> MixtureSameFamily:
    covariances = torch.stack([s**2 * torch.eye(2, dtype=torch.float64) for s in SCALES])
    parts = MultivariateNormal(torch.tensor(CENTRES, dtype=torch.float64), covariances)
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


def test_the_expected_share_under_the_target_is_the_exact_mass_though_modes_overlap() -> None:
    """Within 5 standard errors for each mode; whole draws for the nearest mode would be biased here."""
    theta = draws(200_000).numpy()
    held = share().responsibilities(theta)
    se = held.std(0) / math.sqrt(len(theta))
    assert (np.abs(held.mean(0) - WEIGHTS) < 5 * se).all()
    whole = np.bincount(held.argmax(1), minlength=3) / len(theta)
    assert np.abs(whole - WEIGHTS).max() > 20 * se.max()


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


def test_hand_made_draws() -> None:
    """Far apart modes: three of four draws of lane 0 are in mode 1, none of lane 1's."""
    evaluation = share(centres=[[-9.0, 0.0], [9.0, 0.0]], scales=[0.5, 0.5], weights=[0.5, 0.5])
    theta = torch.tensor([[9.0, -9.0], [8.5, -9.5], [9.5, -9.0], [-9.0, -8.0]], dtype=torch.float64)
    theta = torch.stack([theta, torch.zeros_like(theta)], dim=-1)
    found = evaluation.summarise([evaluation.reduce([evaluation.predict({"theta": theta}, 0)], 0)])
    assert [lane["flat_share"] for lane in found] == pytest.approx([0.75, 0.0])
    assert [lane["flat_share_error"] for lane in found] == pytest.approx([0.25, 0.5])


def test_fingerprint_identifies_what_a_block_depends_on() -> None:
    others = [share(centres=[[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), share(scales=[0.1, 0.9, 0.4])]
    prints = {e.fingerprint for e in [share(), *others, share(weights=[0.3, 0.4, 0.3])]}
    assert len(prints) == 4 and share().fingerprint == share(mode=0).fingerprint
