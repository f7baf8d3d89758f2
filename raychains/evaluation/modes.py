"""Mode coverage of a low-dimensional target (cSG-MCMC A.1): how many modes hold enough draws."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, add_curves, gather, only_equal


class ModeCoverage(Evaluation):
    """Counts draws within ``radius`` of each mode; a mode is covered by more than ``more_than`` of them.

    The block of a sample (draws [draws, lanes, dim]) is its counts [lanes, modes]. Counts of the chains of an arm add
    up lane by lane, since lanes are repeats.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="modes", label="Modes covered", better="higher", digits=2),)

    def __init__(self, *, centres: Sequence[tuple[float, ...]], radius: float, more_than: int) -> None:
        self._centres, self._radius, self._more_than = np.asarray(centres), radius, more_than

    @property
    def fingerprint(self) -> str:
        centres = hashlib.sha256(np.ascontiguousarray(self._centres, dtype=np.float64).tobytes()).hexdigest()
        return f"modes/{centres}/{self._radius}"

    @property
    def shards(self) -> int:
        return 1

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Counts [lanes, modes], int64."""
        draws = np.asarray(tensors["theta"])
        squared = sum((draws[..., None, d] - self._centres[:, d]) ** 2 for d in range(self._centres.shape[1]))
        return np.count_nonzero(squared <= self._radius**2, axis=0)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        only_equal(weights, len(blocks), "a density")
        running = np.cumsum(np.stack(blocks), axis=0)
        covered = np.count_nonzero(running > self._more_than, axis=2)
        return Reduced(rows={"counts": running[-1]}, curves={"modes": covered})

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        counts = gather(parts)["counts"]
        return [{"modes": float(np.count_nonzero(lane > self._more_than))} for lane in counts]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        covered = add_curves(parts)["modes"].astype(float)
        return [{"modes": covered[:, lane].tolist()} for lane in range(covered.shape[1])]
