"""Exact stationary laws of the velocity samplers on a quadratic potential, by two independent routes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_discrete_lyapunov


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A sampler on the mean loss ½·lam·θ² with N data; ``noise`` is the sd of its gradient's error."""

    momentum: float
    lr: float
    lam: float
    temperature: float
    noise: float = 0.0
    num_data: int = 1

    @property
    def target_variance(self) -> float:
        """Variance of exp(−U/T), U = N·lam·θ²/2: what every sampler reaches as lr → 0."""
        return self.temperature / (self.num_data * self.lam)


def closed_form_variance(s: Setting) -> float:
    """(2aηT + η²s²)(1+m) / [a·η·Λ·(2(1+m) − ηΛ)] with η = lr/N, Λ = N·lam, s = N·noise, a = 1 − m."""
    eta, lam, sd = s.lr / s.num_data, s.num_data * s.lam, s.num_data * s.noise
    m, a = s.momentum, 1 - s.momentum
    return (2 * a * eta * s.temperature + (eta * sd) ** 2) * (1 + m) / (a * eta * lam * (2 * (1 + m) - eta * lam))


def recursion(s: Setting) -> tuple[np.ndarray, np.ndarray]:
    """A and Q of (θ, v)ₖ₊₁ = A(θ, v)ₖ + w, w ~ N(0, Q), straight from the update rule on the mean-loss scale.

    v ← m·v − lr·(lam·θ + ε) + injected; θ ← θ + v, so that both components receive the same noise.
    """
    a = np.array([[1 - s.lr * s.lam, s.momentum], [-s.lr * s.lam, s.momentum]])
    injected = 2 * (1 - s.momentum) * s.lr * s.temperature / s.num_data
    return a, (injected + (s.lr * s.noise) ** 2) * np.ones((2, 2))


def stationary_covariance(s: Setting) -> np.ndarray:
    """Covariance of (θ, v) that solves Σ = AΣAᵀ + Q."""
    return solve_discrete_lyapunov(*recursion(s))


def steps_until_stationary(s: Setting, tolerance: float) -> int:
    """Steps from (θ, v) = 0 after which Var θ lacks less than the share ``tolerance`` of its limit.

    The difference after k steps is (Aᵏ Σ Aᵏᵀ)₀₀, of order ρ²ᵏ with ρ the spectral radius of A.
    """
    radius = float(np.abs(np.linalg.eigvals(recursion(s)[0])).max())
    steps = math.ceil(math.log(tolerance) / (2 * math.log(radius)))
    while leftover(s, steps) >= tolerance:  # a factor in front of ρ²ᵏ
        steps += max(1, steps // 10)
    return steps


def leftover(s: Setting, steps: int) -> float:
    """Share of the stationary Var θ that is still missing after ``steps`` from 0."""
    a, _ = recursion(s)
    power, sigma = np.linalg.matrix_power(a, steps), stationary_covariance(s)
    return float((power @ sigma @ power.T)[0, 0] / sigma[0, 0])
