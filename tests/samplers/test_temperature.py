"""Temperature: twice T is twice the covariance, and at T = 0 samplers are the optimisers that they contain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import ATMC, PSGLD, SGD, SGDM, SGHMC, SGLD, SGNHT, Sampler
from tests.samplers.cases import LINEAR, RUNNING, THERMOSTATS, gaussian
from tests.samplers.simulate import Measured, Method, late, measure, run
from tests.spread import witnessed

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


NOISY = {name: case for name, case in THERMOSTATS.items() if case[1]} | {"atmc-relativistic": ("atmc-relativistic", ())}


@pytest.mark.parametrize("case", witnessed(NOISY, "sgnht-noise"))
def test_thermostats_double_their_covariance_under_gradient_noise_too(case: str) -> None:
    """Each temperature has its own noise: within 5 s.e. and twice the 1 % by which a step of this size is off."""
    name, noise = NOISY[case]
    once, twice = (moments(RUNNING[name], t, noise=noise, seed=7 + k) for k, t in enumerate((0.6, 1.2)))
    error = np.hypot(twice.covariance_error, 2 * once.covariance_error)
    assert (np.abs(twice.covariance - 2 * once.covariance) < 5 * error + 0.02 * np.abs(twice.covariance)).all()
    assert (5 * error < 0.09 * np.abs(np.diag(twice.covariance)).max()).all()


def moments(method: Method, temperature: float, *, noise: tuple[float, ...], seed: int) -> Measured:
    problem = gaussian(noise=noise)
    method = Method(kind=method.kind, settings={**method.settings, "thermostat_rate": 0.01, "momentum": 0.8})
    where = {"burn_in": 200, "times": 6, "apart": 40, "lanes": 6_000}
    kept = late(method, problem, lr=0.05, temperature=temperature, seed=seed, **where)  # type: ignore[arg-type]
    return measure(kept, problem.target(1.0).mean)


# --- T = 0 ---


def gradients(params: Sequence[Tensor], k: int) -> list[Tensor]:
    """Of a loss that is no quadratic and differs from step to step."""
    return [torch.tanh(p) + 0.3 * (p - math.cos(0.7 * k + i)) for i, p in enumerate(params)]


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(n, 3, dtype=torch.float64, generator=generator).requires_grad_() for n in (4, 2)]


def optimised(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], lr: Callable[[int], float] | None = None, count: int = STEPS
) -> list[Tensor]:
    params = parameters()
    optimizer = make(params)
    for k in range(count):
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


@pytest.mark.parametrize("kind", [ATMC, SGNHT])
@pytest.mark.parametrize("integrator", ["strang", "euler"])
@pytest.mark.parametrize("z", [0.0, -1.0, 0.08, 0.6])
def test_thermostats_are_heavy_ball(kind: Any, integrator: str, z: float) -> None:
    """Momentum e^{−f} and step lr·(1 − e^{−f})/f, by Euler 1 − f and lr, while the thermostat stays at z.

    f is a₀ for ATMC while z ≤ a₀ and z above it, and z + a₀ for SGNHT.
    """
    lr, a0 = 0.1, 0.25
    f = max(a0, z) if kind is ATMC else z + a0
    m, step = (math.exp(-f), lr * -math.expm1(-f) / f) if integrator == "strang" else (1 - f, lr)
    kept = []

    def make(params: list[Tensor]) -> Sampler:
        sampler = kind(params, lr=lr, momentum=1 - a0, integrator=integrator, **COLD)
        kept.extend(sampler.state_of(p, "thermostat", z) for p in params)
        return sampler

    count = STEPS if f > 0 else 5  # a negative friction runs away
    # Plain heavy ball, since torch's refuses a momentum above 1.
    theta, v = [p.detach() for p in parameters()], [torch.zeros_like(p) for p in parameters()]
    for k in range(count):
        v = [m * u - step * (g + DECAY * p) for u, g, p in zip(v, gradients(theta, k), theta, strict=True)]
        theta = [p + u for p, u in zip(theta, v, strict=True)]
    assert distance(optimised(make, count=count), theta) < 1e-11
    assert all(bool((t == z).all()) for t in kept), "the thermostat is frozen"
