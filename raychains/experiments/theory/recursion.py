"""The exact law of SGLD on a Gaussian at every step, for any step sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian


def laws(
    start: Gaussian, precision: Array, lrs: Iterable[float], *, gradient_covariance: Array | float = 0.0
) -> Iterator[Gaussian]:
    """The law of θ after each step of θ ← θ − α(Λθ + ζ) + √(2α)·ξ, at T = 1 and N = 1.

    All terms are Gaussian and independent, so the law is N(m, C) with

        m ← (I − αΛ)m,   C ← (I − αΛ)C(I − αΛ) + 2αI + α²·Cov(ζ).

    The target is N(0, Λ⁻¹). Entropy-MCMC is the same on the pair (θ, θₐ), see `joint_precision`.

    Args:
        start: law of θ₀; a covariance of 0 is a point.
        precision: Λ, [dim, dim].
        lrs: α of each step.
        gradient_covariance: Cov(ζ) of the gradient's noise, [dim, dim], or one variance for every coordinate.
    """
    dim = len(precision)
    eye = np.eye(dim)
    noise = np.asarray(gradient_covariance, dtype=np.float64)
    noise = noise * eye if noise.ndim == 0 else noise
    mean, covariance = start.mean.astype(np.float64), start.covariance.astype(np.float64)
    for lr in lrs:
        step = eye - lr * precision
        mean = step @ mean
        covariance = step @ covariance @ step.T + 2 * lr * eye + lr * lr * noise
        yield Gaussian(mean=mean, covariance=(covariance + covariance.T) / 2)


def joint_precision(precision: Array, eta: float) -> Array:
    """Λ of Entropy-MCMC's pair on ½θᵀΛθ + ‖θ−θₐ‖²/(2η): [[Λ + I/η, −I/η], [−I/η, I/η]], [2·dim, 2·dim]."""
    pull = np.eye(len(precision)) / eta
    return np.block([[precision + pull, -pull], [-pull, pull]])


def target(precision: Array) -> Gaussian:
    """N(0, Λ⁻¹)."""
    return Gaussian(mean=np.zeros(len(precision)), covariance=np.linalg.inv(precision))


def divergence(one: Gaussian, precision: Array) -> float:
    """D(one ‖ N(0, Λ⁻¹)), the relative entropy in nats; infinite for a degenerate ``one``."""
    sign, logdet = np.linalg.slogdet(one.covariance)
    if sign <= 0:
        return float("inf")
    trace = float(np.trace(precision @ one.covariance) + one.mean @ precision @ one.mean)
    return (trace - len(precision) - float(logdet) - float(np.linalg.slogdet(precision)[1])) / 2
