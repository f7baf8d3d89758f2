"""pSGLD: RMSprop without noise, its plain transcription with noise, exact once frozen and biased by known amounts before."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers.noise import Noise
from raychains.samplers.psgld import PSGLD
from tests.checks import refused

SHAPES = [(4, 3), (2,), (5, 2)]


def tensors(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in SHAPES]


def gradient(p: Tensor, step: int) -> Tensor:
    """Of different size in every coordinate and step, and not constant."""
    return (p * (1 + torch.arange(p.numel(), dtype=p.dtype).reshape(p.shape)) + math.sin(step)).cos() * 0.3


def settings(params: list[Tensor]) -> list[dict[str, Any]]:
    return [{"params": params[:2]}, {"params": params[2:], "lr": 0.02, "weight_decay": 0.3, "alpha": 0.8, "eps": 1e-3}]


def advance(sampler: torch.optim.Optimizer, steps: range) -> None:
    for k in steps:
        sampler.param_groups[0]["lr"] = 0.01 * (1 + k % 3)
        for p in (p for group in sampler.param_groups for p in group["params"]):
            p.grad = gradient(p.detach(), k)
        sampler.step()


def tensors_of(params: list[Tensor]) -> list[Tensor]:
    return [p.detach() for p in params]


def test_without_noise_it_is_torch_rmsprop() -> None:
    ours, theirs = ([t.requires_grad_() for t in tensors()] for _ in range(2))
    sampler = PSGLD(ours, lr=0.01, num_data=1, temperature=0.0)
    rmsprop = torch.optim.RMSprop(theirs, lr=0.01, alpha=0.99, eps=1e-5)
    for k in range(60):
        advance(sampler, range(k, k + 1))
        advance(rmsprop, range(k, k + 1))
        for a, b in zip(tensors_of(ours), tensors_of(theirs), strict=True):
            assert float((a - b).norm() / b.norm()) <= 1e-12


@pytest.mark.parametrize("freeze", [None, 7, 12])
def test_it_is_the_plain_transcription_with_noise_decay_and_freezing(freeze: int | None) -> None:
    params = [t.requires_grad_() for t in tensors()]
    sampler = PSGLD(settings(params), lr=0.01, num_data=40, seed=6, freeze_preconditioner_after=freeze)
    theta, v = tensors(), [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    noise = Noise(6)
    for k in range(20):
        advance(sampler, range(k, k + 1))
        for i in range(3):
            lr, decay, alpha, eps = (0.01 * (1 + k % 3), 0.0, 0.99, 1e-5) if i < 2 else (0.02, 0.3, 0.8, 1e-3)
            bar = gradient(theta[i], k)
            if freeze is None or k < freeze:
                v[i] = alpha * v[i] + (1 - alpha) * bar**2
            scale = 1 / (eps + v[i].sqrt())
            theta[i] = (
                theta[i] - lr * scale * (bar + decay * theta[i]) + (2 * lr * scale / 40).sqrt() * noise.like(v[i])
            )
            torch.testing.assert_close(params[i].detach(), theta[i], rtol=1e-11, atol=1e-13)
    first = torch.cat([(1 / (1e-5 + x.sqrt())).flatten() for x in v[:2]])
    std = float((2 * 0.02 * first / 40).mean().sqrt())  # the lr of the last step, k = 19
    assert sampler.effective_noise_std() == pytest.approx(std, rel=1e-9)


def test_frozen_variance_is_the_exact_one_of_each_coordinates_own_preconditioner() -> None:
    """θ ← (1 − lr·G·h)θ − lr·G·σ·ε + √(2·lr·T·G/N)·ξ has variance (lr²G²σ² + 2·lr·T·G/N)/(1 − (1 − lr·G·h)²)."""
    n, lr, h, sigma, temperature, num_data, frozen = (
        50_000,
        0.2,
        0.5,
        0.4,
        0.7,
        5,
        300,
    )  # the first kicks, with V near 0, are forgotten
    theta = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    sampler = PSGLD(
        [theta],
        lr=lr,
        num_data=num_data,
        temperature=temperature,
        alpha=0.9,
        freeze_preconditioner_after=frozen,
        seed=1,
    )
    generator = torch.Generator().manual_seed(2)
    kept = start = torch.zeros(0)
    for k in range(frozen + 500):
        theta.grad = h * theta.detach() + sigma * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()
        if k == frozen - 1:
            kept = sampler.state[theta]["square_avg"].clone()
            start = theta.detach().clone()
    assert torch.equal(kept, sampler.state[theta]["square_avg"])
    scale = 1 / (1e-5 + kept.sqrt())
    shrink = 1 - lr * scale * h
    assert float(scale.quantile(0.9) / scale.quantile(0.1)) > 1.3, "preconditioners differ"
    exact = ((lr * scale * sigma) ** 2 + 2 * lr * temperature * scale / num_data) / (1 - shrink**2)
    left = shrink**500  # of where it was when V froze; the slowest coordinates still remember it
    assert float(left.abs().median()) < 1e-6
    ratio = float(((theta.detach() - left * start).square() / (exact * (1 - left**2))).mean())
    assert ratio == pytest.approx(1, abs=5 * math.sqrt(2 / n))  # 5 s.e. of the mean of n squared standard normals


@pytest.mark.parametrize(
    ("lr", "noise", "published", "coordinates", "settle"),
    [(0.01, 0.0, 1.33, 20_000, 4_000), (0.01, 3.0, 1.08, 20_000, 2_000), (0.001, 0.0, 1.76, 4_000, 12_000)],
)
def test_the_running_preconditioner_biases_the_variance_by_the_known_amount(
    lr: float, noise: float, published: float, coordinates: int, settle: int
) -> None:
    """On U = θ²/2, where the target's variance is 1. V forgets over 100 steps, so that snapshots lie 5 such times apart."""
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(coordinates, generator=generator).requires_grad_()
    sampler = PSGLD([theta], lr=lr, num_data=1, seed=4)
    squares = []
    for k in range(1, settle + 3_001):
        theta.grad = theta.detach().clone()
        if noise:
            theta.grad += noise * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()
        if k > settle and k % 500 == 0:
            squares.append(theta.detach().square())
    per_coordinate = torch.stack(squares).mean(0).double()
    se = float(per_coordinate.std()) / math.sqrt(coordinates)  # coordinates are independent
    assert se < 0.03
    # 5 standard errors, and half a unit of the published number's last digit ("about 1.08": one unit).
    assert float(per_coordinate.mean()) == pytest.approx(published, abs=5 * se + (0.01 if noise else 0.005))
    assert float(per_coordinate.mean()) > 1 + 5 * se


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_state_continues_bit_for_bit_across_the_freeze(dtype: torch.dtype) -> None:
    def make(values: list[Tensor], seed: int) -> PSGLD:
        params = [v.clone().requires_grad_() for v in values]
        return PSGLD(settings(params), lr=0.01, num_data=9, freeze_preconditioner_after=8, seed=seed)

    straight = make(tensors(dtype), 3)
    advance(straight, range(5))
    saved, values = copy.deepcopy(straight.state_dict()), [p.detach().clone() for p in straight.parameters()]
    assert {type(s["updates"]) for s in saved["state"].values()} == {int}
    assert all(s["square_avg"].dtype == torch.promote_types(dtype, torch.float32) for s in saved["state"].values())
    resumed = make(values, 99)
    resumed.load_state_dict(saved)
    for sampler in (straight, resumed):
        advance(sampler, range(5, 14))
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert a.dtype == dtype and torch.equal(a, b) and bool(a.isfinite().all())
    assert resumed.state[resumed.parameters()[0]]["updates"] == 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 1.0), ("alpha", -0.1), ("alpha", math.nan), ("eps", 0.0), ("eps", "1e-5"),
        ("freeze_preconditioner_after", 0), ("freeze_preconditioner_after", 2.5), ("freeze_preconditioner_after", True),
        ("lr", -1.0), ("num_data", 0), ("temperature", -1.0),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line(field: str, value: Any) -> None:
    with refused(field):
        PSGLD([torch.zeros(2, requires_grad=True)], **{"lr": 0.1, "num_data": 5, field: value})


def test_bad_setting_of_a_group_is_refused() -> None:
    with refused("alpha"):
        PSGLD([{"params": [torch.zeros(2, requires_grad=True)], "alpha": 2}], lr=0.1, num_data=5)
