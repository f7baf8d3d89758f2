"""How much of the draws each mode of a Gaussian mixture holds, against the mass that it has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, add_curves, gather, only_equal


class ModeShare(Evaluation):
    """The share of the draws in one mode of Σ_k w_k·N(μ_k, σ_k²I), lane by lane, since lanes are repeats.

    A draw counts for mode k with its responsibility r_k(θ) = w_k·N(θ; μ_k, σ_k²I)/Σ_j w_j·N(θ; μ_j, σ_j²I), not as a
    whole for the mode that has most of it: the expectation of r_k under the target is w_k exactly, also where modes
    overlap. Where they do not, both are the same.

    The block of a sample (draws [draws, lanes, dim]) is [lanes, 1 + modes]: the number of draws and the sums of r.
    Blocks add up. ``flat_share`` comes with the metric: more of it is not better, the target's share is right.

    Args:
        centres: μ, [modes, dim].
        scales: σ, [modes].
        weights: w, [modes], which sum to 1.
        mode: the mode that is asked for, by its position.
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

    @property
    def shards(self) -> int:
        return 1

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Sums [lanes, 1 + modes], float64."""
        draws = np.asarray(tensors["theta"], dtype=np.float64)
        held = self.responsibilities(draws).sum(0)
        return np.concatenate([np.full((draws.shape[1], 1), float(len(draws))), held], axis=1)

    def responsibilities(self, theta: Array) -> Array:
        """r_k, [..., modes], of points [..., dim]."""
        dim = self._centres.shape[1]
        squared = ((theta[..., None, :] - self._centres) ** 2).sum(-1)
        logs = np.log(self._weights) - dim * np.log(self._scales) - squared / (2 * self._scales**2)
        shares = np.exp(logs - logs.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        only_equal(weights, len(blocks), "a density")
        running = np.cumsum(np.stack(blocks), axis=0)
        return Reduced(rows={"sums": running[-1]}, curves=self._compare(running))

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        found = self._compare(gather(parts)["sums"])
        return [{n: float(v[lane]) for n, v in found.items()} for lane in range(len(found["flat_share"]))]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        curves = add_curves(parts)
        lanes = curves["flat_share"].shape[1]
        return [{n: v[:, lane].tolist() for n, v in curves.items()} for lane in range(lanes)]

    def _compare(self, sums: Array) -> dict[str, Array]:
        share = sums[..., 1 + self._mode] / sums[..., 0]
        return {"flat_share_error": np.abs(share - self.exact), "flat_share": share}
