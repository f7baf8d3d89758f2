"""How far draws are from an exact reference: moments, and W₂ between fitted Gaussians. (Without a reference: `stein`.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.moments import gaussian_w2


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The first two moments of draws or of a target: N(mean, covariance)."""

    mean: Array
    """[dim]."""
    covariance: Array
    """[dim, dim], symmetric, positive semi-definite."""

    @property
    def sd(self) -> Array:
        """[dim]."""
        return np.sqrt(np.diagonal(self.covariance))


@dataclass(frozen=True, kw_only=True)
class MomentDistances:
    """Draws against a reference; units are the reference's where said."""

    mean_error: float
    """Largest |difference of the means| over coordinates, in the reference's standard deviations."""
    sd_ratio: float
    """Median over coordinates of the standard deviation over the reference's; 1 is right."""
    covariance_error: float
    """Frobenius norm of the covariances' difference over that of the reference's."""
    w2: float
    """2-Wasserstein distance between the two *fitted Gaussians*, in the unit of θ: 0 also for draws whose law differs
    from the reference in anything but mean and covariance."""


def fit(draws: Any) -> Gaussian:
    """Mean and (unbiased) covariance of ``draws`` [draws, dim].

    Raises:
        UserError: another shape, fewer than 2 draws, or values that are not finite.
    """
    theta = np.asarray(draws, dtype=np.float64)
    good = theta.ndim == 2 and len(theta) > 1 and theta.shape[1] > 0
    require(good, "draws", theta.shape, "have the shape [draws, dim] with at least 2 draws")
    require(bool(np.isfinite(theta).all()), "draws", "nan or infinity", "be finite everywhere")
    return Gaussian(mean=theta.mean(0), covariance=np.atleast_2d(np.cov(theta, rowvar=False)))


def w2(one: Gaussian, other: Gaussian) -> float:
    """2-Wasserstein distance between two Gaussians in closed form, in the unit of θ; either may be degenerate.

    √(‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₂^½ Σ₁ Σ₂^½)^½)); of draws, the distance between the Gaussians *fitted* to them,
    which for draws of a target that is not Gaussian is not their Wasserstein distance but a lower bound on it (Gelbrich).

    Raises:
        UserError: dimensions that differ, or a covariance with a negative eigenvalue.
    """
    require(one.mean.shape == other.mean.shape, "dimensions", one.mean.shape, f"agree with {other.mean.shape}")
    root = _root(other.covariance)
    _root(one.covariance)  # refused as well when it is no covariance
    return float(gaussian_w2(one.mean - other.mean, one.covariance, other.covariance, root))


def moment_distances(draws: Gaussian, reference: Gaussian) -> MomentDistances:
    """``draws`` (see `fit`) against the exact moments, or those of a long exact chain.

    Raises:
        UserError: dimensions that differ, or a coordinate of the reference that does not vary.
    """
    sd = reference.sd
    distance = w2(draws, reference)
    require(bool((sd > 0).all()), "reference", f"sd {sd.min()}", "vary in every coordinate")
    off = np.linalg.norm(draws.covariance - reference.covariance)
    return MomentDistances(
        mean_error=float((np.abs(draws.mean - reference.mean) / sd).max()),
        sd_ratio=float(np.median(draws.sd / sd)),
        covariance_error=float(off / np.linalg.norm(reference.covariance)),
        w2=distance,
    )


def _root(covariance: Array) -> Array:
    """L with LLᵀ = ``covariance``, from its eigenvectors: unlike Cholesky's it exists for a singular one."""
    eigenvalues, axes = np.linalg.eigh(covariance)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    require(smallest >= -1e-10 * max(largest, 0.0), "covariance", f"eigenvalue {smallest}", "have none below 0")
    return axes * np.sqrt(np.maximum(eigenvalues, 0))
