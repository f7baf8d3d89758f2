"""SGNHT and ATMC: their equations step by step, what lies between, and the scalar thermostat's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raychains.samplers import ATMC, SGNHT, Sampler
from raychains.samplers.noise import Noise
from raychains.samplers.thermostat import exact
from tests.samplers.every_kind import CASES, build, steps


def transcribed(
    sampler: Sampler, start: Sequence[np.ndarray], settings: Sequence[tuple[float, float]], seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """θ and p after one step for each (lr, T), written in the dynamics' own h, D, ζ, β, γ and ∇Ũ = N·g.

    β(ζ) is max(0, D − ζ) for ATMC and D for SGNHT.
    """
    (own,), n, lanes = sampler.param_groups, sampler.num_data, sampler.lanes
    noise = Noise(seed)
    theta = [x.astype(np.float64) for x in start]
    p, z = ([np.zeros_like(x) for x in theta] for _ in range(2))
    c = own.get("speed_limit")
    for k, (lr, temperature) in enumerate(settings):
        h = math.sqrt(lr / n)
        d = (1 - own["momentum"]) / h
        slopes = []
        for i, g in enumerate(steep(k, theta)):
            force = n * (g + own["weight_decay"] * theta[i])
            zeta = z[i] / h
            beta = np.maximum(0, d - zeta) if isinstance(sampler, ATMC) else np.full_like(zeta, d)
            mass = np.ones_like(p[i]) if c is None else np.sqrt(p[i] ** 2 / c**2 + 1)
            gamma = (zeta + beta) / mass
            xi = noise.like(torch.as_tensor(p[i])).numpy() if temperature else 0.0
            if own["integrator"] == "strang":
                decay = np.exp(-gamma * h)
                sd = np.sqrt(temperature * beta * (1 - decay**2) / gamma)
                p[i] = decay * p[i] - (1 - decay) / gamma * force + sd * xi
            else:
                p[i] = p[i] - h * gamma * p[i] - h * force + np.sqrt(2 * h * beta * temperature) * xi
            slope = p[i] if c is None else p[i] / np.sqrt(p[i] ** 2 / c**2 + 1)
            theta[i] = theta[i] + h * slope
            slopes.append(slope)
        if temperature:
            excess = [
                s**2 / temperature - (1 if c is None else (q**2 / c**2 + 1) ** -1.5)
                for s, q in zip(slopes, p, strict=True)
            ]
            if own.get("thermostat") == "scalar":
                rows = np.concatenate([e.reshape(lanes, -1) for e in excess], axis=1).mean(axis=1)
                excess = [rows.repeat(e.size // lanes).reshape(e.shape) for e in excess]
            z = [a + own["thermostat_rate"] * e for a, e in zip(z, excess, strict=True)]
    return theta, p


SHAPES = ((2,), (2, 3))
CHANGING = [(0.05 * (1 + math.cos(k / 12)), (1.0, 0.5, 0.0, 2.0)[k // 12 % 4]) for k in range(60)]


def steep(k: int, theta: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A gradient that is not linear and changes with the step."""
    return [np.sin(1.5 * x + i) + 0.3 * np.cos(k + np.arange(x.size).reshape(x.shape)) for i, x in enumerate(theta)]


VARIANTS: list[tuple[Any, dict[str, Any]]] = [
    (kind, {**own, "integrator": integrator, "thermostat_rate": rate})
    for integrator in ("strang", "euler")
    for rate in (0.03, 0.0)
    for kind, own in (
        (SGNHT, {}),
        (SGNHT, {"thermostat": "scalar"}),
        (SGNHT, {"thermostat": "scalar", "lanes": 2}),
        (ATMC, {}),
        (ATMC, {"speed_limit": 0.7}),
        (ATMC, {"speed_limit": 5.0, "lanes": 2}),
    )
]


@pytest.mark.parametrize(("kind", "own"), VARIANTS, ids=str)
def test_every_variant_is_its_equations_step_by_step(kind: Any, own: dict[str, Any]) -> None:
    """lr and T change, T to 0 and back; p and z are kept as they are."""
    params = [torch.full(s, 0.3, dtype=torch.float64, requires_grad=True) for s in SHAPES]
    sampler = kind(params, lr=1.0, num_data=30, weight_decay=0.2, seed=4, **own)
    expected, momenta = transcribed(sampler, [p.detach().numpy().copy() for p in params], CHANGING, seed=4)
    for k, (lr, temperature) in enumerate(CHANGING):
        sampler.param_groups[0].update(lr=lr, temperature=temperature)
        for p, g in zip(params, steep(k, [p.detach().numpy() for p in params]), strict=True):
            p.grad = torch.from_numpy(g)
        sampler.step()
    for p, theta, q in zip(params, expected, momenta, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), theta, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(sampler.state[p]["momentum"].numpy(), q, rtol=1e-9, atol=1e-11)


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


