"""Samplers whose law is known not to be the target, on U = λθ²/2: free-running pSGLD, thermostats at a large friction."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from raychains.samplers import Sampler
from raychains.samplers.atmc import ATMC
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sgnht import SGNHT

COORDINATES = 10_000


def variance(sampler: Sampler, *, noise: float, burn_in: int, steps: int, every: int = 10) -> tuple[float, float]:
    """Var θ by time average and its standard error from independent coordinates."""
    torch.set_num_threads(1)
    (theta,) = sampler.parameters()
    generator = torch.Generator().manual_seed(17)
    total, count = torch.zeros_like(theta.detach()), 0
    for k in range(burn_in + steps):
        theta.grad = theta.detach().clone()
        if noise:
            theta.grad += noise * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()
        if k >= burn_in and k % every == 0:
            total += theta.detach() ** 2
            count += 1
    mean = total / count
    return float(mean.mean()), float(mean.std()) / math.sqrt(COORDINATES)


def coordinates(sd: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(16)
    return (sd * torch.randn(COORDINATES, dtype=torch.float64, generator=generator)).requires_grad_()


@pytest.mark.parametrize(("noise", "measured", "steps"), [(0.0, 1.33, 2500), (3.0, 1.08, 2500)])
def test_psgld_without_freezing_has_the_variance_that_dropping_gamma_makes(
    noise: float, measured: float, steps: int
) -> None:
    """Target 1; 1.33 and about 1.08 were measured independently at lr .01, to ± .01 each, which is added to 5 s.e.

    All start at |θ| = 1: V learns from the first gradient alone, and one near 0 makes a jump that takes long to decay.
    """
    theta = coordinates().detach().sign().requires_grad_()
    got, error = variance(PSGLD([theta], lr=0.01, num_data=1, seed=2), noise=noise, burn_in=1500, steps=steps)
    assert abs(got - measured) < 5 * error + 0.01
    assert got - 1 > 5 * error


def test_psgld_that_follows_each_gradient_at_once_has_the_law_without_gamma() -> None:
    """α = 0, lr → 0: dθ = −Gθ dt + √(2G) dW with G = 1/(ε + |θ|) has the density ∝ exp(−θ²/2)/G of Itô's equation.

    Its variance is (ε√(π/2) + 2)/(ε√(π/2) + 1), 1.61 at ε = ½. Within 5 s.e. and what halving lr still changes.
    """
    eps = 0.5
    half_normal = eps * math.sqrt(math.pi / 2)
    exact, got = (half_normal + 2) / (half_normal + 1), []
    for lr in (0.04, 0.02):
        sampler = PSGLD([coordinates(math.sqrt(exact))], lr=lr, num_data=1, alpha=0.0, eps=eps, seed=4)
        got.append(variance(sampler, noise=0.0, burn_in=int(10 / lr), steps=int(30 / lr)))
    (coarse, _), (fine, error) = got
    assert abs(fine - exact) < 5 * error + abs(coarse - fine)
    assert abs(fine - exact) < 0.05


@pytest.mark.parametrize("noise", [0.0, 0.6])
@pytest.mark.parametrize("thermostat", ["coordinate", "scalar"])
def test_sgnht_by_euler_is_too_narrow_by_half_its_friction(noise: float, thermostat: str) -> None:
    """Var θ = T/λ·(1 − ā/2) as lr·λ → 0, ā = 1 − √(1 − w/T), w = 2a₀T + lr·N·σ²: the friction at which E p² = T."""
    lr, a0, temperature, num_data = 0.02, 0.2, 0.5, 4
    sd = math.sqrt(temperature / num_data)
    sampler = SGNHT(
        [coordinates(sd)], lr=lr, momentum=1 - a0, thermostat_rate=5e-3, thermostat=thermostat, integrator="euler",
        num_data=num_data, temperature=temperature, seed=3,
    )  # fmt: skip
    got, error = variance(sampler, noise=noise, burn_in=600, steps=1200)
    friction = 1 - math.sqrt(1 - (2 * a0 * temperature + lr * num_data * noise**2) / temperature)
    assert abs(got / sd**2 - (1 - friction / 2)) < 5 * error / sd**2 + lr / 4
    assert 1 - got / sd**2 > 5 * error / sd**2


@pytest.mark.parametrize("kind", [SGNHT, ATMC])
def test_thermostats_by_strang_are_too_wide_at_a_large_friction_per_step(kind: Callable[..., Sampler]) -> None:
    """E p² = T is kept, and Var θ = T/λ·(a₀/2)·coth(a₀/2) ≈ 1 + a₀²/12 as lr·λ → 0 at a fixed a₀.

    As lr → 0 the step is SGHMC's with m = e^{−a₀}, whose lr is lr·(1 − m)/a₀ and whose velocity has variance lr·T/N; its
    closed form gives T/λ·a₀(1 + m)/(2(1 − m)). At the default a₀ = .1 that is 1.0008.
    """
    lr, a0, temperature = 0.01, 0.8, 0.5
    theta = coordinates(math.sqrt(temperature))
    sampler = kind(
        [theta], lr=lr, momentum=1 - a0, thermostat_rate=0.01, num_data=1, temperature=temperature, seed=5
    )  # fmt: skip
    got, error = variance(sampler, noise=0.0, burn_in=600, steps=3000)
    expected = temperature * a0 / 2 / math.tanh(a0 / 2)
    assert abs(got - expected) < 5 * error + lr * expected / 4
    assert got - temperature > 5 * error
