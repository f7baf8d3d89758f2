"""Temperature: twice T is twice the covariance, and at T = 0 samplers are the optimisers that they contain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import PSGLD, SGD, SGDM, SGHMC, SGLD, Sampler
from tests.samplers.cases import LINEAR, RUNNING, gaussian
from tests.samplers.simulate import Method, run

DECAY, STEPS = 0.05, 120
GAUSSIAN_MOMENTUM = {**LINEAR, **{n: m for n, m in RUNNING.items() if "speed_limit" not in m.settings}}


def at(method: Method, temperature: float) -> np.ndarray:
    """Draws after 40 steps from the posterior mean with one noise stream, and κ = .02 where nothing stands still."""
    problem = gaussian()
    mean = problem.target(1.0).mean
    theta = torch.from_numpy(np.tile(mean, (50, 1))).requires_grad_()
    if method.law is None:
        method = Method(kind=method.kind, settings={**method.settings, "thermostat_rate": 0.02, "momentum": 0.7})
    sampler = method.make(theta, problem, lr=0.2, temperature=temperature, seed=3)
    *_, last = run(sampler, problem, [(0.2, temperature)] * 40, seed=4)
    return last


@pytest.mark.parametrize("name", GAUSSIAN_MOMENTUM)
def test_twice_the_temperature_is_exactly_root_two_times_the_deviation(name: str) -> None:
    """With exact gradients the dynamics are homogeneous in √T, thermostats included: path by path, to rounding."""
    cold, warm, hot = (at(GAUSSIAN_MOMENTUM[name], t) for t in (0.0, 0.6, 1.2))
    assert np.abs(warm - cold).min(axis=0).max() > 0
    np.testing.assert_allclose(hot - cold, math.sqrt(2) * (warm - cold), rtol=1e-9, atol=1e-9)


# --- T = 0 ---


def gradients(params: Sequence[Tensor], k: int) -> list[Tensor]:
    """Of a loss that is no quadratic and differs from step to step."""
    return [torch.tanh(p) + 0.3 * (p - math.cos(0.7 * k + i)) for i, p in enumerate(params)]


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(n, 3, dtype=torch.float64, generator=generator).requires_grad_() for n in (4, 2)]


def optimised(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], lr: Callable[[int], float] | None = None
) -> list[Tensor]:
    params = parameters()
    optimizer = make(params)
    for k in range(STEPS):
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(k)
        for p, g in zip(params, gradients([p.detach() for p in params], k), strict=True):
            p.grad = g
        optimizer.step()
    return [p.detach() for p in params]


def distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The largest, relative to how far b's parameters went."""
    return max(float((x - y).norm() / (y - s.detach()).norm()) for x, y, s in zip(a, b, parameters(), strict=True))


COLD: dict[str, Any] = {"num_data": 30, "temperature": 0.0, "weight_decay": DECAY}


def wavy(k: int) -> float:
    return 0.05 * (1 + math.cos(math.pi * k / STEPS)) + 0.01


@pytest.mark.parametrize(("kind", "m"), [(SGD, 0), (SGLD, 0), (SGHMC, 0.0), (SGDM, 0.9), (SGHMC, 0.9), (SGHMC, 0.1)])
def test_without_noise_it_is_sgd_in_the_papers_velocity_form(kind: Any, m: float) -> None:
    """v ← m·v − lr_k·(g + λθ); θ ← θ + v. At one lr torch's SGD too, whose buffer is rescaled as a whole when lr
    changes."""
    own = {"momentum": m} if kind in (SGDM, SGHMC) else {}

    def ours(params: list[Tensor]) -> Sampler:
        return kind(params, lr=0.1, **own, **COLD)

    def theirs(params: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=0.1, momentum=m, weight_decay=DECAY)

    assert distance(optimised(ours), optimised(theirs)) < 1e-11
    params = [p.detach() for p in parameters()]
    velocities = [torch.zeros_like(p) for p in params]
    for k in range(STEPS):
        for i, g in enumerate(gradients(params, k)):
            velocities[i] = m * velocities[i] - wavy(k) * (g + DECAY * params[i])
        params = [p + v for p, v in zip(params, velocities, strict=True)]
    assert distance(optimised(ours, wavy), params) < 1e-11
    assert m < 0.9 or distance(optimised(theirs, wavy), params) > 1e-4


def test_sghmc_without_momentum_is_sgld_bit_for_bit_with_noise() -> None:
    warm: dict[str, Any] = {**COLD, "lr": 0.1, "temperature": 1.0, "seed": 7}
    sgld, sghmc = (
        optimised(make, wavy) for make in (lambda p: SGLD(p, **warm), lambda p: SGHMC(p, momentum=0.0, **warm))
    )
    assert all(torch.equal(a, b) for a, b in zip(sgld, sghmc, strict=True))
    assert distance(sgld, optimised(lambda p: SGLD(p, lr=0.1, **COLD), wavy)) > 1e-2, "the noise was on"


def test_psgld_is_rmsprop() -> None:
    """torch's preconditioner sees the decay; pSGLD's does not, so that they are compared without."""
    theirs = optimised(lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.99, eps=1e-5), wavy)
    assert distance(optimised(lambda p: PSGLD(p, lr=0.02, **{**COLD, "weight_decay": 0.0}), wavy), theirs) < 1e-11
