"""Kinetic temperatures of samplers on a flat potential, where momenta have exactly the law of T, and on quadratics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from raychains.samplers import ATMC, SGDM, SGHMC, SGLD, SGNHT, EntropyMCMC, Sampler

D, N, T = 40_000, 50, 0.3


def stepped(sampler: Sampler, theta: torch.Tensor, steps: int, curvature: float = 0.0) -> Sampler:
    for _ in range(steps):
        theta.grad = curvature * theta.detach()
        sampler.step()
    return sampler


def flat(kind: Any, steps: int = 200, **settings: Any) -> Sampler:
    theta = torch.zeros(D, requires_grad=True)
    made = kind([theta], **{"lr": 0.01, "num_data": N, "temperature": T, "seed": 0, **settings})
    return stepped(made, theta, steps)


def close(found: float | None, expected: float, relative_variance: float = 2.0) -> None:
    """Within 4 standard errors of D independent coordinates."""
    assert found is not None and abs(found - expected) < 4 * expected * math.sqrt(relative_variance / D)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SGHMC, {"momentum": 0.9}),
        (SGHMC, {"momentum": 0.5}),
        (SGNHT, {"thermostat": "coordinate", "thermostat_rate": 0.0}),
        (SGNHT, {"thermostat": "scalar", "thermostat_rate": 0.0}),
        (EntropyMCMC, {"momentum": 0.9, "eta": 100.0}),
    ],
    ids=str,
)
def test_without_a_force_it_is_the_temperature(kind: Any, settings: dict[str, Any]) -> None:
    """With κ frozen friction is constant and p exactly N(0, T); the anchor's pull 2e-4 is a curvature that weighs
    nothing."""
    close(flat(kind, **settings).kinetic_temperature(), T)


def test_atmc_with_a_speed_limit_has_p_times_its_speed_at_its_temperature() -> None:
    """Of exp(−K/T) with K = c²·√(p²/c² + 1) the mean of p·K′ is T (by parts); Euler's p² mean would be far above."""
    made = flat(ATMC, speed_limit=0.5, thermostat_rate=0.0, steps=3000, momentum=0.95)
    found = made.kinetic_temperature()
    assert found is not None and abs(found / T - 1) < 0.02  # B holds M fixed over a step
    squares = float((made.state[made.parameters()[0]]["momentum"] ** 2).mean())
    assert squares > 1.3 * found


def test_on_a_quadratic_it_is_what_the_velocity_says_with_the_curvatures_share() -> None:
    """1/(1 − lr·λ/(2(1+m))) of T, as the discrete Lyapunov equation has it."""
    theta = torch.zeros(D, requires_grad=True)
    lr, momentum, curvature = 0.4, 0.8, 1.5
    made = SGHMC([theta], lr=lr, momentum=momentum, num_data=N, temperature=T, seed=1)
    found = stepped(made, theta, 300, curvature).kinetic_temperature()
    close(found, T / (1 - lr * curvature / 2 / (1 + momentum)))
    velocity = made.state[theta]["velocity"].numpy()[None, None]
    assert found == pytest.approx(N * (1 + momentum) / (2 * lr) * (velocity**2).mean(), rel=1e-6)


def test_noise_of_gradients_heats_it() -> None:
    """Each step's error of sd s adds lr²·s² to the injected 2(1−m)·lr·T/N."""
    theta, s, lr, m = torch.zeros(D, requires_grad=True), 2.0, 0.01, 0.9
    made = SGHMC([theta], lr=lr, momentum=m, num_data=N, temperature=T, seed=0)
    generator = torch.Generator().manual_seed(3)
    for _ in range(200):
        theta.grad = s * torch.randn(D, generator=generator)
        made.step()
    injected = 2 * (1 - m) * lr * T / N
    close(made.kinetic_temperature(), T * (injected + (lr * s) ** 2) / injected)


def test_groups_count_by_their_coordinates_each_with_its_own_lr() -> None:
    a, b = torch.zeros(D, requires_grad=True), torch.zeros(3 * D, requires_grad=True)
    made = SGHMC(
        [{"params": [a]}, {"params": [b], "lr": 1e-4}], lr=0.1, momentum=0.9, num_data=N, temperature=T, seed=0
    )
    for _ in range(150):
        a.grad, b.grad = torch.zeros_like(a), torch.zeros_like(b)
        made.step()
    close(made.kinetic_temperature(), T)


def test_there_is_none_without_momenta_before_a_step_or_at_temperature_zero() -> None:
    assert flat(SGLD).kinetic_temperature() is None
    assert flat(SGHMC, momentum=0.9, steps=0).kinetic_temperature() is None
    assert flat(SGDM, momentum=0.9, temperature=0.0).kinetic_temperature() is None
    assert flat(SGHMC, momentum=0.9, temperature=0.0).kinetic_temperature() is None


def test_half_precision_parameters_do_not_spoil_it() -> None:
    theta = torch.zeros(D, dtype=torch.bfloat16, requires_grad=True)
    made = SGHMC([theta], lr=0.01, momentum=0.9, num_data=N, temperature=T, seed=0)
    found = stepped(made, theta, 200).kinetic_temperature()
    assert found is not None and np.isclose(found, T, rtol=0.05)
