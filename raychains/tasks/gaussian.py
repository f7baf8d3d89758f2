"""A Gaussian with full covariance: the target on which every moment, and the distance to it, is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import at_least_0, is_number, positive, positive_int
from raychains.evaluation import exact
from raychains.evaluation.evaluation import Array
from raychains.tasks.base import LogDensity
from raychains.tasks.defaults import density, density_rates

MOST_DIM = 256
OVERDISPERSION = 3.0
"""Chains start at draws that are this many times too far from the mean."""


class Gaussian(LogDensity):
    """U(θ) = ½(θ−μ)ᵀΣ⁻¹(θ−μ), N = 1. A lane is a repeat; lanes start at independent draws of N(μ, 3²·Σ).

    Args:
        dim: number of coordinates.
        correlation: ρ between every two coordinates, in (−1/(dim−1), 1): Σ = scale²·[(1−ρ)·I + ρ·11ᵀ].
        scale: standard deviation of every coordinate.
        covariance: Σ as nested lists, instead of ``dim``, ``correlation`` and ``scale`` (which must then be left out).
        mean: μ as a list, or one number for every coordinate.
        gradient_noise: standard deviation of Gaussian noise added to every coordinate of the gradient.

    Raises:
        UserError: a setting out of range, or a covariance that is not symmetric and positive definite.
    """

    name = "gaussian"
    defaults = density(1.0, lr=density_rates(0.05, decreasing=0.2, gradient=1), steps=20_000)  # ours

    def __init__(
        self,
        dim: int | None = None,
        correlation: float | None = None,
        scale: float | None = None,
        covariance: Sequence[Sequence[float]] | None = None,
        mean: float | Sequence[float] = 0.0,
        gradient_noise: float = 0.0,
    ) -> None:
        if covariance is None:
            self.covariance = equicorrelated(
                2 if dim is None else dim, 0.9 if correlation is None else correlation, 1.0 if scale is None else scale
            )
        else:
            for field, value in (("dim", dim), ("correlation", correlation), ("scale", scale)):
                require(value is None, field, value, "be left out: the covariance is given")
            self.covariance = checked_covariance(covariance)
        self.dim = len(self.covariance)
        self.mean = _checked_mean(mean, self.dim)
        at_least_0("gradient_noise", gradient_noise)
        self.gradient_noise = float(gradient_noise)
        self._mean = torch.from_numpy(self.mean)
        self._precision = torch.from_numpy(np.linalg.inv(self.covariance))

    def settings(self) -> dict[str, Any]:
        """Return the covariance itself: every way of giving one target gives one spec."""
        noise = self._changed({"gradient_noise": self.gradient_noise})
        return {"covariance": self.covariance.tolist(), "mean": self.mean.tolist(), **noise}

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        root = torch.from_numpy(np.linalg.cholesky(self.covariance))
        return torch.from_numpy(self.mean) + OVERDISPERSION * super().starts(lanes, generator) @ root.T

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇U at ``theta`` of shape [lanes, dim], same shape and dtype."""
        return (theta - self._mean.to(theta)) @ self._precision.to(theta)

    def to(self, device: torch.device) -> None:
        self._mean, self._precision = self._mean.to(device), self._precision.to(device)

    def potential(self, theta: Array) -> tuple[Array, Array]:
        return exact.quadratic(theta, self.mean, np.linalg.inv(self.covariance))

    def reference(self) -> exact.Exact:
        return exact.gaussian(self.mean, self.covariance)


def equicorrelated(dim: int, correlation: float, scale: float) -> Array:
    """Return scale²·[(1−ρ)·I + ρ·11ᵀ], [dim, dim]."""
    positive_int("dim", dim)
    require(dim <= MOST_DIM, "dim", dim, f"be at most {MOST_DIM}: every chain's spec holds the covariance")
    positive("scale", scale)
    low = -1 / (dim - 1) if dim > 1 else -math.inf
    ok = is_number(correlation) and low < correlation < 1
    require(ok, "correlation", correlation, f"lie in ({low:.4g}, 1): the covariance is positive definite there")
    matrix = np.full((dim, dim), float(correlation))
    np.fill_diagonal(matrix, 1.0)
    return float(scale) ** 2 * matrix


def checked_covariance(covariance: object) -> Array:
    """Return the covariance as a float64 array [dim, dim].

    Raises:
        UserError: not square, not finite, not symmetric or not positive definite.
    """
    allowed = "be a symmetric positive definite matrix of finite numbers, as nested lists"
    try:
        matrix = np.array(covariance, dtype=np.float64)
        ok = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 1 and bool(np.isfinite(matrix).all())
        ok = ok and bool((matrix == matrix.T).all())
        if ok:
            np.linalg.cholesky(matrix)
    except (TypeError, ValueError, np.linalg.LinAlgError):
        ok = False
    require(ok, "covariance", covariance, allowed)
    return matrix


def _checked_mean(mean: object, dim: int) -> Array:
    values = [mean] * dim if is_number(mean) else mean
    ok = isinstance(values, Sequence) and len(values) == dim and all(is_number(v) for v in values)
    require(ok, "mean", mean, f"be a finite number or a list of {dim} of them")
    return np.array(values, dtype=np.float64)
