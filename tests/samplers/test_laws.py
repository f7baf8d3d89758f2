"""The shared statistical test: every sampler with a stated target on a correlated Gaussian, against its exact law.

Samplers whose law is known not to be the target, on U = λθ²/2: free-running pSGLD, thermostats at a large friction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from raychains.samplers import ATMC, KINDS, PSGLD, SGHMC, SGLD, SGNHT, EntropyMCMC, Sampler
from tests.samplers import laws
from tests.samplers.cases import LINEAR, RUNNING, THERMOSTATS, UNBIASED, gaussian, regression
from tests.samplers.laws import Law, Problem
from tests.samplers.simulate import Method, assert_law, excess, halved, stationary_draws
from tests.spread import spread, witnessed

LR, TEMPERATURE = 0.3, 0.7
LANES = [5_000, pytest.param(20_000, marks=pytest.mark.long)]
"""With four times as many, which take four times as long, half the deviation is seen."""
RUNNING_LANES = 10_000


def test_every_sampler_with_a_target_is_among_the_cases() -> None:
    """Entropy-SGLD, whose law is periodic in its inner loop, microcanonical samplers and SWAG have files of their
    own."""
    own = {"entropy-sgld", "mclmc", "swag"}
    covered = {getattr(m.kind, "kind", None) for m in [*LINEAR.values(), *RUNNING.values()]} | own
    targeted = {
        kind for kind, c in KINDS.items() if c.noisy_counterpart is None and "Target: none" not in (c.__doc__ or "")
    }
    assert targeted <= covered


# --- the laws themselves ---


@pytest.mark.parametrize("name", LINEAR)
def test_the_fixed_point_solves_the_lyapunov_equation(name: str) -> None:
    """Σ = AΣAᵀ + Q by scipy, and the mean by its own equation, for exact gradients with constant noise."""
    problem = gaussian(noise=(0.5, 1.0, 0.2))
    update = LINEAR[name].update(problem, lr=LR, temperature=TEMPERATURE)
    reads = np.eye(problem.dimension, len(update.keep))
    a = update.keep + update.force @ problem.hessian @ reads
    q = update.noise @ update.noise.T + update.force @ np.diag(np.square(problem.noise)) @ update.force.T
    law = laws.stationary(update, problem)
    np.testing.assert_allclose(law.covariance, solve_discrete_lyapunov(a, q), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(a @ law.mean - update.force @ problem.offsets[0], law.mean, rtol=1e-8, atol=1e-10)


Row = tuple[type[Sampler], dict[str, Any], float, float, float, int, float]
ONE: list[Row] = [  # sampler, its settings, lr, T, curvature λ, N, sd of the gradient's noise
    (SGLD, {}, 0.05, 0.5, 2.0, 1, 0.0),
    (SGLD, {}, 0.2, 1.0, 1.0, 1, 1.5),
    (SGLD, {}, 0.3, 0.0, 0.7, 1, 1.0),
    (SGLD, {}, 0.4, 1.0, 0.5, 50, 0.2),
    (SGHMC, {"momentum": 0.9}, 0.02, 1.0, 1.0, 1, 0.0),
    (SGHMC, {"momentum": 0.8}, 1.5, 0.1, 0.6, 1, 0.0),
    (SGHMC, {"momentum": 0.6}, 0.1, 0.0, 3.0, 1, 2.0),
    (SGHMC, {"momentum": 0.7}, 0.5, 0.25, 1.0, 1000, 0.3),
    (SGHMC, {"momentum": 0.0, "noise_estimate": 0.25}, 0.5, 1.0, 1.0, 1, 1.0),
    (SGHMC, {"momentum": 0.5, "noise_estimate": 0.375}, 0.3, 0.5, 2.0, 20, 0.25),
    (SGHMC, {"momentum": 0.8, "noise_estimate": 0.05}, 0.2, 2.0, 0.5, 100, 0.1),
    (EntropyMCMC, {"eta": 0.05, "momentum": 0.9}, 0.4, 0.5, 1.0, 50, 0.0),
    (EntropyMCMC, {"eta": 0.02, "update": "gibbs"}, 0.3, 0.4, 1.0, 100, 0.0),
    (EntropyMCMC, {"eta": 0.5, "anchor_decay": 0.4, "update": "gibbs"}, 0.3, 1.0, 1.0, 3, 0.0),
]
"""On the mean loss ½λθ²; a γ̂ is lr·N·σ²/(2T), so that what is not injected is the gradient noise's own share."""
IDS = ["-".join(map(str, (kind.kind, *own.values(), *rest))) for kind, own, *rest in ONE]


