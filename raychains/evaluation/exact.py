"""What is known of a density without sampling it: its moments, and the masses of its modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Σ_k w_k·N(μ_k, σ_k²I): a mixture whose components a reader would call its modes."""

    names: tuple[str, ...]
    """For people."""
    centres: Array
    """μ, [modes, dim]."""
    scales: Array
    """σ, [modes]."""
    weights: Array
    """w, [modes], which sum to 1."""

    def moments(self) -> Gaussian:
        """Mean and covariance of the whole mixture."""
        mean = self.weights @ self.centres
        away = self.centres - mean
        within = float(self.weights @ self.scales**2)
        covariance = (away.T * self.weights) @ away + within * np.eye(len(mean))
        return Gaussian(mean=mean, covariance=covariance)


@dataclass(frozen=True, kw_only=True)
class Exact:
    """A target's moments, those of exp(−U), and what else is known of it."""

    moments: Gaussian
    gaussian: bool = False
    """Whether the target is a Gaussian, so that its moments are all of it."""
    modes: Modes | None = None
    source: str = "closed form"
    """Where the moments come from, for people."""

    def at(self, temperature: float = 1.0, precision: float = 0.0) -> Exact | None:
        """The same of exp(−[U(θ) + ½·precision·‖θ‖²]/T): of a Gaussian; None for others but at T = 1 and precision 0.

        Args:
            temperature: T.
            precision: of a further prior N(0, I/precision), which a sampler's weight decay λ is with N·λ.

        Raises:
            UserError: a temperature that is not positive, or a precision below 0.
        """
        require(temperature > 0, "temperature", temperature, "be positive")
        require(precision >= 0, "precision", precision, "be 0 or more")
        if temperature == 1 and precision == 0:
            return self
        if not self.gaussian:
            return None
        inverse = np.linalg.inv(self.moments.covariance)
        covariance = np.linalg.inv(inverse + precision * np.eye(len(inverse)))
        mean = covariance @ inverse @ self.moments.mean
        moved = Gaussian(mean=mean, covariance=temperature * (covariance + covariance.T) / 2)
        return Exact(moments=moved, gaussian=True, source=self.source)


def gaussian(mean: Any, covariance: Any) -> Exact:
    """What is known of N(mean, covariance)."""
    moments = Gaussian(mean=np.asarray(mean, dtype=np.float64), covariance=np.asarray(covariance, dtype=np.float64))
    return Exact(moments=moments, gaussian=True)


def mixture(modes: Modes) -> Exact:
    """What is known of a Gaussian mixture."""
    return Exact(moments=modes.moments(), modes=modes)


def quadratic(theta: Any, mean: Array, precision: Array) -> tuple[Array, Array]:
    """U = ½(θ−μ)ᵀΛ(θ−μ), [...], and its gradient, [..., dim], at ``theta`` [..., dim]."""
    away = np.asarray(theta, dtype=np.float64) - mean
    gradient = away @ precision
    return (gradient * away).sum(-1) / 2, gradient
