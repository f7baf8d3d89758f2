"""A Gaussian with full covariance: the target on which every moment, and the distance to it, is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.errors import require
from raychains.evaluation import exact
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.moments import GaussianMoments
from raychains.schedules.base import is_number, positive, positive_int
from raychains.tasks.base import Task
from raychains.tasks.mixture import Position

MOST_DIM = 256
OVERDISPERSION = 3.0
"""Chains start at draws that are this many times too far from the mean."""


class Gaussian(Task):
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

    low_dimensional = True
    supports_lanes = True
    num_data = 1
    fingerprint = "closed form"

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
        ok = is_number(gradient_noise) and gradient_noise >= 0
        require(ok, "gradient_noise", gradient_noise, "be a finite number of at least 0")
        self.gradient_noise = float(gradient_noise)
        self._mean = torch.from_numpy(self.mean)
        self._precision = torch.from_numpy(np.linalg.inv(self.covariance))

    def settings(self) -> dict[str, Any]:
        """The covariance itself: every way of giving one target gives one spec."""
        settings = {"covariance": self.covariance.tolist(), "mean": self.mean.tolist()}
        return settings | ({"gradient_noise": self.gradient_noise} if self.gradient_noise else {})

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.empty(lanes, self.dim, dtype=torch.float64).normal_(generator=generator)
        root = torch.from_numpy(np.linalg.cholesky(self.covariance))
        return Position(torch.from_numpy(self.mean) + OVERDISPERSION * noise @ root.T)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return (None,)

    def gradient(self, theta: Tensor) -> Tensor:
        """∇U at ``theta`` of shape [lanes, dim], same shape and dtype."""
        return (theta - self._mean.to(theta)) @ self._precision.to(theta)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        assert isinstance(model, Position)
        gradient = self.gradient(model.theta.detach())
        if self.gradient_noise:
            gradient.add_(torch.empty_like(gradient).normal_(generator=generator), alpha=self.gradient_noise)
        model.theta.grad = gradient
        return None

    def to(self, device: torch.device) -> None:
        self._mean, self._precision = self._mean.to(device), self._precision.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": GaussianMoments(mean=self.mean, covariance=self.covariance)}

    def potential(self, theta: Array) -> tuple[Array, Array]:
        return exact.quadratic(theta, self.mean, np.linalg.inv(self.covariance))

    def reference(self) -> exact.Exact:
        return exact.gaussian(self.mean, self.covariance)


def equicorrelated(dim: int, correlation: float, scale: float) -> Array:
    """scale²·[(1−ρ)·I + ρ·11ᵀ], [dim, dim]."""
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
    """The covariance as a float64 array [dim, dim].

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
