"""SWAG collects SGD's iterates as its paper says, and its draws have that Gaussian's law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import SGDM, SWAG

STEPS, EVERY, RANK = 26, 3, 4


def trained(kind: Any, lanes: int = 1, **own: Any) -> tuple[Any, list[list[Tensor]]]:
    """A sampler after `STEPS` steps with noisy gradients, the same in all lanes, and its iterates; the first 5 are
    burn-in."""
    generator = torch.Generator().manual_seed(2)
    begin = torch.linspace(-1, 1, 6, dtype=torch.float64)
    params = [begin.reshape(2, 3).expand(lanes, 2, 3).clone(), begin[:2].expand(lanes, 2).clone()]
    params = [p.requires_grad_() for p in params]
    sampler = kind(params, lr=0.1, momentum=0.8, weight_decay=0.01, lanes=lanes, **own)
    path = []
    for k in range(STEPS):
        if kind is SWAG:
            sampler.param_groups[0]["temperature"] = 0.0 if k < 5 else 1.0
        for p in params:
            p.grad = p.detach() + torch.empty(p.shape[1:], dtype=p.dtype).normal_(generator=generator)
        sampler.step()
        path.append([p.detach().clone() for p in params])
    return sampler, path


def test_its_path_is_sgds_whatever_the_temperature() -> None:
    swag, path = trained(SWAG, collect_every=EVERY, rank=RANK, seed=0)
    _, plain = trained(SGDM)
    assert all(torch.equal(a, b) for x, y in zip(path, plain, strict=True) for a, b in zip(x, y, strict=True))
    assert swag.kinetic() is None and swag.effective_noise_std() == 0


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_draws_have_the_gaussian_of_the_collected_iterates(scale: float) -> None:
    """Mean and covariance of 20,000 draws, those of lanes that are equal otherwise, within 5 standard errors."""
    count = 20_000
    sampler, path = trained(SWAG, lanes=count, collect_every=EVERY, rank=RANK, scale=scale, seed=0)
    flat = np.stack([torch.cat([t[0].reshape(-1) for t in one]).numpy() for one in path])
    collected = flat[5:][EVERY - 1 :: EVERY]
    assert len(collected) == 7
    mean = collected.mean(0)
    running = np.cumsum(collected, 0) / np.arange(1, 8)[:, None]
    deviations = (collected - running)[-RANK:]
    diagonal = (collected**2).mean(0) - mean**2
    exact = scale * (np.diag(diagonal) / 2 + deviations.T @ deviations / (2 * (RANK - 1)))
    ((name, tensors),) = sampler.draws()
    assert name == "theta"
    away = torch.cat([t.reshape(count, -1) for t in tensors], dim=1).numpy() - mean
    assert np.abs(away.mean(0) / np.sqrt(np.diag(exact) / count)).max() < 5
    products = away[:, :, None] * away[:, None, :]
    assert np.abs((products.mean(0) - exact) / (products.std(0) / math.sqrt(count))).max() < 5


def test_each_cycle_has_a_gaussian_of_its_own_and_other_draws() -> None:
    """Cycles whose paths are equal have equal moments, here of their third and sixth iterate of seven; draws are from
    other streams."""
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    sampler = SWAG([p], lr=0.1, momentum=0.0, collect_every=3, rank=RANK, seed=0)
    moments, drawn = [], []
    for _ in range(2):
        p.data.fill_(1.0)
        for k in range(9):
            sampler.param_groups[0]["temperature"] = 0.0 if k < 2 else 1.0
            p.grad = torch.full_like(p, float(k))
            sampler.step()
        moments.append([sampler.state[p][name].clone() for name in ("mean", "variance", "deviations")])
        drawn += [tensors[0] for _, tensors in sampler.draws()]
    assert all(torch.equal(a, b) for a, b in zip(*moments, strict=True))
    path = 1 - 0.1 * torch.arange(9.0, dtype=torch.float64).cumsum(0)
    torch.testing.assert_close(moments[0][0], path[[4, 7]].mean().expand(3))
    assert not torch.equal(*drawn)


def test_a_spread_far_smaller_than_the_weights_is_kept_in_single_precision() -> None:
    path = 100 + 1e-3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = torch.zeros(4, requires_grad=True)
    sampler = SWAG([p], lr=1.0, momentum=0.0, rank=RANK, seed=0)
    for theta in path:
        p.data.copy_(theta)
        p.grad = torch.zeros_like(p)
        sampler.step()
    exact = path.float().double().var(0, correction=0)
    rounding = 2**-18 / 1e-3  # of the mean, half a unit in the last place of 100, over the spread
    torch.testing.assert_close(sampler.state[p]["variance"].double(), exact, rtol=4 * rounding, atol=0.0)


def test_before_two_iterates_and_at_temperature_0_a_draw_is_the_iterate() -> None:
    for own in ({"collect_every": 12}, {"collect_every": 1}):
        sampler, path = trained(SWAG, seed=0, **own)
        if own["collect_every"] == 1:
            sampler.param_groups[0]["temperature"] = 0.0
        ((_, tensors),) = sampler.draws()
        assert all(torch.equal(a, b) for a, b in zip(tensors, path[-1], strict=True))
