"""Entropy-MCMC: exact laws at a finite step, a plain transcription, its limits, its state and what it refuses."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from raychains.samplers import SGD, SGDM, SGHMC, SGLD, Sampler
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.noise import Noise
from tests.checks import refused

COORDINATES = 200_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """Entropy-MCMC on the mean loss ½·lam·θ² with N data."""

    lr: float
    eta: float
    update: str = "joint"
    lam: float = 1.0
    momentum: float = 0.0
    temperature: float = 1.0
    num_data: int = 1
    anchor_decay: float = 0.0

    def sampler(self, params: Any, **rest: Any) -> EntropyMCMC:
        return EntropyMCMC(
            params, lr=self.lr, eta=self.eta, momentum=self.momentum, num_data=self.num_data, update=self.update,
            temperature=self.temperature, anchor_decay=self.anchor_decay, **rest,
        )  # fmt: skip


def recursion(c: Case) -> tuple[np.ndarray, np.ndarray]:
    """A and Q of sₖ₊₁ = A·sₖ + w, w ~ N(0, Q), for s = (θ, v, θₐ, vₐ), column by column from the update rule."""
    k = 1 / (c.eta * c.num_data)
    injected = 2 * (1 - c.momentum) * c.lr * c.temperature / c.num_data

    def drift(theta: float, v: float, anchor: float, v_anchor: float) -> tuple[float, float, float, float]:
        new_v = c.momentum * v - c.lr * (c.lam * theta + k * (theta - anchor))
        new_theta = theta + new_v
        if c.update == "gibbs":
            return new_theta, new_v, new_theta / (1 + c.eta * c.num_data * c.anchor_decay), 0.0
        new_v_anchor = c.momentum * v_anchor - c.lr * (c.anchor_decay * anchor - k * (theta - anchor))
        return new_theta, new_v, anchor + new_v_anchor, new_v_anchor

    a = np.array([drift(*row) for row in np.eye(4)]).T
    first = np.array([1.0, 1.0, 0.0, 0.0])  # how ξ₁ and ξ₂ enter the state
    second = np.array([0.0, 0.0, 1.0, 1.0])
    if c.update == "gibbs":
        shrink = 1 / (1 + c.eta * c.num_data * c.anchor_decay)
        first, second = np.array([1.0, 1.0, shrink, 0.0]), np.array([0.0, 0.0, 1.0, 0.0])
        return a, injected * np.outer(first, first) + c.temperature * c.eta * shrink * np.outer(second, second)
    return a, injected * (np.outer(first, first) + np.outer(second, second))


def covariance(c: Case) -> np.ndarray:
    """Stationary covariance of (θ, θₐ)."""
    return solve_discrete_lyapunov(*recursion(c))[np.ix_([0, 2], [0, 2])]


def target_covariance(c: Case) -> np.ndarray:
    """Of exp(−[Nλθ²/2 + (θ−θₐ)²/2η + Nλₐθₐ²/2]/T): T times the inverse of its Hessian."""
    n = c.num_data
    hessian = [[n * c.lam + 1 / c.eta, -1 / c.eta], [-1 / c.eta, 1 / c.eta + n * c.anchor_decay]]
    return c.temperature * np.linalg.inv(hessian)


CASES = [
    Case(lr=0.2, eta=0.5),
    Case(lr=0.3, eta=2.0, temperature=0.3, lam=0.7),
    Case(lr=0.5, eta=0.1, num_data=20, temperature=2.0),
    Case(lr=0.3, eta=0.5, anchor_decay=0.4, num_data=3),
    Case(lr=0.1, eta=0.5, momentum=0.9),
    Case(lr=0.4, eta=0.05, momentum=0.9, num_data=50, temperature=0.5),
    Case(lr=0.2, eta=0.5, update="gibbs"),
    Case(lr=0.3, eta=0.02, update="gibbs", num_data=100, temperature=0.4),
    Case(lr=0.3, eta=0.5, update="gibbs", anchor_decay=0.4, num_data=3),
    Case(lr=0.05, eta=0.3, update="gibbs", momentum=0.9, temperature=2.0),
]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("update", ["joint", "gibbs"])
def test_the_oracle_tends_to_the_target_as_the_step_does_to_zero(update: str, momentum: float) -> None:
    """Var θ → T·s², Var θₐ → T(s²+η), E(θ−θₐ)² → T·η with s² = 1/(Nλ); with λₐ too, the inverse Hessian."""
    t, eta, n, lam = 0.7, 0.3, 4, 0.5
    case = Case(lr=1e-6, eta=eta, lam=lam, num_data=n, temperature=t, update=update, momentum=momentum)
    got, s2 = covariance(case), 1 / (n * lam)
    assert got[0, 0] == pytest.approx(t * s2, rel=1e-4)
    assert got[1, 1] == pytest.approx(t * (s2 + eta), rel=1e-4)
    assert got[0, 0] + got[1, 1] - 2 * got[0, 1] == pytest.approx(t * eta, rel=1e-4)
    decayed = Case(
        lr=1e-6, eta=eta, lam=lam, num_data=n, temperature=t, update=update, momentum=momentum, anchor_decay=0.2
    )
    np.testing.assert_allclose(covariance(decayed), target_covariance(decayed), rtol=1e-4)


def test_cases_can_tell_the_finite_step_from_the_target() -> None:
    se = math.sqrt(2 / COORDINATES)
    apart = [c for c in CASES if abs(covariance(c)[0, 0] / target_covariance(c)[0, 0] - 1) > 5 * se]
    assert len(apart) >= 8 and {c.update for c in apart} == {"joint", "gibbs"}


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=str)
def test_covariance_matches_lyapunov(number: int, case: Case) -> None:
    """Second moments of independent coordinates started at 0, within 5 standard errors √((C₁₁C₂₂ + C₁₂²)/n)."""
    a, q = recursion(case)
    radius = float(np.abs(np.linalg.eigvals(a)).max())
    steps, so_far = 0, np.zeros((4, 4))
    exact = solve_discrete_lyapunov(a, q)
    while abs(so_far[[0, 2], [0, 2]] / exact[[0, 2], [0, 2]] - 1).max() > 0.1 * math.sqrt(2 / COORDINATES):
        so_far, steps = a @ so_far @ a.T + q, steps + 1
    assert radius < 1 and steps < 1000
    theta = torch.zeros(COORDINATES, dtype=torch.float64 if number % 2 else torch.float32, requires_grad=True)
    # Every third case's curvature is the sampler's own prior.
    decay = case.lam if number % 3 == 0 else 0.0
    sampler = case.sampler([theta], weight_decay=decay, seed=300 + number)
    for _ in range(steps):
        theta.grad = torch.zeros_like(theta) if decay else case.lam * theta.detach()
        sampler.step()
    pair = torch.stack([draws[0].double() for _, draws in sampler.draws()]).detach()
    got, exact = (pair @ pair.T / COORDINATES).numpy(), exact[np.ix_([0, 2], [0, 2])]
    z = (got - exact) / np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / COORDINATES)
    assert np.abs(z).max() < 5, f"{z} standard errors from {exact}"
    gap = exact[0, 0] + exact[1, 1] - 2 * exact[0, 1]
    found = float((pair[0] - pair[1]).square().mean())
    assert abs(found / gap - 1) < 5 * math.sqrt(2 / COORDINATES)


# Step by step


def quadratics(count: int = 2) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters and the diagonal Hessians of their loss, float64."""
    generator = torch.Generator().manual_seed(3)
    params = [torch.randn(3 + i, 2, dtype=torch.float64, generator=generator) for i in range(count)]
    curvatures = [torch.rand(p.shape, dtype=torch.float64, generator=generator) + 0.2 for p in params]
    return [p.requires_grad_() for p in params], curvatures


