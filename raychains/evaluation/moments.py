"""Means and covariances of draws against those of a target: exact ones, or those of an exact sampler; Gaussian W₂."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from raychains.core.errors import require
from raychains.evaluation.evaluation import Array, DrawSums, Metric, Reduced, draws_of, finite, gather

MOST_NAMED = 20
"""Coordinates whose mean and standard deviation are metrics."""


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
class Reference(Gaussian):
    """Moments of a density and how well they are known."""

    ess: Array
    """Bulk effective sample size of each coordinate, [dim]."""
    r_hat: Array
    """Split R-hat of each coordinate, [dim]."""
    chains: int
    draws: int
    """Per chain."""


def fit(draws: Any) -> Gaussian:
    """Return mean and (unbiased) covariance of ``draws`` [draws, dim], 2 at least; raise `UserError` unless all are
    finite."""
    theta = finite(draws, "draws")
    return Gaussian(mean=theta.mean(0), covariance=np.atleast_2d(np.cov(theta, rowvar=False)))


def w2(one: Gaussian, other: Gaussian) -> float:
    """Return the 2-Wasserstein distance between two Gaussians in closed form, in the unit of θ; either may be
    degenerate.

    √(‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₂^½ Σ₁ Σ₂^½)^½)); of draws, the distance between the Gaussians *fitted* to them,
    which for draws of a target that is not Gaussian is not their Wasserstein distance but a lower bound on it
    (Gelbrich).

    Raises:
        UserError: dimensions that differ, or a covariance with a negative eigenvalue.
    """
    require(one.mean.shape == other.mean.shape, "dimensions", one.mean.shape, f"agree with {other.mean.shape}")
    root = _root(other.covariance)
    _root(one.covariance)  # refused as well when it is no covariance
    return float(gaussian_w2(one.mean - other.mean, one.covariance, other.covariance, root))


def moment_distances(draws: Gaussian, reference: Gaussian) -> dict[str, float]:
    """Compare ``draws`` (see `fit`) with the exact moments, or those of a long exact chain.

    Returns:
        mean_error: largest |difference of the means| over coordinates, in the reference's standard deviations.
        sd_ratio, sd_ratio_smallest, sd_ratio_largest: standard deviations over the reference's: their median over
            coordinates, and both ends; 1 is right.
        covariance_error: Frobenius norm of the covariances' difference over that of the reference's.
        gaussian_w2: `w2` of the two *fitted Gaussians*, in the unit of θ: 0 also for draws whose law differs from the
            reference in anything but mean and covariance.

    Raises:
        UserError: dimensions that differ, or a coordinate of the reference that does not vary.
    """
    sd = reference.sd
    distance = w2(draws, reference)
    require(bool((sd > 0).all()), "reference", f"sd {sd.min()}", "vary in every coordinate")
    ratios, off = draws.sd / sd, np.linalg.norm(draws.covariance - reference.covariance)
    return {
        "mean_error": float((np.abs(draws.mean - reference.mean) / sd).max()),
        "sd_ratio": float(np.median(ratios)),
        "sd_ratio_smallest": float(ratios.min()),
        "sd_ratio_largest": float(ratios.max()),
        "covariance_error": float(off / np.linalg.norm(reference.covariance)),
        "gaussian_w2": distance,
    }


def _root(covariance: Array) -> Array:
    """Return L with LLᵀ = ``covariance``, from its eigenvectors: unlike Cholesky's it exists for a singular one."""
    eigenvalues, axes = np.linalg.eigh(covariance)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    require(smallest >= -1e-10 * max(largest, 0.0), "covariance", f"eigenvalue {smallest}", "have none below 0")
    return axes * np.sqrt(np.maximum(eigenvalues, 0))


def gaussian_w2(away: Array, covariance: Array, target: Array, root: Array) -> Array:
    """Return the 2-Wasserstein distance between N(μ + away, covariance) and N(μ, target), in the unit of θ.

    W₂² = ‖away‖² + tr(C + Σ − 2(Σ^½ C Σ^½)^½); with Σ = LLᵀ the last trace is the sum of the square roots of the
    eigenvalues of LᵀCL, which has those of Σ^½CΣ^½.

    Args:
        away: difference of the means, [..., dim].
        covariance: C, [..., dim, dim].
        target: Σ, [dim, dim].
        root: its Cholesky factor L.

    Source: Dowson & Landau 1982; Olkin & Pukelsheim 1982.
    """
    eigenvalues = np.linalg.eigvalsh(root.T @ covariance @ root)
    cross = np.sqrt(np.maximum(eigenvalues, 0)).sum(-1)
    squared = (away**2).sum(-1) + np.trace(covariance, axis1=-2, axis2=-1) + np.trace(target) - 2 * cross
    return np.sqrt(np.maximum(squared, 0))


