"""How far the draws' mean and covariance are from a target of which both are known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, add_curves, gather, only_equal


class GaussianMoments(Evaluation):
    """Compares the moments of a chain's draws with those of N(μ, Σ), lane by lane, since lanes are repeats.

    The block of a sample (draws [draws, lanes, dim]) is [lanes, 1 + dim + dim²]: the number of draws and the sums of
    z = θ − μ and of zzᵀ. Blocks add up, over time and over the chains of an arm. Of rows, ``variance_ratio`` (median
    over coordinates of the draws' variance over the target's; 1 is right) comes with the metrics.

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

    @property
    def shards(self) -> int:
        return 1

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Sums [lanes, 1 + dim + dim²], float64."""
        z = np.moveaxis(np.asarray(tensors["theta"], dtype=np.float64) - self._mean, 1, 0)
        lanes, draws, dim = z.shape
        products = np.swapaxes(z, 1, 2) @ z
        return np.concatenate([np.full((lanes, 1), float(draws)), z.sum(1), products.reshape(lanes, dim * dim)], axis=1)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        only_equal(weights, len(blocks), "a density")
        running = np.cumsum(np.stack(blocks), axis=0)
        return Reduced(rows={"sums": running[-1]}, curves=self._compare(running))

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        found = self._compare(gather(parts)["sums"])
        return [{name: float(values[lane]) for name, values in found.items()} for lane in range(len(found["w2"]))]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        curves = add_curves(parts)
        lanes = curves["w2"].shape[1]
        return [{name: values[:, lane].tolist() for name, values in curves.items()} for lane in range(lanes)]

    def _compare(self, sums: Array) -> dict[str, Array]:
        """Metrics of sums [..., 1 + dim + dim²], each [...]."""
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


def gaussian_w2(away: Array, covariance: Array, target: Array, root: Array) -> Array:
    """2-Wasserstein distance between N(μ + away, covariance) and N(μ, target), in the unit of θ.

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
