"""Stationary variances of SGLD and SGHMC at finite steps against the exact ones, within standard errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import SGHMC, SGLD, Sampler
from tests.samplers.oracles import (
    Setting,
    closed_form_variance,
    leftover,
    recursion,
    stationary_covariance,
    steps_until_stationary,
)

COORDINATES = 200_000
RELATIVE_SE = math.sqrt(2 / COORDINATES)
"""Standard error of a variance estimated from independent Gaussians with known mean, as a share of it."""

SGLD_SETTINGS = [
    Setting(momentum=0.0, lr=0.5, lam=1.0, temperature=1.0),
    Setting(momentum=0.0, lr=0.05, lam=2.0, temperature=0.5),
    Setting(momentum=0.0, lr=1.2, lam=1.0, temperature=2.0),
    Setting(momentum=0.0, lr=0.2, lam=1.0, temperature=1.0, noise=1.5),
    Setting(momentum=0.0, lr=0.3, lam=0.7, temperature=0.0, noise=1.0),
    Setting(momentum=0.0, lr=0.4, lam=0.5, temperature=1.0, noise=0.2, num_data=50),
]
SGHMC_SETTINGS = [
    Setting(momentum=0.5, lr=0.5, lam=1.0, temperature=1.0),
    Setting(momentum=0.9, lr=0.02, lam=1.0, temperature=1.0),
    Setting(momentum=0.9, lr=0.5, lam=1.0, temperature=1.0, noise=0.5),
    Setting(momentum=0.8, lr=1.5, lam=0.6, temperature=0.1),
    Setting(momentum=0.1, lr=0.3, lam=1.0, temperature=2.0),
    Setting(momentum=0.6, lr=0.1, lam=3.0, temperature=0.0, noise=2.0),
    Setting(momentum=0.9, lr=0.1, lam=0.5, temperature=1.0, num_data=50),
    Setting(momentum=0.7, lr=0.5, lam=1.0, temperature=0.25, noise=0.3, num_data=1000),
]
SETTINGS = SGLD_SETTINGS + SGHMC_SETTINGS


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_two_oracles_agree(setting: Setting) -> None:
    assert stationary_covariance(setting)[0, 0] == pytest.approx(closed_form_variance(setting), rel=1e-9)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.noise == 0], ids=str)
def test_kinetic_temperature_at_a_finite_step_is_the_temperature(setting: Setting) -> None:
    """N·E v²·(2(1+m) − lr·λ)/(4·lr) = T, not N·E v²/lr."""
    m, n = setting.momentum, setting.num_data
    v2 = stationary_covariance(setting)[1, 1]
    assert n * v2 * (2 * (1 + m) - setting.lr * setting.lam) / (4 * setting.lr) == pytest.approx(setting.temperature)


def test_settings_can_tell_the_finite_step_from_the_target() -> None:
    apart = [
        s for s in SETTINGS
        if abs(closed_form_variance(s) - s.target_variance) >= 5 * RELATIVE_SE * closed_form_variance(s)
    ]  # fmt: skip
    assert len(SETTINGS) >= 12 and len(apart) >= 4
    assert sum(s.num_data > 1 for s in SETTINGS) >= 2


def test_stationary_covariance_is_where_the_simulated_second_moments_go() -> None:
    """The Lyapunov solution is the fixed point that the plain recursion of second moments reaches."""
    for setting in SETTINGS:
        a, q = recursion(setting)
        p = np.zeros((2, 2))
        for _ in range(3000):
            p = a @ p @ a.T + q
        np.testing.assert_allclose(p, stationary_covariance(setting), rtol=1e-9)


def draw(sampler: Sampler, theta: Tensor, setting: Setting, *, steps: int, decay_is_prior: bool) -> None:
    """Run ``steps`` on the mean loss ½·λ·θ², whose λ the sampler adds itself when ``decay_is_prior``."""
    generator = torch.Generator().manual_seed(4242)
    for _ in range(steps):
        theta.grad = torch.zeros_like(theta) if decay_is_prior else setting.lam * theta.detach()
        if setting.noise:
            theta.grad += setting.noise * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()


def assert_variance_matches(got: Tensor, expected: float) -> None:
    z = (float(got.double().square().mean()) / expected - 1) / RELATIVE_SE
    assert abs(z) < 4, f"variance is {z:.1f} standard errors from {expected:.6g}"


def check(kind: type[Sampler], setting: Setting, *, dtype: torch.dtype, decay_is_prior: bool, seed: int) -> Sampler:
    """One late step of many independent coordinates started at 0 has the exact stationary variance."""
    steps = steps_until_stationary(setting, 0.1 * RELATIVE_SE)
    assert leftover(setting, steps) < 0.1 * RELATIVE_SE
    theta = torch.zeros(COORDINATES, dtype=dtype, requires_grad=True)
    extra = {} if kind is SGLD else {"momentum": setting.momentum}
    sampler = kind(
        [theta],
        lr=setting.lr,
        num_data=setting.num_data,
        temperature=setting.temperature,
        weight_decay=setting.lam if decay_is_prior else 0.0,
        seed=seed,
        **extra,
    )
    draw(sampler, theta, setting, steps=steps, decay_is_prior=decay_is_prior)
    assert_variance_matches(theta.detach(), closed_form_variance(setting))
    return sampler


@pytest.mark.parametrize(("number", "setting"), list(enumerate(SGLD_SETTINGS)), ids=str)
def test_sgld_variance_matches_the_closed_form(number: int, setting: Setting) -> None:
    dtype = torch.float64 if number % 2 else torch.float32
    check(SGLD, setting, dtype=dtype, decay_is_prior=number % 3 == 0, seed=100 + number)


@pytest.mark.parametrize(("number", "setting"), list(enumerate(SGHMC_SETTINGS)), ids=str)
def test_sghmc_variance_matches_lyapunov(number: int, setting: Setting) -> None:
    dtype = torch.float64 if number % 2 else torch.float32
    sampler = check(SGHMC, setting, dtype=dtype, decay_is_prior=number % 3 == 0, seed=200 + number)
    (theta,) = sampler.param_groups[0]["params"]
    assert_variance_matches(sampler.state[theta]["velocity"], stationary_covariance(setting)[1, 1])


@pytest.mark.parametrize("setting", SGHMC_SETTINGS, ids=str)
def test_effective_noise_std_is_what_one_step_without_gradient_injects(setting: Setting) -> None:
    theta = torch.zeros(COORDINATES, dtype=torch.float64, requires_grad=True)
    theta.grad = torch.zeros_like(theta)
    sampler = SGHMC(
        [theta],
        lr=setting.lr,
        momentum=setting.momentum,
        num_data=setting.num_data,
        temperature=setting.temperature,
        seed=1,
    )
    sampler.step()
    std = math.sqrt(2 * (1 - setting.momentum) * setting.lr * setting.temperature / setting.num_data)
    assert sampler.effective_noise_std() == pytest.approx(std, rel=1e-12)
    if std == 0:
        assert not theta.any()
    else:
        assert_variance_matches(theta.detach(), std**2)
        assert abs(float(theta.detach().mean())) < 4 * std / math.sqrt(COORDINATES)