@pytest.mark.parametrize("row", ONE[:11], ids=IDS[:11])
def test_the_fixed_point_is_the_closed_form_in_one_dimension(row: Row) -> None:
    """(2aηT + η²s²)(1+m) / [a·η·Λ·(2(1+m) − ηΛ)], η = lr/N, Λ = Nλ, s = Nσ, a = 1 − m; the right γ̂ is as if σ were
    0."""
    _, own, lr, temperature, curvature, n, noise = row
    problem = Problem(hessians=np.array([[[curvature]]]), offsets=np.zeros((1, 1)), num_data=n, noise=(noise,))
    update = laws.velocity(1, lr=lr, temperature=temperature, num_data=n, **own)
    eta, lam, m = lr / n, n * curvature, own.get("momentum", 0.0)
    heat = 2 * (1 - m) * eta * temperature + (0 if "noise_estimate" in own else (eta * n * noise) ** 2)
    closed = heat * (1 + m) / ((1 - m) * eta * lam * (2 * (1 + m) - eta * lam))
    assert laws.stationary(update, problem).covariance[0, 0] == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize(("problem", "lr"), [(gaussian(), 0.04), (regression(), 0.004)], ids=["gaussian", "regression"])
@pytest.mark.parametrize("name", UNBIASED)
def test_the_law_becomes_the_target_as_lr_falls(name: str, problem: Problem, lr: float) -> None:
    """The error halves with lr: that of the step, and of minibatches, whose gradients are unbiased and affine.

    By Strang at a fixed friction a₀ per step the limit is (a₀/2)·coth(a₀/2) ≈ 1 + a₀²/12 times that: the target itself
    needs a₀ → 0 too.
    """
    method = LINEAR[name]
    target = joint_target(method, problem)
    far = []
    for step in (lr, lr / 2, lr / 4):
        law = laws.stationary(method.update(problem, lr=step, temperature=TEMPERATURE), problem).of(len(target.mean))
        far.append(np.abs(law.covariance - limit(method) * target.covariance).max())
        np.testing.assert_allclose(law.mean, target.mean, rtol=1e-6)
    assert far[0] < 0.1 * target.covariance.max()
    assert far[0] / far[1] == pytest.approx(2, rel=0.1) and far[1] / far[2] == pytest.approx(2, rel=0.05)


def joint_target(method: Method, problem: Problem) -> Law:
    """The posterior, or exp(−[U(θ) + ‖θ−θₐ‖²/(2η) + ½Nλₐ‖θₐ‖²]/T) of θ and θₐ; by T times the inverse Hessian."""
    if method.law is not laws.entropy:
        return problem.target(TEMPERATURE)
    pull, decay = 1 / (method.settings["eta"] * problem.num_data), method.settings.get("anchor_decay", 0.0)
    eye = np.eye(problem.dimension)
    hessian = np.block([[problem.hessian + pull * eye, -pull * eye], [-pull * eye, (pull + decay) * eye]])
    mean = np.linalg.solve(hessian, np.append(problem.offsets.mean(0), np.zeros(problem.dimension)))
    return Law(mean, TEMPERATURE * np.linalg.inv(problem.num_data * hessian))


def limit(method: Method) -> float:
    """Var θ over its target as lr → 0 at constant settings."""
    half = (1 - method.settings["momentum"]) / 2 if method.settings.get("integrator") == "strang" else 0.0
    return half / np.tanh(half) if half else 1.0


# --- the samplers against them ---


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", LINEAR)
def test_draws_have_the_exact_stationary_law(name: str, lanes: int) -> None:
    """Lanes started away from the mean, T ≠ 1, N ≠ 1, a prior: mean and covariance within 5 s.e. of the fixed point."""
    assert_law(*stationary_draws(LINEAR[name], gaussian(), lr=LR, temperature=TEMPERATURE, lanes=lanes))


