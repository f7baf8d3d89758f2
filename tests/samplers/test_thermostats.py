"""SGNHT and ATMC: the published table, exact linear laws, their equations step by step, and what lies between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raychains.samplers import SGHMC, Sampler
from raychains.samplers.atmc import ATMC
from raychains.samplers.noise import Noise
from raychains.samplers.sgnht import SGNHT
from raychains.samplers.thermostat import exact
from tests.samplers.oracles import Setting, closed_form_variance
from tests.samplers.thermostat_oracles import (
    Method,
    euler_friction,
    euler_friction_at,
    linear_law,
    measure,
    stationary,
    steps_until_stationary,
    transcribed,
)

F64: Any = torch.float64


def make(method: Method, params: Any, *, lr: float, temperature: float = 1.0, seed: int = 0) -> Sampler:
    common: dict[str, Any] = {
        "lr": lr, "temperature": temperature, "seed": seed, "momentum": method.momentum,
        "thermostat_rate": method.thermostat_rate, "integrator": method.integrator,
        "num_data": method.num_data, "weight_decay": method.weight_decay, "lanes": method.lanes,
    }  # fmt: skip
    if method.adaptive:
        return ATMC(params, speed_limit=method.speed_limit, **common)
    return SGNHT(params, thermostat="scalar" if method.scalar else "coordinate", **common)


# --- stationary laws ---

H, D, MASS = 0.05, 1.0, 10.0
B = (0.0, 0.225, 0.9, 2.5)
TABLE = {
    (False, "strang"): (1.001, 0.998, 0.998, 1.002),
    (True, "strang"): (1.002, 0.998, 0.997, 0.997),
    (False, "euler"): (0.976, 0.967, 0.948, 0.908),
    (True, "euler"): (0.978, 0.974, 0.970, 0.930),
}
"""Var θ under gradient noise, target 1, known to ± .01."""
SDS = [math.sqrt(2 * b / H) for b in B]


@pytest.mark.parametrize(("adaptive", "integrator"), TABLE)
def test_variance_under_gradient_noise_is_the_tables(adaptive: bool, integrator: str) -> None:
    method = Method(adaptive=adaptive, integrator=integrator, momentum=1 - H * D, thermostat_rate=H**2 / MASS)
    got = measure(lambda p: make(method, [p], lr=H**2), SDS, coordinates=10_000, burn_in=4500, steps=2000)
    for b, variance, error, known in zip(B, got.variance, got.error, TABLE[adaptive, integrator], strict=True):
        assert error < 0.003
        assert abs(variance - known) <= 0.01 + error, f"B = {b}: {variance:.4f} ± {error:.4f} against {known}"


def test_sghmc_under_the_same_noise_has_1_plus_b_over_d() -> None:
    got = measure(
        lambda p: SGHMC([p], lr=H**2, momentum=1 - H * D, num_data=1, seed=0),
        SDS, coordinates=20_000, burn_in=500, steps=1200,
    )  # fmt: skip
    for b, sd, variance, error in zip(B, SDS, got.variance, got.error, strict=True):
        law = closed_form_variance(Setting(momentum=1 - H * D, lr=H**2, lam=1.0, temperature=1.0, noise=sd))
        assert abs(variance - law) < 5 * error
        assert abs(variance - (1 + b / D)) <= 0.01 + error, f"B = {b}: {variance:.4f} ± {error:.4f}"


PRECISION = np.array([[1.0, 0.6, 0.0], [0.6, 1.5, -0.4], [0.0, -0.4, 0.7]])


@pytest.mark.parametrize("z", [0.0, -0.04, 0.15])
@pytest.mark.parametrize("momentum", [0.9, 0.5])
@pytest.mark.parametrize("integrator", ["strang", "euler"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_frozen_thermostat_has_the_covariance_of_lyapunov(
    adaptive: bool, integrator: str, momentum: float, z: float
) -> None:
    """With κ = 0 a step is linear, also at a z that is not 0 and with gradient noise (5 s.e. of each entry)."""
    chains, lr, temperature, noise = 40_000, 0.3, 0.7, 0.2
    method = Method(
        adaptive=adaptive, integrator=integrator, momentum=momentum, thermostat_rate=0.0, num_data=20, lanes=chains
    )
    law = linear_law(PRECISION, method=method, lr=lr, temperature=temperature, z=z, noise=noise)
    expected = stationary(*law)
    theta = torch.zeros(chains, 3, dtype=torch.float64, requires_grad=True)
    sampler = make(method, [theta], lr=lr, temperature=temperature, seed=5)
    sampler.state[theta]["thermostat"] = torch.full_like(theta, z)
    precision, generator = torch.tensor(PRECISION), torch.Generator().manual_seed(8)
    for _ in range(steps_until_stationary(law[0], 1e-3)):
        theta.grad = theta.detach() @ precision + noise * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()
    both = torch.cat([theta.detach(), sampler.state[theta]["momentum"]], dim=1).numpy()
    got, var = both.T @ both / chains, np.diag(expected)
    error = np.sqrt((np.outer(var, var) + expected**2) / chains)
    assert (np.abs(got - expected) < 5 * error + 1e-3 * np.sqrt(np.outer(var, var))).all()
    assert bool((sampler.state[theta]["thermostat"] == z).all())


EULER = Method(adaptive=False, integrator="euler", momentum=0.7, thermostat_rate=0.05, scalar=True, num_data=20)
LAM, TEMPERATURE = 0.5, 0.8


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_eulers_biased_variance_is_its_limit_law(noise: float) -> None:
    """Var θ → T/(Nλ)·(1 − ā/2); one z for all coordinates, so that friction is ā and does not fluctuate."""
    target = TEMPERATURE / (EULER.num_data * LAM)

    def limit(lr: float) -> float:
        return euler_friction((2 * (1 - EULER.momentum) * TEMPERATURE + lr * EULER.num_data * noise**2) / TEMPERATURE)

    gaps = []
    for lr in (2e-2, 2e-3):  # the linear law at the friction that gives Var p = T tends to the closed form
        friction = euler_friction_at(LAM, method=EULER, lr=lr, temperature=TEMPERATURE, noise=noise)
        z = friction - (1 - EULER.momentum)
        law = linear_law(np.array([[LAM]]), method=EULER, lr=lr, temperature=TEMPERATURE, z=z, noise=noise)
        gaps.append(abs(stationary(*law)[0, 0] / (target * (1 - limit(lr) / 2)) - 1))
    assert gaps[1] < 0.15 * gaps[0] < 0.15 * 0.02

    lr, count = 0.01, 40_000
    theta = torch.zeros(count, requires_grad=True)
    sampler = make(EULER, [theta], lr=lr, temperature=TEMPERATURE, seed=1)
    generator, total, z_total = torch.Generator().manual_seed(2), torch.zeros(count), 0.0
    for k in range(1600):
        theta.grad = LAM * theta.detach() + noise * torch.empty(count).normal_(generator=generator)
        sampler.step()
        if k >= 800:
            total += theta.detach() ** 2 / 800
            z_total += float(sampler.state[theta]["thermostat"]) / 800
    error = float(total.std()) / math.sqrt(count)
    assert error < 0.004 * target
    assert z_total + 0.3 == pytest.approx(limit(lr), abs=0.005)
    assert abs(float(total.mean()) - target * (1 - limit(lr) / 2)) < 5 * error + gaps[0] * target
    assert float(total.mean()) < 0.9 * target


@pytest.mark.parametrize("mass", [None, 2.0])
def test_relativistic_variance_is_first_order_in_the_step(mass: float | None) -> None:
    """c = √T, far from Gaussian: halving h halves the bias, and Richardson's 2·v(h/2) − v(h) is the target, 1 (5 s.e.)."""
    got = {}
    for h in (0.2, 0.1):
        rate = 0.0 if mass is None else h**2 / mass
        method = Method(adaptive=True, momentum=1 - h, thermostat_rate=rate, speed_limit=1.0)
        got[h] = measure(
            lambda p, h=h, method=method: make(method, [p], lr=h**2, seed=3),  # type: ignore[misc]
            [0.0], coordinates=60_000, burn_in=int(20 / h), steps=int(60 / h),
        )  # fmt: skip
    (coarse, fine), error = (float(got[h].variance[0]) - 1 for h in (0.2, 0.1)), 5 * float(got[0.1].error[0])
    assert abs(coarse) > error, "the bias is seen"
    assert abs(fine) < 0.5 * abs(coarse) + error
    assert abs(2 * fine - coarse) < error * math.sqrt(5)


