"""Without noise the samplers are SGD: equal to torch's where they should be, else to the papers' form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains.samplers import SGD, SGDM, SGHMC, SGLD

STEPS, DECAY, LR = 250, 5e-4, 0.05
Optimise = Callable[[list[Tensor]], torch.optim.Optimizer]


def cosine(step: int) -> float:
    return LR / 2 * (math.cos(math.pi * step / STEPS) + 1)


def constant(step: int) -> float:
    return LR


def train(step: Callable[[list[Tensor], int], None]) -> list[Tensor]:
    """Parameters of a small float64 network after `STEPS` minibatch gradients, each handed to ``step``."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 5, dtype=torch.float64, generator=generator)
    y = torch.randint(3, (64,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    for k in range(STEPS):
        net.zero_grad()
        batch = torch.arange(16) + 16 * (k % 4)
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        step(list(net.parameters()), k)
    return [p.detach() for p in net.parameters()]


def with_optimizer(make: Optimise, lr: Callable[[int], float]) -> list[Tensor]:
    made: list[torch.optim.Optimizer] = []

    def step(params: list[Tensor], k: int) -> None:
        if not made:
            made.append(make(params))
        made[0].param_groups[0]["lr"] = lr(k)
        made[0].step()

    return train(step)


def transcribed(momentum: float, lr: Callable[[int], float]) -> list[Tensor]:
    """v ← m·v − lr_k·(∇loss + λθ); θ ← θ + v, one parameter at a time."""
    velocities: list[Tensor] = []

    @torch.no_grad()
    def step(params: list[Tensor], k: int) -> None:
        velocities.extend(torch.zeros_like(p) for p in params[len(velocities) :])
        for p, v in zip(params, velocities, strict=True):
            v.copy_(momentum * v - lr(k) * (p.grad + DECAY * p))
            p.add_(v)

    return train(step)


def relative_distance(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((p - q).norm() / q.norm()) for p, q in zip(a, b, strict=True))


ZERO: dict[str, Any] = {"lr": LR, "weight_decay": DECAY, "num_data": 64, "temperature": 0.0}
KINDS: list[Any] = [
    pytest.param(lambda p: SGD(p, **ZERO), 0.0, id="sgd"),
    pytest.param(lambda p: SGLD(p, **ZERO), 0.0, id="sgld"),
    pytest.param(lambda p: SGHMC(p, momentum=0.0, **ZERO), 0.0, id="sghmc-without-momentum"),
    pytest.param(lambda p: SGDM(p, momentum=0.9, **ZERO), 0.9, id="sgdm"),
    pytest.param(lambda p: SGHMC(p, momentum=0.9, **ZERO), 0.9, id="sghmc"),
    pytest.param(lambda p: SGHMC(p, momentum=0.1, **ZERO), 0.1, id="sghmc-low-momentum"),
]


def torch_sgd(momentum: float) -> Optimise:
    return lambda p: torch.optim.SGD(p, lr=LR, momentum=momentum, weight_decay=DECAY)


@pytest.mark.parametrize(("make", "momentum"), KINDS)
def test_constant_lr_equals_torch_sgd(make: Optimise, momentum: float) -> None:
    assert relative_distance(with_optimizer(make, constant), with_optimizer(torch_sgd(momentum), constant)) <= 1e-12


@pytest.mark.parametrize(("make", "momentum"), KINDS)
def test_cosine_lr_equals_the_papers_velocity_form(make: Optimise, momentum: float) -> None:
    assert relative_distance(with_optimizer(make, cosine), transcribed(momentum, cosine)) <= 1e-12


@pytest.mark.parametrize(("make", "momentum"), [k for k in KINDS if k.values[1] == 0])
def test_cosine_lr_without_momentum_equals_torch_sgd(make: Optimise, momentum: float) -> None:
    assert relative_distance(with_optimizer(make, cosine), with_optimizer(torch_sgd(0.0), cosine)) <= 1e-12


def test_cosine_lr_with_momentum_differs_from_torch_sgd_by_design() -> None:
    """torch's buffer is rescaled as a whole when lr changes; the papers' velocity is not."""
    assert relative_distance(with_optimizer(torch_sgd(0.9), cosine), transcribed(0.9, cosine)) > 1e-4


def test_sghmc_without_momentum_is_sgld_bit_for_bit_with_noise() -> None:
    warm: dict[str, Any] = {**ZERO, "temperature": 1.0, "seed": 7}
    sgld = with_optimizer(lambda p: SGLD(p, **warm), cosine)
    sghmc = with_optimizer(lambda p: SGHMC(p, momentum=0.0, **warm), cosine)
    assert all(torch.equal(a, b) for a, b in zip(sgld, sghmc, strict=True))
    cold = with_optimizer(lambda p: SGLD(p, **ZERO), cosine)
    assert relative_distance(sgld, cold) > 1e-2, "the noise was on"