@pytest.mark.parametrize(("number", "row"), list(enumerate(ONE)), ids=IDS)
def test_draws_in_one_dimension_have_the_exact_variance(number: int, row: Row) -> None:
    """In single and double precision; every third curvature is the sampler's own prior."""
    kind, own, lr, temperature, curvature, n, noise = row
    decay = curvature if number % 3 == 0 else 0.0
    hessians, offsets = np.full((1, 1, 1), curvature - decay), np.zeros((1, 1))
    problem = Problem(hessians=hessians, offsets=offsets, num_data=n, decay=decay, noise=(noise,) if noise else ())
    method = Method(kind=kind, law=laws.entropy if kind is EntropyMCMC else laws.velocity, settings=own)
    dtype = torch.float64 if number % 2 else torch.float32
    assert_law(*stationary_draws(method, problem, lr=lr, temperature=temperature, lanes=15_000, dtype=dtype))


# --- thermostats that move: the continuous law, and what the step makes of it ---


@pytest.mark.parametrize("case", witnessed(THERMOSTATS, "sgnht-noise", "sgnht-scalar", "atmc-relativistic-noise"))
def test_running_thermostats_have_the_target_up_to_their_step(case: str) -> None:
    """At h and h/2: the smaller step is off by at most 5 s.e. and what Richardson's rule makes of the two.

    Exact in continuous time for gradient noise of constant, diagonal covariance (by the scalar thermostat: isotropic).
    Strang with Gaussian momentum is of second order, so that (4Σ(h/2) − Σ(h))/3 is the target within 5 s.e.;
    relativistic momentum is of first order.
    """
    name, noise = THERMOSTATS[case]
    problem = gaussian(noise=noise)
    target = problem.target(TEMPERATURE)
    coarse, fine = (
        halved(RUNNING[name], problem, temperature=TEMPERATURE, halvings=k, lanes=RUNNING_LANES) for k in (0, 1)
    )
    order = 1 if "relativistic" in name else 2
    assert max(excess(coarse, fine, target, order=order)) < 5
    assert np.abs(fine.covariance - target.covariance).max() < 0.04 * target.covariance.max()
    if order == 2:
        extrapolated = (4 * fine.covariance - coarse.covariance) / 3 - target.covariance
        error = np.hypot(4 * fine.covariance_error, coarse.covariance_error) / 3
        assert np.abs(extrapolated / error).max() < 5


COORDINATES = 10_000


def variance(sampler: Sampler, *, burn_in: int, steps: int, noise: Any = None, every: int = 10) -> Any:
    """Var θ by time average and its standard error from independent coordinates, of each row of θ."""
    torch.set_num_threads(1)
    (theta,) = sampler.parameters()
    generator = torch.Generator().manual_seed(17)
    kept = []
    for k in range(burn_in + steps):
        theta.grad = theta.detach().clone()
        if noise is not None:
            theta.grad += noise * torch.empty_like(theta).normal_(generator=generator)
        sampler.step()
        if k >= burn_in and k % every == 0:
            kept.append(theta.detach() ** 2)
    mean = torch.stack(kept).mean(0, dtype=torch.float64)
    return mean.mean(-1).numpy(), mean.std(-1).numpy() / math.sqrt(mean.shape[-1])


def coordinates(sd: float = 1.0, count: int = COORDINATES) -> torch.Tensor:
    generator = torch.Generator().manual_seed(16)
    return (sd * torch.randn(count, dtype=torch.float64, generator=generator)).requires_grad_()


@pytest.mark.parametrize(
    ("lr", "noise", "published", "digit", "count"),
    [
        (0.01, None, 1.33, 0.005, 10_000),
        pytest.param(0.01, 3.0, 1.08, 0.01, 10_000, marks=pytest.mark.long),
        pytest.param(0.001, None, 1.76, 0.005, 4_000, marks=pytest.mark.long),
    ],
)
def test_psgld_without_freezing_has_the_variance_that_dropping_gamma_makes(
    lr: float, noise: float | None, published: float, digit: float, count: int
) -> None:
    """Target 1; within 5 s.e. and half a unit of the published last digit ("about 1.08": one unit).

    All start at |θ| = 1: V learns from the first gradient alone, and one near 0 makes a jump that takes long to decay.
    """
    theta = coordinates(count=count).detach().sign().requires_grad_()
    sampler = PSGLD([theta], lr=lr, num_data=1, seed=2)
    got, error = variance(sampler, noise=noise, burn_in=int(12 / lr), steps=3_000, every=25)
    assert abs(got - published) < 5 * error + digit
    assert got - 1 > 5 * error and error < 0.03


