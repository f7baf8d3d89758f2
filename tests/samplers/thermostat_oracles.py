"""What thermostats must do: the equations in plain float64, exact linear laws, and a simulation with standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import solve_discrete_lyapunov
from scipy.optimize import brentq
from torch import Tensor

from raychains.samplers import Sampler
from raychains.samplers.noise import Noise

Gradient = Callable[[int, list[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One variant, with the settings of the sampler's constructor."""

    adaptive: bool
    """Whether β(ζ) = max(0, D − ζ), ATMC, rather than D, SGNHT."""
    integrator: str = "strang"
    momentum: float = 0.9
    thermostat_rate: float = 1e-3
    scalar: bool = False
    speed_limit: float | None = None
    num_data: int = 1
    weight_decay: float = 0.0
    lanes: int = 1


def transcribed(
    method: Method, start: Sequence[np.ndarray], gradient: Gradient, settings: Sequence[tuple[float, float]], seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """θ and p after one step for each (lr, T), written in the dynamics' own h, D, ζ, β, γ and ∇Ũ = N·g."""
    noise = Noise(seed)
    theta = [x.astype(np.float64) for x in start]
    p, z = ([np.zeros_like(x) for x in theta] for _ in range(2))
    c = method.speed_limit
    for k, (lr, temperature) in enumerate(settings):
        h = math.sqrt(lr / method.num_data)
        d = (1 - method.momentum) / h
        slopes = []
        for i, g in enumerate(gradient(k, theta)):
            force = method.num_data * (g + method.weight_decay * theta[i])
            zeta = z[i] / h
            beta = np.maximum(0, d - zeta) if method.adaptive else np.full_like(zeta, d)
            mass = np.ones_like(p[i]) if c is None else np.sqrt(p[i] ** 2 / c**2 + 1)
            gamma = (zeta + beta) / mass
            xi = noise.like(torch.as_tensor(p[i])).numpy() if temperature else 0.0
            if method.integrator == "strang":
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
            if method.scalar:
                rows = np.concatenate([e.reshape(method.lanes, -1) for e in excess], axis=1).mean(axis=1)
                excess = [rows.repeat(e.size // method.lanes).reshape(e.shape) for e in excess]
            z = [a + method.thermostat_rate * e for a, e in zip(z, excess, strict=True)]
    return theta, p


def linear_law(
    precision: np.ndarray,
    *,
    method: Method,
    lr: float,
    temperature: float,
    z: float = 0.0,
    noise: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """A and Q of (θ, p) ← A(θ, p) + w, w ~ N(0, Q), on the mean loss ½θᵀ·precision·θ while every thermostat stays at z.

    ``noise`` is the sd of the mean-loss gradient's error.
    """
    n = method.num_data
    h, a0 = math.sqrt(lr / n), 1 - method.momentum
    share = max(0.0, a0 - z) if method.adaptive else a0
    f = z + share
    if method.integrator == "strang":
        decay, response = math.exp(-f), (1 - math.exp(-f)) / f
        variance = temperature * share * (1 - math.exp(-2 * f)) / f
    else:
        decay, response, variance = 1 - f, 1.0, 2 * share * temperature
    eye, push = np.eye(len(precision)), response * h * n * precision
    a = np.block([[eye - h * push, h * decay * eye], [-push, decay * eye]])
    variance += (response * h * n * noise) ** 2
    return a, variance * np.kron(np.array([[h * h, h], [h, 1]]), eye)


def stationary(a: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Covariance Σ = AΣAᵀ + Q."""
    return solve_discrete_lyapunov(a, q)


def steps_until_stationary(a: np.ndarray, tolerance: float) -> int:
    """Steps after which ‖Aᵏ‖² < ``tolerance``."""
    k = 1
    while np.linalg.norm(np.linalg.matrix_power(a, k), 2) ** 2 >= tolerance:
        k += max(1, k // 10)
    return k


def euler_friction(w_over_t: float) -> float:
    """ā = 1 − √(1 − w/T): the friction at which Euler's p² is T on average, as lr·λ → 0."""
    return 1 - math.sqrt(1 - w_over_t)


def euler_friction_at(lam: float, *, method: Method, lr: float, temperature: float, noise: float) -> float:
    """The same at a finite lr: z + a₀ at which the linear law gives Var p = T."""
    precision = np.array([[lam]])

    def excess(z: float) -> float:
        law = linear_law(precision, method=method, lr=lr, temperature=temperature, z=z, noise=noise)
        return float(stationary(*law)[1, 1]) - temperature

    return 1 - method.momentum + float(brentq(excess, -0.05, 0.6, xtol=1e-12))


@dataclass(frozen=True)
class Measured:
    """Variance of θ (its mean known to be 0) by row, and its standard error."""

    variance: np.ndarray
    error: np.ndarray


def measure(
    make: Callable[[Tensor], Sampler], sd: Sequence[float], *, coordinates: int, burn_in: int, steps: int
) -> Measured:
    """Var θ on U = θ²/2 (N = 1) for each gradient-noise sd: a time average, its error from independent coordinates."""
    generator = torch.Generator().manual_seed(11)
    theta = torch.empty(len(sd), coordinates).normal_(generator=generator).requires_grad_()
    sampler, total = make(theta), torch.zeros(len(sd), coordinates, dtype=torch.float64)
    noise, scale = torch.empty(len(sd), coordinates), torch.tensor(sd)[:, None]
    for k in range(burn_in + steps):
        theta.grad = theta.detach() + scale * noise.normal_(generator=generator)
        sampler.step()
        if k >= burn_in:
            total += theta.detach() ** 2
    mean = total / steps
    return Measured(mean.mean(dim=1).numpy(), (mean.std(dim=1) / math.sqrt(coordinates)).numpy())