@pytest.mark.parametrize("update", ["joint", "gibbs"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_equal_a_plain_transcription_with_the_same_noise(momentum: float, update: str) -> None:
    """Also with lr and temperature changing from step to step; T = 0 in every third step draws no noise."""
    n, eta, wd, ad = 7, 0.4, 0.05, 0.02
    params, curvatures = quadratics()
    theta = [p.detach().clone() for p in params]
    anchor = [p.clone() for p in theta]
    v, va = [torch.zeros_like(p) for p in theta], [torch.zeros_like(p) for p in theta]
    sampler = EntropyMCMC(
        params, lr=1.0, eta=eta, momentum=momentum, num_data=n, weight_decay=wd, anchor_decay=ad, update=update, seed=5
    )
    noise = Noise(5)

    def xi(std: float) -> list[Tensor]:
        if std == 0:
            return [torch.zeros_like(p) for p in theta]
        return [std * noise.like(p) for p in theta]

    for step in range(40):
        lr, t = 0.3 / (1 + 0.1 * step), (0.0, 1.0, 0.5)[step % 3]
        sampler.param_groups[0].update(lr=lr, temperature=t)
        for p, h in zip(params, curvatures, strict=True):
            p.grad = h * p.detach() - 1
        sampler.step()

        std = math.sqrt(2 * (1 - momentum) * lr * t / n)
        xi1 = xi(std)
        if update == "joint":
            xi2 = xi(std)
        before = [p.clone() for p in theta]
        for i, h in enumerate(curvatures):
            g = h * theta[i] - 1 + wd * theta[i] + (theta[i] - anchor[i]) / (eta * n)
            v[i] = momentum * v[i] - lr * g + xi1[i]
            theta[i] = theta[i] + v[i]
        if update == "joint":
            for i in range(len(theta)):
                va[i] = momentum * va[i] - lr * (ad * anchor[i] - (before[i] - anchor[i]) / (eta * n)) + xi2[i]
                anchor[i] = anchor[i] + va[i]
        else:
            xi2 = xi(math.sqrt(t * eta / (1 + eta * n * ad)))
            anchor = [p / (1 + eta * n * ad) + e for p, e in zip(theta, xi2, strict=True)]
    draws = dict(sampler.draws())
    assert list(draws) == ["theta", "anchor"]
    for got, expected in [*zip(draws["theta"], theta, strict=True), *zip(draws["anchor"], anchor, strict=True)]:
        torch.testing.assert_close(got.detach(), expected, rtol=1e-12, atol=1e-13)
        assert not torch.equal(got.detach(), torch.zeros_like(expected))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_huge_eta_leaves_theta_to_its_base_sampler(momentum: float) -> None:
    """With the same ξ₁ at every step: SGLD's noise is set to where Entropy-MCMC's stands."""
    (params, curvatures), (twins, _) = quadratics(), quadratics()
    common: dict[str, Any] = {"lr": 0.2, "num_data": 3, "temperature": 0.8, "weight_decay": 0.1}
    sampler = EntropyMCMC(params, eta=1e300, momentum=momentum, seed=1, **common)
    base = SGHMC(twins, momentum=momentum, **common) if momentum else SGLD(twins, **common)
    for _ in range(30):
        base._noise = Noise.load(sampler._noise.state())
        for ps, one in ((params, sampler), (twins, base)):
            for p, h in zip(ps, curvatures, strict=True):
                p.grad = h * p.detach() - 1
            one.step()
    assert all(torch.equal(p, q) for p, q in zip(params, twins, strict=True))
    anchors = dict(sampler.draws())["anchor"]
    assert not any(torch.equal(p, a) for p, a in zip(params, anchors, strict=True)), "θₐ went its own way"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_noise_gibbs_is_plain_descent(momentum: float) -> None:
    """At T = 0 and λₐ = 0 the conditional of θₐ is a point at θ, whose pull is then 0."""
    (params, curvatures), (twins, _) = quadratics(), quadratics()
    sampler = EntropyMCMC(params, lr=0.2, eta=0.1, num_data=1, momentum=momentum, temperature=0.0, update="gibbs")
    base: Sampler = SGDM(twins, lr=0.2, momentum=momentum) if momentum else SGD(twins, lr=0.2)
    for _ in range(20):
        for ps, one in ((params, sampler), (twins, base)):
            for p, h in zip(ps, curvatures, strict=True):
                p.grad = h * p.detach() - 1
            one.step()
    draws = dict(sampler.draws())
    for got, anchor, expected in zip(draws["theta"], draws["anchor"], twins, strict=True):
        assert torch.equal(got, expected) and torch.equal(anchor, expected.detach())


@pytest.mark.parametrize(("factor", "stable"), [(0.98, True), (1.02, False)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_documented_stability_limit(momentum: float, factor: float, stable: bool) -> None:
    """lr·(largest eigenvalue of [[h+κ, −κ], [−κ, κ]]) < 2(1+m), κ = 1/(ηN); lr·(h + 2κ) < 2 is on the safe side."""
    h, eta, n = 2.0, 0.5, 3
    kappa = 1 / (eta * n)
    largest = float(np.linalg.eigvalsh([[h + kappa, -kappa], [-kappa, kappa]]).max())
    assert largest < h + 2 * kappa
    theta = torch.ones(1, dtype=torch.float64, requires_grad=True)
    lr = factor * 2 * (1 + momentum) / largest
    sampler = EntropyMCMC([theta], lr=lr, eta=eta, num_data=n, momentum=momentum, temperature=0.0)
    for _ in range(3000):
        theta.grad = h * theta.detach()
        sampler.step()
    assert bool(theta.abs() < 1e-3) is stable


# State, draws, refusals


def two_groups(dtype: torch.dtype) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(n, 3, generator=generator).to(dtype).requires_grad_() for n in (4, 2, 5))
    return [{"params": [a, b], "momentum": 0.9}, {"params": [c], "eta": 0.05, "update": "gibbs", "weight_decay": 0.1}]


def run(sampler: Sampler, count: int, start: int = 0) -> None:
    for k in range(start, start + count):
        for p in sampler.parameters():
            p.grad = (p.detach() + math.sin(k)).to(p.dtype)
        sampler.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_state_dict_continues_bit_for_bit_with_two_groups(dtype: torch.dtype) -> None:
    settings: dict[str, Any] = {"lr": 0.05, "eta": 0.5, "num_data": 20}
    straight, first = (EntropyMCMC(two_groups(dtype), seed=3, **settings) for _ in range(2))
    run(straight, 12)
    run(first, 5)
    saved = copy.deepcopy(first.state_dict())
    second = EntropyMCMC(two_groups(dtype), seed=99, **settings)
    with torch.no_grad():
        for p, q in zip(second.parameters(), first.parameters(), strict=True):
            p.copy_(q)
    second.load_state_dict(saved)
    run(second, 7, start=5)
    for (name, a), (_, b) in zip(straight.draws(), second.draws(), strict=True):
        assert all(torch.equal(x, y) and x.dtype == y.dtype == dtype for x, y in zip(a, b, strict=True)), name
    kept = {t.dtype for s in second.state.values() for t in s.values()}
    assert kept == {torch.promote_types(dtype, torch.float32)}, "small steps of θₐ are not lost"


def test_anchors_start_as_copies_and_unstepped_parameters_are_their_own() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    sampler = EntropyMCMC([used, unused], lr=0.1, eta=1.0, num_data=1, temperature=0.0)
    assert all(torch.equal(p, a) for p, a in zip(*dict(sampler.draws()).values(), strict=True))
    assert not sampler.state, "asking for draws makes no state"
    used.grad = torch.ones(2)
    sampler.step()
    theta, anchor = dict(sampler.draws()).values()
    assert torch.equal(theta[0].detach(), torch.full((2,), 0.9)) and torch.equal(anchor[0], torch.ones(2))
    assert anchor[1] is unused and unused not in sampler.state


def test_a_kept_step_yields_one_draw_of_each_variable() -> None:
    sampler = EntropyMCMC([torch.ones(2, requires_grad=True)], lr=0.1, eta=1.0, num_data=1)
    found = [name for name, _ in sampler.draws()]
    assert EntropyMCMC.variables({"eta": 1.0}) == {name: found.count(name) for name in found}


def test_effective_noise_std_is_the_base_samplers() -> None:
    for momentum in (0.0, 0.9):
        p = torch.zeros(2, requires_grad=True)
        common: dict[str, Any] = {"lr": 0.3, "momentum": momentum, "num_data": 11, "temperature": 0.7}
        assert EntropyMCMC([p], eta=0.1, **common).effective_noise_std() == SGHMC([p], **common).effective_noise_std()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("eta", 0.0), ("eta", -1.0), ("eta", math.nan), ("eta", math.inf), ("eta", "1"), ("eta", None), ("eta", True),
        ("anchor_decay", -0.1), ("anchor_decay", math.nan), ("anchor_decay", "0"), ("update", "both"), ("update", 1),
        ("update", None), ("momentum", 1.0), ("momentum", -0.1), ("lr", -0.1), ("temperature", math.nan),
        ("weight_decay", -1.0), ("num_data", 0), ("lanes", 0), ("lanes", 3),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line_naming_the_field(field: str, value: object) -> None:
    good: dict[str, Any] = {"lr": 0.1, "eta": 0.5, "num_data": 5}
    with refused(field):
        EntropyMCMC([torch.ones(2, requires_grad=True)], **{**good, field: value})


def test_a_bad_setting_of_a_later_group_is_refused_and_not_taken_in() -> None:
    sampler = EntropyMCMC([torch.ones(2, requires_grad=True)], lr=0.1, eta=0.5, num_data=5)
    with refused("eta"):
        sampler.add_param_group({"params": [torch.ones(1, requires_grad=True)], "eta": -1.0})
    assert len(sampler.param_groups) == 1