class GaussianMoments(DrawSums):
    """The moments of a chain's draws against those of N(μ, Σ).

    The block of a sample (draws [draws, lanes, dim]) is [lanes, 1 + dim + dim²]: the number of draws and the sums of
    z = θ − μ and of zzᵀ. With the metrics comes ``variance_ratio``: the median over coordinates of the draws' variance
    over the target's; 1 is right.

    Args:
        mean: μ, [dim].
        covariance: Σ, [dim, dim], symmetric and positive definite.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="w2", label="Gaussian W₂ to the target", better="lower"),
        Metric(name="mean_error", label="Largest error of the mean (target sd)", better="lower"),
        Metric(name="variance_error", label="Largest relative error of the variance", better="lower"),
    )

    def __init__(self, *, mean: Any, covariance: Any) -> None:
        self._mean = np.asarray(mean, dtype=np.float64)
        self._covariance = np.asarray(covariance, dtype=np.float64)
        self._root = np.linalg.cholesky(self._covariance)

    @property
    def fingerprint(self) -> str:
        # Rounded: a mean that is computed differs in its last bits between machines.
        return f"moments/{hashlib.sha256((np.round(self._mean, 9) + 0.0).tobytes()).hexdigest()}"

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return sums [lanes, 1 + dim + dim²], float64."""
        z = np.moveaxis(np.asarray(draws_of(tensors, len(self._mean)), dtype=np.float64) - self._mean, 1, 0)
        lanes, draws, dim = z.shape
        products = np.swapaxes(z, 1, 2) @ z
        return np.concatenate([np.full((lanes, 1), float(draws)), z.sum(1), products.reshape(lanes, dim * dim)], axis=1)

    def compare(self, sums: Array) -> dict[str, Array]:
        """Return metrics of sums [..., 1 + dim + dim²], each [...]."""
        dim, count = len(self._mean), sums[..., :1]
        away = sums[..., 1 : 1 + dim] / count
        second = (sums[..., 1 + dim :] / count).reshape(*sums.shape[:-1], dim, dim)
        covariance = second - away[..., :, None] * away[..., None, :]
        sd = np.sqrt(np.diagonal(self._covariance))
        ratios = np.diagonal(covariance, axis1=-2, axis2=-1) / sd**2
        return {
            "w2": gaussian_w2(away, covariance, self._covariance, self._root),
            "mean_error": np.abs(away / sd).max(-1),
            "variance_error": np.abs(ratios - 1).max(-1),
            "variance_ratio": np.median(ratios, axis=-1),
        }


