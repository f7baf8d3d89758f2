"""Moments and modes of densities that are known without sampling, and the draws' shares of the modes against them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from raychains.evaluation.evaluation import Array, DrawSums, Metric, draws_of
from raychains.evaluation.moments import Gaussian


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
        """Return mean and covariance of the whole mixture."""
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
    """True if the target is a Gaussian, which its moments determine."""
    modes: Modes | None = None
    source: str = "closed form"
    """The source of the moments, as text."""

    def at(self, temperature: float, precision: float) -> Exact | None:
        """Return the same of exp(−[U(θ) + ½·precision·‖θ‖²]/T): of a Gaussian; None for others but at T = 1 and
        precision 0.

        The precision is that of a further prior N(0, I/precision), which a sampler's weight decay λ is with N·λ.
        """
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
    """Return what is known of N(mean, covariance)."""
    moments = Gaussian(mean=np.asarray(mean, dtype=np.float64), covariance=np.asarray(covariance, dtype=np.float64))
    return Exact(moments=moments, gaussian=True)


def mixture(modes: Modes) -> Exact:
    """Return what is known of a Gaussian mixture."""
    return Exact(moments=modes.moments(), modes=modes)


def quadratic(theta: Any, mean: Array, precision: Array) -> tuple[Array, Array]:
    """Return U = ½(θ−μ)ᵀΛ(θ−μ), [...], and its gradient, [..., dim], at ``theta`` [..., dim]."""
    away = np.asarray(theta, dtype=np.float64) - mean
    gradient = away @ precision
    return (gradient * away).sum(-1) / 2, gradient


class ModeCoverage(DrawSums):
    """The number of modes that hold more than ``more_than`` draws within ``radius`` (cSG-MCMC A.1).

    The block of a sample (draws [draws, lanes, dim]) is its counts [lanes, modes].
    """

    column = "counts"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="modes", label="Modes covered", better="higher", digits=2),)

    def __init__(self, *, centres: Sequence[tuple[float, ...]], radius: float, more_than: int) -> None:
        self._centres, self._radius, self._more_than = np.asarray(centres), radius, more_than

    @property
    def fingerprint(self) -> str:
        centres = hashlib.sha256(np.ascontiguousarray(self._centres, dtype=np.float64).tobytes()).hexdigest()
        return f"modes/{centres}/{self._radius}"

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return counts [lanes, modes], int64."""
        draws = draws_of(tensors, self._centres.shape[1])
        squared = sum((draws[..., None, d] - self._centres[:, d]) ** 2 for d in range(self._centres.shape[1]))
        return np.count_nonzero(squared <= self._radius**2, axis=0)

    def compare(self, sums: Array) -> dict[str, Array]:
        return {"modes": np.count_nonzero(sums > self._more_than, axis=-1).astype(float)}


class ModeShare(DrawSums):
    """The share of the draws in one mode of Σ_k w_k·N(μ_k, σ_k²I).

    A draw counts for mode k with its responsibility r_k(θ) = w_k·N(θ; μ_k, σ_k²I)/Σ_j w_j·N(θ; μ_j, σ_j²I), not as a
    whole for the mode that has most of it: the expectation of r_k under the target is w_k exactly, also where modes
    overlap. Where they do not, both are the same.

    The block of a sample (draws [draws, lanes, dim]) is [lanes, 1 + modes]: the number of draws and the sums of r.
    ``flat_share`` comes with the metric: more of it is not better, the target's share is right.

    Args:
        centres: μ, [modes, dim].
        scales: σ, [modes].
        weights: w, [modes], which sum to 1.
        mode: position of the mode.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="flat_share_error", label="Error of the flat mode's share", better="lower"),
    )

    def __init__(self, *, centres: Any, scales: Any, weights: Any, mode: int) -> None:
        self._centres, self._scales, self._weights = (
            np.asarray(v, dtype=np.float64) for v in (centres, scales, weights)
        )
        self._mode = mode

    @property
    def exact(self) -> float:
        """The mode's mass under the target."""
        return float(self._weights[self._mode])

    @property
    def fingerprint(self) -> str:
        h = hashlib.sha256()
        for values in (self._centres, self._scales, self._weights):
            h.update(np.ascontiguousarray(values).tobytes())
        return f"mode share/{h.hexdigest()}"

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return sums [lanes, 1 + modes], float64."""
        draws = np.asarray(draws_of(tensors, self._centres.shape[1]), dtype=np.float64)
        held = self.responsibilities(draws).sum(0)
        return np.concatenate([np.full((draws.shape[1], 1), float(len(draws))), held], axis=1)

    def responsibilities(self, theta: Array) -> Array:
        """Return r_k, [..., modes], of points [..., dim]."""
        dim = self._centres.shape[1]
        squared = ((theta[..., None, :] - self._centres) ** 2).sum(-1)
        logs = np.log(self._weights) - dim * np.log(self._scales) - squared / (2 * self._scales**2)
        shares = np.exp(logs - logs.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True)

    def compare(self, sums: Array) -> dict[str, Array]:
        share = sums[..., 1 + self._mode] / sums[..., 0]
        return {"flat_share_error": np.abs(share - self.exact), "flat_share": share}
