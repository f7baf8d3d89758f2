"""SGHMC with an estimate of the gradient noise: the injected and the gradient's noise together heat to T, exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from raychains.samplers.noise import Noise
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.velocity import noise_std
from tests.checks import refused
from tests.samplers.oracles import Setting, closed_form_variance, steps_until_stationary

COORDINATES = 100_000

SETTINGS = [
    Setting(momentum=0.0, lr=0.5, lam=1.0, temperature=1.0, noise=1.0),
    Setting(momentum=0.9, lr=0.02, lam=1.0, temperature=1.0, noise=2.0),
    Setting(momentum=0.5, lr=0.3, lam=2.0, temperature=0.5, noise=0.25, num_data=20),
    Setting(momentum=0.8, lr=0.2, lam=0.5, temperature=2.0, noise=0.1, num_data=100),
]


def estimate(s: Setting) -> float:
    """γ̂ = lr·N·σ²/(2T): then 2γ̂·lr·T/N, what is not injected, is the gradient noise's lr²σ²."""
    return s.lr * s.num_data * s.noise**2 / (2 * s.temperature)


def without_gradient_noise(s: Setting) -> Setting:
    return Setting(momentum=s.momentum, lr=s.lr, lam=s.lam, temperature=s.temperature, num_data=s.num_data)


def covariance(s: Setting, noise_estimate: float) -> np.ndarray:
    """Stationary covariance of (θ, v), straight from the update rule with (1−m−γ̂) in the injected noise."""
    a = np.array([[1 - s.lr * s.lam, s.momentum], [-s.lr * s.lam, s.momentum]])
    injected = 2 * (1 - s.momentum - noise_estimate) * s.lr * s.temperature / s.num_data
    return solve_discrete_lyapunov(a, (injected + (s.lr * s.noise) ** 2) * np.ones((2, 2)))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_right_estimate_cancels_gradient_noise_in_the_exact_law(setting: Setting) -> None:
    clean = closed_form_variance(without_gradient_noise(setting))
    assert 0 < estimate(setting) <= 1 - setting.momentum
    assert covariance(setting, estimate(setting))[0, 0] == pytest.approx(clean, rel=1e-10)
    assert closed_form_variance(setting) > 1.02 * clean, "without an estimate the noise heats"


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_simulated_variance_is_that_without_gradient_noise(setting: Setting) -> None:
    theta = torch.zeros(COORDINATES, dtype=torch.float64, requires_grad=True)
    sampler = SGHMC(
        [theta],
        lr=setting.lr,
        momentum=setting.momentum,
        num_data=setting.num_data,
        noise_estimate=estimate(setting),
        temperature=setting.temperature,
        seed=3,
    )
    generator = torch.Generator().manual_seed(8)
    for _ in range(steps_until_stationary(setting, 1e-4)):
        noise = torch.empty_like(theta).normal_(generator=generator)
        theta.grad = setting.lam * theta.detach() + setting.noise * noise
        sampler.step()
    expected = closed_form_variance(without_gradient_noise(setting))
    # 5 standard errors of the variance of independent Gaussians with known mean.
    assert float(theta.detach().square().mean()) == pytest.approx(expected, rel=5 * math.sqrt(2 / COORDINATES))


def trajectory(**extra: Any) -> list[Tensor]:
    p = torch.linspace(-1, 1, 50).requires_grad_()
    sampler = SGHMC([p], lr=0.07, momentum=0.83, num_data=7, temperature=1.3, weight_decay=0.1, seed=5, **extra)
    out = []
    for _ in range(5):
        p.grad = p.detach().sin()
        sampler.step()
        out.append(p.detach().clone())
    return out


def test_an_estimate_of_0_changes_no_bit() -> None:
    """The plain transcription draws the same noise and uses the same float32 operations, without γ̂ anywhere."""
    theta, v = torch.linspace(-1, 1, 50), torch.zeros(50)
    noise = Noise(5)
    std = math.sqrt(2 * (1 - 0.83) * 0.07 * 1.3 / 7)
    for default, zero in zip(trajectory(), trajectory(noise_estimate=0.0), strict=True):
        v = v.mul(0.83).add(theta.sin(), alpha=-0.07).add(theta, alpha=-0.07 * 0.1)
        v = v.add(noise.like(v), alpha=std)
        theta = theta + v
        assert torch.equal(default, theta) and torch.equal(zero, theta)
    assert not torch.equal(trajectory(noise_estimate=0.1)[-1], theta)


def test_effective_noise_std_follows_the_estimate_per_group() -> None:
    first, second = (torch.zeros(50_000, dtype=torch.float64, requires_grad=True) for _ in range(2))
    groups = [{"params": [first], "noise_estimate": 0.15}, {"params": [second]}]
    sampler = SGHMC(groups, lr=0.1, momentum=0.6, num_data=10, noise_estimate=0.4, seed=0)
    std = math.sqrt(2 * 0.25 * 0.1 / 10)
    assert sampler.effective_noise_std() == pytest.approx(std, rel=1e-12)
    for p in (first, second):
        p.grad = torch.zeros_like(p)
    sampler.step()
    assert float(first.detach().std()) == pytest.approx(std, rel=5 / math.sqrt(2 * 50_000))  # 5 s.e.
    assert float(second.detach().abs().max()) < 1e-8, "γ̂ = 1 − m injects nothing but what rounding leaves"


def test_the_whole_friction_is_allowed_though_it_rounds() -> None:
    for m in (0.9, 0.7, 0.1):
        theta = torch.zeros(1, requires_grad=True)
        sampler = SGHMC([theta], lr=0.1, momentum=m, num_data=1, noise_estimate=round(1 - m, 10))
        assert sampler.effective_noise_std() < 1e-8
    assert noise_std(lr=0.1, momentum=0.9, temperature=1.0, num_data=1, noise_estimate=0.1) == 0.0


@pytest.mark.parametrize("value", [-0.1, 0.11, math.nan, "0.1", True])
def test_an_estimate_out_of_range_is_refused_in_one_line(value: Any) -> None:
    with refused("noise_estimate", "0.1"):
        SGHMC([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9, num_data=1, noise_estimate=value)