class DrawMoments(DrawSums):
    """The draws' own moments, of a target of which nothing is known: how well they determine its mean.

    The block of a sample (draws [draws, lanes, dim]) is [lanes, 2 + 3·dim]: 1, its number of draws, and the sums of
    z = θ − centre, of z² and of (Σz)²/n. The spread of the blocks' means, over time and over chains, gives the
    effective sample size of the mean (batch means): chains that stay apart have a small one. It needs blocks that are
    long against the draws' autocorrelation, and two of them; the measure ``diagnostics`` has the rank-normalised one,
    and R-hat.

    Args:
        centre: [dim], near the draws.
        labels: of the coordinates; default θ[0], θ[1], …
    """

    def __init__(self, *, centre: Any, labels: Sequence[str] = ()) -> None:
        self._centre = np.asarray(centre, dtype=np.float64)
        names = list(labels) or [f"theta[{i}]" for i in range(len(self._centre))]
        self._names = names[:MOST_NAMED]
        of_mean = [Metric(name=f"mean {n}", label=f"Mean of {n}", better="neither", minor=True) for n in self._names]
        of_sd = [Metric(name=f"sd {n}", label=f"Sd of {n}", better="neither", minor=True) for n in self._names]
        size = Metric(name="ess", label="Effective sample size of the mean, smallest", better="higher", digits=0)
        self.metrics = (size, *of_mean, *of_sd)  # type: ignore[misc]  # they have the coordinates' names

    @property
    def fingerprint(self) -> str:
        return f"draw-moments/{hashlib.sha256(self._centre.tobytes()).hexdigest()}"

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return sums [lanes, 2 + 3·dim], float64."""
        z = np.moveaxis(np.asarray(draws_of(tensors, np.size(self._centre)), dtype=np.float64) - self._centre, 1, 0)
        lanes, draws, _ = z.shape
        first, counts = z.sum(1), np.tile([1.0, draws], (lanes, 1))
        return np.concatenate([counts, first, (z**2).sum(1), first**2 / draws], axis=1)

    def compare(self, sums: Array) -> dict[str, Array]:
        """Return metrics of sums [..., 2 + 3·dim], each [...]."""
        blocks, count = sums[..., :1], sums[..., 1:2]
        first, second, between = np.split(sums[..., 2:], 3, axis=-1)
        mean = first / count
        variance = np.maximum(second / count - mean**2, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.maximum(between - count * mean**2, 0.0) / (blocks - 1)  # n times the variance of blocks' means
            sizes = np.where(blocks > 1, count * variance / spread, np.nan)
        coordinates = list(enumerate(self._names))
        means = {f"mean {n}": mean[..., i] + self._centre[i] for i, n in coordinates}
        sds = {f"sd {n}": np.sqrt(variance[..., i]) for i, n in coordinates}
        return {"ess": sizes.min(-1), **means, **sds}


class SampledMoments(DrawSums):
    """`GaussianMoments` against a reference's mean and covariance, which are drawn when they are first needed.

    Blocks are sums about ``centre``, which is known exactly; so they do not depend on the reference, and predicting
    needs none. With the metrics comes ``sd_ratio``: the median over coordinates of max(r, 1/r), r the draws' standard
    deviation over the reference's; 1 is right.

    Args:
        centre: [dim], e.g. the mode.
        identity: names the target: equal for equal ones, on all machines.
        reference: draws it; called once.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        *GaussianMoments.metrics,
        Metric(name="sd_ratio", label="Standard deviation off by (factor, median)", better="lower"),
    )

    def __init__(self, *, centre: Any, identity: str, reference: Callable[[], Reference]) -> None:
        self._centre = np.asarray(centre, dtype=np.float64)
        self._blocks = GaussianMoments(mean=self._centre, covariance=np.eye(len(self._centre)))
        self._identity, self._draw, self._lock = identity, reference, threading.Lock()
        self._exact: tuple[Reference, GaussianMoments] | None = None

    @property
    def fingerprint(self) -> str:
        return f"sampled-moments/{hashlib.sha256(self._identity.encode()).hexdigest()}"

    @property
    def reference(self) -> Reference:
        """The moments that draws are compared with."""
        return self._known()[0]

    def warm(self) -> None:
        self._known()

    def _known(self) -> tuple[Reference, GaussianMoments]:
        with self._lock:  # `warm` runs while the first metrics are asked for
            if self._exact is None:
                found = self._draw()
                self._exact = found, GaussianMoments(mean=found.mean, covariance=found.covariance)
            return self._exact

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return sums [lanes, 1 + dim + dim²] about the centre, float64: of 1, of z = θ − centre and of zzᵀ."""
        return self._blocks.predict(tensors, shard)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        away = self.reference.mean - self._centre
        return super().reduce([moved(b, away) for b in blocks], shard, weights)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        ratios = _sd_ratios(gather(parts)["sums"], self.reference.sd)
        return [{**m, "sd_ratio": float(r)} for m, r in zip(super().summarise(parts), ratios, strict=True)]

    def compare(self, sums: Array) -> dict[str, Array]:
        return self._known()[1].compare(sums)


def moved(sums: Array, away: Array) -> Array:
    """Return sums [..., 1 + dim + dim²] of 1, z and zzᵀ as those of z − ``away``."""
    dim = len(away)
    count, first = sums[..., :1], sums[..., 1 : 1 + dim]
    second = sums[..., 1 + dim :].reshape(*sums.shape[:-1], dim, dim)
    crossed = first[..., :, None] * away
    second = second - crossed - np.swapaxes(crossed, -1, -2) + count[..., None] * np.outer(away, away)
    return np.concatenate([count, first - count * away, second.reshape(*sums.shape[:-1], dim * dim)], axis=-1)


def sd_ratio(draws: Any, sd: Array) -> Array:
    """Return the median over coordinates of max(r, 1/r) for draws [draws, ..., dim]: [...]; ``sd`` is the reference's,
    [dim].

    Infinite for draws that never move, nan where one is not finite.
    """
    values = np.asarray(draws, dtype=np.float64)
    return _off(values.std(axis=0) / sd)


def _sd_ratios(sums: Array, sd: Array) -> Array:
    dim = len(sd)
    mean = sums[..., 1 : 1 + dim] / sums[..., :1]
    squares = np.diagonal(
        (sums[..., 1 + dim :] / sums[..., :1]).reshape(*sums.shape[:-1], dim, dim), axis1=-2, axis2=-1
    )
    return _off(np.sqrt(np.maximum(squares - mean**2, 0.0)) / sd)


def _off(ratios: Array) -> Array:
    """Return the median over the last axis of max(r, 1/r)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.median(np.maximum(ratios, 1 / ratios), axis=-1))