# --- bounds ---


def after_one_step(z: float, *, momentum: float, temperature: float, gradient: float = 0.0, **rest: Any) -> float:
    """p after one ATMC step from p = 1 in float64."""
    theta = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    rest = {"lr": 0.01, "num_data": 1, "thermostat_rate": 0.0, **rest}
    sampler = ATMC([theta], momentum=momentum, temperature=temperature, seed=1, **rest)
    sampler.state[theta]["momentum"] = torch.ones(1, dtype=torch.float64)
    sampler.state[theta]["thermostat"] = torch.tensor([z], dtype=torch.float64)
    theta.grad = torch.full_like(theta, gradient)
    sampler.step()
    return float(sampler.state[theta]["momentum"])


@settings(max_examples=60, deadline=None)
@given(z=st.floats(-3, 3), momentum=st.floats(0, 0.999))
def test_atmc_friction_is_never_below_a0_and_exceeds_the_injected_share_by_z(z: float, momentum: float) -> None:
    """Read off one Euler step without gradient: p = 1 becomes 1 − f, and temperature adds √(2·T·share)·ξ."""
    cold = after_one_step(z, momentum=momentum, temperature=0.0, integrator="euler")
    warm = after_one_step(z, momentum=momentum, temperature=1.0, integrator="euler")
    xi = Noise(1).like(torch.empty(1, dtype=torch.float64)).item()
    friction, share = 1 - cold, ((warm - cold) / xi) ** 2 / 2
    assert friction >= 1 - momentum - 1e-15 and share >= 0
    assert friction - share == pytest.approx(z, abs=1e-12)
    decay = after_one_step(z, momentum=momentum, temperature=0.0, integrator="strang")
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


# --- state ---


def test_scalar_thermostat_is_one_number_for_each_group_and_lane() -> None:
    params = [torch.randn(s).requires_grad_() for s in ((3,), (3, 4), (3, 2, 2))]
    sampler = build("sgnht", [{"params": params[:2]}, {"params": params[2:]}], thermostat="scalar", lanes=3)
    steps(sampler, 2)
    held = [{name: tuple(t.shape) for name, t in sampler.state[p].items()} for p in params]
    assert [s.get("thermostat") for s in held] == [(3,), None, (3,)]
    assert [s["momentum"] for s in held] == [(3,), (3, 4), (3, 2, 2)]


def test_scalar_thermostat_goes_on_when_its_groups_first_parameter_has_no_gradient() -> None:
    a, b = (torch.randn(n).requires_grad_() for n in (2, 3))
    sampler = SGNHT(
        [{"params": [a, b], "missing_grad": "skip"}],
        lr=0.05,
        num_data=20,
        thermostat="scalar",
        thermostat_rate=0.1,
        seed=0,
    )
    b.grad = torch.ones(3)
    sampler.step()
    z = 0.1 * float(sampler.state[b]["momentum"].square().mean() - 1)
    assert float(sampler.state[a]["thermostat"]) == pytest.approx(z, rel=1e-5)
    sampler.load_state_dict(sampler.state_dict())
    assert float(sampler.state[a]["thermostat"]) == pytest.approx(z, rel=1e-5)


@pytest.mark.parametrize(("kind", "own"), [case for case in CASES if case[0] in ("sgnht", "atmc")], ids=str)
def test_step_size_zero_leaves_the_parameters_and_keeps_the_state_finite(kind: str, own: dict[str, Any]) -> None:
    params = [torch.randn(s).requires_grad_() for s in ((2,), (3, 2), (4,))]
    before = [p.detach().clone() for p in params]
    sampler = build(kind, params, lr=0.0, seed=0, **own)
    steps(sampler, 20)
    assert all(torch.equal(p, q) for p, q in zip(params, before, strict=True))
    assert all(bool(t.isfinite().all()) for s in sampler.state.values() for t in s.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_huge_momentum_is_still_brought_down_under_a_speed_limit(dtype: torch.dtype) -> None:
    """p²/c² would overflow single precision, and 1/M be 0 for ever."""
    theta = torch.zeros(2, dtype=dtype, requires_grad=True)
    sampler = ATMC([theta], lr=1.0, num_data=1, speed_limit=0.5, temperature=0.0)
    for gradient in (1e25, 0.0):
        theta.grad = torch.full_like(theta, gradient)
        sampler.step()
    assert torch.equal(theta.detach(), torch.full_like(theta, -1.0))