def test_psgld_that_follows_each_gradient_at_once_has_the_law_without_gamma() -> None:
    """α = 0, lr → 0: dθ = −Gθ dt + √(2G) dW with G = 1/(ε + |θ|) has the density ∝ exp(−θ²/2)/G of Itô's equation.

    Its variance is (ε√(π/2) + 2)/(ε√(π/2) + 1), 1.61 at ε = ½. Within 5 s.e. and what halving lr still changes.
    """
    eps = 0.5
    half_normal = eps * math.sqrt(math.pi / 2)
    exact, got = (half_normal + 2) / (half_normal + 1), []
    for lr in (0.04, 0.02):
        sampler = PSGLD([coordinates(math.sqrt(exact))], lr=lr, num_data=1, alpha=0.0, eps=eps, seed=4)
        got.append(variance(sampler, burn_in=int(10 / lr), steps=int(30 / lr)))
    (coarse, _), (fine, error) = got
    assert abs(fine - exact) < 5 * error + abs(coarse - fine)
    assert abs(fine - exact) < 0.05


@pytest.mark.parametrize(("noise", "thermostat"), spread([0.0, 0.6], ["coordinate", "scalar"]))
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


@pytest.mark.parametrize("kind", [SGNHT, pytest.param(ATMC, marks=pytest.mark.long)])
def test_thermostats_by_strang_are_too_wide_at_a_large_friction_per_step(kind: Callable[..., Sampler]) -> None:
    """E p² = T is kept, and Var θ = T/λ·(a₀/2)·coth(a₀/2) ≈ 1 + a₀²/12 as lr·λ → 0 at a fixed a₀.

    As lr → 0 the step is SGHMC's with m = e^{−a₀}, whose lr is lr·(1 − m)/a₀ and whose velocity has variance lr·T/N;
    its closed form gives T/λ·a₀(1 + m)/(2(1 − m)). At the default a₀ = .1 that is 1.0008.
    """
    lr, a0, temperature = 0.01, 0.8, 0.5
    theta = coordinates(math.sqrt(temperature))
    sampler = kind(
        [theta], lr=lr, momentum=1 - a0, thermostat_rate=0.01, num_data=1, temperature=temperature, seed=5
    )  # fmt: skip
    got, error = variance(sampler, burn_in=600, steps=3000)
    expected = temperature * a0 / 2 / math.tanh(a0 / 2)
    assert abs(got - expected) < 5 * error + lr * expected / 4
    assert got - temperature > 5 * error


H, D, MASS = 0.05, 1.0, 10.0
B = np.array([0.0, 0.225, 0.9, 2.5])
TABLE = {
    (SGNHT, "strang"): (1.001, 0.998, 0.998, 1.002),
    (ATMC, "strang"): (1.002, 0.998, 0.997, 0.997),
    (SGNHT, "euler"): (0.976, 0.967, 0.948, 0.908),
    (ATMC, "euler"): (0.978, 0.974, 0.970, 0.930),
}
"""Var θ under gradient noise of strength B, target 1, known to ± .01; without a thermostat it would be 1 + B/D."""


@pytest.mark.parametrize(
    ("kind", "integrator"),
    [case if case == (ATMC, "euler") else pytest.param(*case, marks=pytest.mark.long) for case in TABLE],
)
def test_variance_under_gradient_noise_is_the_tables(kind: Any, integrator: str) -> None:
    theta = torch.randn(len(B), 4_000, generator=torch.Generator().manual_seed(11)).requires_grad_()
    sampler = kind(
        [theta], lr=H**2, momentum=1 - H * D, thermostat_rate=H**2 / MASS, integrator=integrator, num_data=1, seed=0
    )
    sd = torch.tensor(np.sqrt(2 * B / H), dtype=torch.float32)[:, None]
    got, error = variance(sampler, noise=sd, burn_in=4_500, steps=2_000, every=4)
    assert (error < 0.005).all()
    assert (np.abs(got - TABLE[kind, integrator]) <= 0.01 + error).all(), f"{got} ± {error}"