# --- step by step ---

SHAPES = ((2,), (2, 3))
CHANGING = [(0.05 * (1 + math.cos(k / 12)), (1.0, 0.5, 0.0, 2.0)[k // 12 % 4]) for k in range(60)]


def steep(k: int, theta: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A gradient that is not linear and changes with the step."""
    return [np.sin(1.5 * x + i) + 0.3 * np.cos(k + np.arange(x.size).reshape(x.shape)) for i, x in enumerate(theta)]


def run(method: Method, settings_: Sequence[tuple[float, float]], seed: int = 4) -> tuple[list[Tensor], Sampler]:
    params = [torch.full(s, 0.3, dtype=torch.float64, requires_grad=True) for s in SHAPES]
    sampler = make(method, params, lr=1.0, seed=seed)
    for k, (lr, temperature) in enumerate(settings_):
        sampler.param_groups[0].update(lr=lr, temperature=temperature)
        for p, g in zip(params, steep(k, [p.detach().numpy() for p in params]), strict=True):
            p.grad = torch.from_numpy(g)
        sampler.step()
    return params, sampler


VARIANTS = [
    Method(adaptive=a, integrator=i, thermostat_rate=r, scalar=s, speed_limit=c, num_data=30, weight_decay=0.2, lanes=n)
    for i in ("strang", "euler")
    for r in (0.03, 0.0)
    for a, s, c, n in [
        (False, False, None, 1), (False, True, None, 1), (False, True, None, 2), (True, False, None, 1),
        (True, False, 0.7, 1), (True, False, 5.0, 2),
    ]
]  # fmt: skip


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_every_variant_is_its_equations_step_by_step(method: Method) -> None:
    """lr and T change, T to 0 and back; p and z are kept as they are."""
    expected, momenta = transcribed(method, [np.full(s, 0.3) for s in SHAPES], steep, CHANGING, seed=4)
    params, sampler = run(method, CHANGING)
    for p, theta, q in zip(params, expected, momenta, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), theta, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(sampler.state[p]["momentum"].numpy(), q, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("z", [0.0, -1.0, 0.08])
@pytest.mark.parametrize("integrator", ["strang", "euler"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_without_temperature_it_is_sgd_with_momentum(adaptive: bool, integrator: str, z: float) -> None:
    """Heavy ball with momentum e^{−f} and step lr·(1−e^{−f})/f: torch's, and v ← m·v − lr·g; θ ← θ + v in numpy.

    f is a₀ for ATMC while z ≤ a₀, and z + a₀ for SGNHT.
    """
    a0, lr, decay = 0.1, 0.05, 0.01
    f = a0 if adaptive else z + a0
    m, eta = (math.exp(-f), lr * (1 - math.exp(-f)) / f) if integrator == "strang" else (1 - f, lr)
    method = Method(adaptive=adaptive, integrator=integrator, momentum=1 - a0, num_data=40, weight_decay=decay)
    ours, theirs = (torch.full((5,), 0.3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    plain, v = np.full(5, 0.3), np.zeros(5)
    sampler = make(method, [ours], lr=lr, temperature=0.0)
    sampler.state[ours]["thermostat"] = torch.full_like(ours, z)
    sgd = torch.optim.SGD([theirs], lr=eta, momentum=m, weight_decay=decay)
    for k in range(60 if f > 0 else 5):  # a negative friction runs away
        for p in (ours, theirs):
            p.grad = torch.from_numpy(steep(k, [p.detach().numpy()])[0])
        sampler.step()
        sgd.step()
        v = m * v - eta * (steep(k, [plain])[0] + decay * plain)
        plain = plain + v
    np.testing.assert_allclose(ours.detach().numpy(), plain, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    assert bool((sampler.state[ours]["thermostat"] == z).all()), "the thermostat is frozen"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_coefficients_of_the_momentum_step_are_right_around_no_friction(dtype: torch.dtype) -> None:
    """Against Taylor's series in float64 near 0, and their definitions further off."""
    near = [s * 10.0**-k for k in (1, 2, 3, 5, 8, 12, 20, 30, 37) for s in (1, -1)] + [0.0]
    x = torch.tensor([*near, -0.7, 0.9, -4.0, 6.0], dtype=dtype)
    keep, response, spreading = (t[0].double().numpy() for t in exact([x]))
    y = x.double().numpy()

    def share_lost(u: np.ndarray) -> np.ndarray:
        """(1−e^{−u})/u = Σ (−u)ⁿ/(n+1)!, a series of 15 terms for u ≤ .2."""
        series = sum((-u) ** n / math.factorial(n + 1) for n in range(15))
        with np.errstate(invalid="ignore"):
            return np.where(np.abs(u) <= 0.2, series, (1 - np.exp(-u)) / u)

    tolerance = 40 * torch.finfo(dtype).eps  # e^{−6} is 1 − (1 − e^{−6})
    np.testing.assert_allclose(response, share_lost(y), rtol=tolerance)
    np.testing.assert_allclose(spreading, 2 * share_lost(2 * y), rtol=tolerance)
    np.testing.assert_allclose(keep, np.exp(-y), rtol=tolerance, atol=tolerance / 40)


def test_sgnht_without_friction_is_a_plain_kick_with_noise() -> None:
    """z = −a₀: p ← p − √(N·lr)·g + √(2·a₀·T)·ξ, the limit of both integrators."""
    ends = []
    for integrator in ("strang", "euler"):
        theta = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        method = Method(adaptive=False, integrator=integrator, momentum=0.75, num_data=9)
        sampler = make(method, [theta], lr=0.04, temperature=2.0, seed=6)
        sampler.state[theta].update(momentum=torch.ones(4, dtype=F64), thermostat=torch.full((4,), -0.25, dtype=F64))
        theta.grad = torch.full((4,), 0.5, dtype=torch.float64)
        sampler.step()
        ends.append(sampler.state[theta]["momentum"])
        xi = Noise(6).like(theta)
        torch.testing.assert_close(ends[-1], 1 - 0.6 * 0.5 + xi, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-14)


# --- bounds ---


def after_one_step(z: float, *, momentum: float, temperature: float, gradient: float = 0.0, **rest: Any) -> Any:
    """p after one ATMC step from p = 1 in float64, and the ATMC."""
    theta = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    rest = {"lr": 0.01, "num_data": 1, "thermostat_rate": 0.0, **rest}
    sampler = ATMC([theta], momentum=momentum, temperature=temperature, seed=1, **rest)
    sampler.state[theta]["momentum"] = torch.ones(1, dtype=torch.float64)
    sampler.state[theta]["thermostat"] = torch.tensor([z], dtype=torch.float64)
    theta.grad = torch.full_like(theta, gradient)
    sampler.step()
    return sampler.state[theta]["momentum"].item(), sampler


@settings(max_examples=60, deadline=None)
@given(z=st.floats(-3, 3), momentum=st.floats(0, 0.999))
def test_atmc_friction_is_never_below_a0_and_exceeds_the_injected_share_by_z(z: float, momentum: float) -> None:
    """Read off one Euler step without gradient: p = 1 becomes 1 − f, and temperature adds √(2·T·share)·ξ."""
    cold, sampler = after_one_step(z, momentum=momentum, temperature=0.0, integrator="euler")
    warm, _ = after_one_step(z, momentum=momentum, temperature=1.0, integrator="euler")
    xi = Noise(1).like(torch.empty(1, dtype=torch.float64)).item()
    friction, share = 1 - cold, ((warm - cold) / xi) ** 2 / 2
    assert friction >= 1 - momentum - 1e-15 and share >= 0
    assert friction - share == pytest.approx(z, abs=1e-12)
    f, b = (t[0].item() for t in sampler._friction([torch.tensor([z], dtype=F64)], 1 - momentum))
    assert f >= 1 - momentum > 0
    assert f - b == z if z >= 1 - momentum else f - b == pytest.approx(z, abs=1e-15 * max(1, abs(z)))
    decay, _ = after_one_step(z, momentum=momentum, temperature=0.0, integrator="strang")
    assert decay <= math.exp(momentum - 1) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    gradient=st.one_of(st.floats(-1e8, 1e8), st.sampled_from([1e8, -1e8])),
    c=st.floats(1e-3, 10), z=st.floats(-1, 1), integrator=st.sampled_from(["strang", "euler"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_no_coordinate_moves_faster_than_the_speed_limit(
    gradient: float, c: float, z: float, integrator: str, dtype: torch.dtype
) -> None:
    theta = torch.zeros(2, dtype=dtype, requires_grad=True)
    sampler = ATMC([theta], lr=0.5, num_data=50_000, speed_limit=c, integrator=integrator, seed=2)
    sampler.state[theta]["thermostat"] = torch.full((2,), z, dtype=dtype)
    for _ in range(3):
        before = theta.detach().clone()
        theta.grad = torch.tensor([gradient, 1.0], dtype=dtype)
        sampler.step()
        limit = math.sqrt(0.5 / 50_000) * c
        moved = (theta.detach() - before).abs()
        assert bool((moved <= limit * (1 + 1e-5)).all()) and bool(moved.isfinite().all())
        assert abs(gradient) < 1e6 or moved[0] > 0.99 * limit, "and a large gradient reaches it"


@pytest.mark.parametrize("speed_limit", [None, 1e4])
@pytest.mark.parametrize("integrator", ["strang", "euler"])
def test_effective_noise_std_is_what_one_step_injects(integrator: str, speed_limit: float | None) -> None:
    count = 100_000
    theta = torch.zeros(count, requires_grad=True)
    sampler = ATMC(
        [theta], lr=0.3, num_data=12, temperature=0.5, integrator=integrator, speed_limit=speed_limit, seed=0
    )
    theta.grad = torch.zeros(count)
    sampler.step()
    a0 = 0.1
    per_momentum = 1 - math.exp(-2 * a0) if integrator == "strang" else 2 * a0
    expected = math.sqrt(0.3 / 12 * 0.5 * per_momentum)
    assert sampler.effective_noise_std() == pytest.approx(expected, rel=1e-12)
    got = float(theta.detach().double().square().mean().sqrt())
    assert abs(got / expected - 1) < 5 / math.sqrt(2 * count)  # s.e. of an sd from normal draws
