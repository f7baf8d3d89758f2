"""Temperatures that a sampler really has, measured on its draws: kinetic (momentum) and configurational (position)."""

from __future__ import annotations

from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.diagnostics import Estimate, mean


def kinetic(momentum: Any) -> Estimate:
    """⟨‖p‖²/d⟩ of unit-mass momenta: T for an exact sampler.

    Args:
        momentum: p of each draw, [chains, draws, dim], as the thermostats keep it. For hyperbolic kinetic energy pass
            √(p·∇K), whose square has the same mean.

    Raises:
        UserError: another shape.
    """
    p = _draws("momentum", momentum)
    return mean((p**2).mean(-1))


def kinetic_of_velocity(
    velocity: Any, *, lr: float, num_data: float, momentum: float, curvature: float = 0.0
) -> Estimate:
    """Kinetic temperature from the velocity of SGHMC (v ← m·v − lr·g + noise; θ ← θ + v), discretisation allowed for.

    N‖v‖²(2(1+m) − lr·λ)/(4·lr·d), whose mean is T exactly on a quadratic of curvature λ at any stable lr; the naive
    N‖v‖²/(lr·d) tends to 2T/(1+m).

    Args:
        velocity: v of each draw, [chains, draws, dim], at constant lr.
        lr: step on the mean-loss scale.
        num_data: N.
        momentum: m = 1 − friction.
        curvature: λ, eigenvalue of the *mean* loss's Hessian; 0 neglects lr·λ beside 2(1+m).

    Raises:
        UserError: another shape, or lr, N, m outside their ranges.
    """
    require(lr > 0, "lr", lr, "be positive")
    require(num_data > 0, "num_data", num_data, "be positive")
    require(0 <= momentum < 1, "momentum", momentum, "lie in [0, 1)")
    v = _draws("velocity", velocity)
    scale = num_data * (2 * (1 + momentum) - lr * curvature) / (4 * lr)
    return mean(scale * (v**2).mean(-1))


def configurational(position: Any, gradient: Any, centre: Any = None) -> Estimate:
    """⟨(θ − c)·∇U(θ)⟩/d: T when draws follow exp(−U/T), whatever U is, as long as its tails vanish.

    For networks ∇U = N·(gradient of the mean loss + λθ) over the whole training set, or over minibatches that are
    independent of the draw, which adds noise but no bias. Any fixed c gives the same mean; one near the draws' own
    (e.g. an earlier average) gives the smaller error where the posterior sits far from 0.

    Args:
        position: θ, [chains, draws, dim].
        gradient: ∇U at each θ, not divided by N or T, of the same shape.
        centre: c, [dim]; default 0.

    Raises:
        UserError: shapes that differ.

    Source: Wenzel et al. 2020; Leimkuhler & Matthews 2015.
    """
    theta, g = _draws("position", position), _draws("gradient", gradient)
    require(theta.shape == g.shape, "gradient", g.shape, f"have the position's shape {theta.shape}")
    away = theta if centre is None else theta - np.asarray(centre, dtype=np.float64)
    return mean((away * g).mean(-1))


def _draws(field: str, values: Any) -> Array:
    out = np.asarray(values, dtype=np.float64)
    require(out.ndim == 3 and out.size > 0, field, out.shape, "have the shape [chains, draws, dim]")
    return out
