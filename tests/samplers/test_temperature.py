"""Temperature: twice T is twice the covariance, and at T = 0 samplers are the optimisers that they contain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.samplers import Sampler
from raychains.samplers.atmc import ATMC
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.sgnht import SGNHT
from tests.samplers.cases import LINEAR, MEAN, PRECISION, RUNNING, N, gaussian
from tests.samplers.simulate import Measured, Method, draws, measure, run

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


@pytest.mark.parametrize(
    ("name", "noise"),
    [("sgnht", (0.3, 0.5, 0.2)), ("sgnht-scalar", (0.4, 0.4, 0.4)), ("atmc", (0.3, 0.5, 0.2)),
     ("atmc-relativistic", ()), ("atmc-relativistic", (0.3, 0.5, 0.2))],
)  # fmt: skip
def test_thermostats_double_their_covariance_under_gradient_noise_too(name: str, noise: tuple[float, ...]) -> None:
    """Each temperature has its own noise: within 5 s.e. and twice the 1 % by which a step of this size is off."""
    once, twice = (moments(RUNNING[name], t, noise=noise, seed=7 + k) for k, t in enumerate((0.6, 1.2)))
    error = np.hypot(twice.covariance_error, 2 * once.covariance_error)
    assert (np.abs(twice.covariance - 2 * once.covariance) < 5 * error + 0.02 * np.abs(twice.covariance)).all()
    assert (5 * error < 0.09 * np.abs(np.diag(twice.covariance)).max()).all()


def moments(method: Method, temperature: float, *, noise: tuple[float, ...], seed: int) -> Measured:
    problem = gaussian(noise=noise)
    method = Method(kind=method.kind, settings={**method.settings, "thermostat_rate": 0.01, "momentum": 0.8})
    theta = torch.zeros(6_000, 3, dtype=torch.float64, requires_grad=True)
    sampler = method.make(theta, problem, lr=0.05, temperature=temperature, seed=seed)
    path = run(sampler, problem, [(0.05, temperature)] * 400, seed=seed + 50)
    return measure([x for k, x in enumerate(path, 1) if k >= 200 and k % 40 == 0], problem.target(1.0).mean)


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


def assert_equal(a: Sequence[Tensor], b: Sequence[Tensor], tolerance: float = 1e-11) -> None:
    start = parameters()
    for x, y, s in zip(a, b, start, strict=True):
        assert float((x - y).norm() / y.norm()) < tolerance
        assert float((x - s.detach()).norm()) > 0.1, "it moved"


COLD: dict[str, Any] = {"num_data": 30, "temperature": 0.0, "weight_decay": DECAY}


def wavy(k: int) -> float:
    return 0.05 * (1 + math.cos(math.pi * k / STEPS)) + 0.01


def test_sghmc_is_velocity_sgd() -> None:
    """v ← m·v − lr_k·(g + λθ); θ ← θ + v, transcribed, under a changing lr."""
    params = [p.detach() for p in parameters()]
    velocities = [torch.zeros_like(p) for p in params]
    for k in range(STEPS):
        for i, g in enumerate(gradients(params, k)):
            velocities[i] = 0.8 * velocities[i] - wavy(k) * (g + DECAY * params[i])
        params = [p + v for p, v in zip(params, velocities, strict=True)]
    assert_equal(optimised(lambda p: SGHMC(p, lr=0.1, momentum=0.8, **COLD), wavy), params)


def test_psgld_is_rmsprop() -> None:
    """torch's preconditioner sees the decay; pSGLD's does not, so that they are compared without."""
    theirs = optimised(lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.99, eps=1e-5), wavy)
    assert_equal(optimised(lambda p: PSGLD(p, lr=0.02, **{**COLD, "weight_decay": 0.0}), wavy), theirs)


@pytest.mark.parametrize("kind", [ATMC, SGNHT])
@pytest.mark.parametrize("integrator", ["strang", "euler"])
def test_thermostats_are_heavy_ball(kind: Callable[..., Sampler], integrator: str) -> None:
    """Momentum e^{−a₀} and step lr·(1 − e^{−a₀})/a₀; by Euler 1 − a₀ and lr. The thermostat stays at 0 ≤ a₀."""
    lr, a0 = 0.1, 0.25
    m, step = (math.exp(-a0), lr * (1 - math.exp(-a0)) / a0) if integrator == "strang" else (1 - a0, lr)
    theirs = optimised(lambda p: torch.optim.SGD(p, lr=step, momentum=m, weight_decay=DECAY))
    assert_equal(optimised(lambda p: kind(p, lr=lr, momentum=1 - a0, integrator=integrator, **COLD)), theirs)


@pytest.mark.parametrize("z", [0.1, 0.25, 0.6])
def test_a_warmed_atmc_cools_to_heavy_ball_with_its_friction(z: float) -> None:
    """While z ≤ a₀ friction is a₀; above it is z."""
    lr, a0 = 0.1, 0.25
    f = max(a0, z)

    def make(params: list[Tensor]) -> Sampler:
        sampler = ATMC(params, lr=lr, momentum=1 - a0, **COLD)
        for p in params:
            sampler.state_of(p, "thermostat", z)
        return sampler

    theirs = optimised(
        lambda p: torch.optim.SGD(p, lr=lr * -math.expm1(-f) / f, momentum=math.exp(-f), weight_decay=DECAY)
    )
    assert_equal(optimised(make), theirs)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_entropy_mcmc_descends_on_the_joint_potential(momentum: float) -> None:
    """torch's SGD on the pair, with autograd's gradient of ℓ(θ) + ½λ‖θ‖² + ‖θ−θₐ‖²/(2ηN) + ½λₐ‖θₐ‖²."""
    eta, anchor_decay, lr = 0.2, 0.1, 0.05
    hessian, mean = torch.from_numpy(PRECISION), torch.from_numpy(MEAN)
    theta = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    pair = [torch.ones(1, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    ours = EntropyMCMC([theta], lr=lr, eta=eta, momentum=momentum, anchor_decay=anchor_decay, **{**COLD, "num_data": N})
    theirs = torch.optim.SGD(pair, lr=lr, momentum=momentum)
    for _ in range(STEPS):
        theta.grad = (theta.detach() - mean) @ hessian
        ours.step()
        x, a = pair
        away = (x - mean)[0]
        penalties = DECAY * (x**2).sum() + ((x - a) ** 2).sum() / (eta * N) + anchor_decay * (a**2).sum()
        theirs.zero_grad()
        (0.5 * (away @ hessian @ away + penalties)).backward()
        theirs.step()
    together = np.concatenate([p.detach().numpy() for p in pair], axis=1)
    np.testing.assert_allclose(draws(ours), together, rtol=1e-11)
    assert np.abs(together - 1).max() > 0.5
