"""The predictive of a chain's samples so far on one split, kept up to date as samples come."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from raychains.evaluation.classification import Average, Classification
from raychains.evaluation.evaluation import Array, Evaluation


class RunningEnsemble:
    """The running average of a classifier's samples on a split, so that memory does not grow; of other tasks every
    sample's blocks."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._averages: list[Average] = []
        self._blocks: list[list[Array]] = [[] for _ in range(evaluation.shards)]
        self._names = hashlib.sha256()
        self.samples = 0

    def add(self, tensors: Mapping[str, Any], sha256: str) -> None:
        """One more sample, whose tensors have this sha256."""
        for shard in range(self._evaluation.shards):
            block = self._evaluation.predict(tensors, shard)
            if not isinstance(self._evaluation, Classification):
                self._blocks[shard].append(block)
                continue
            if len(self._averages) == shard:
                self._averages.append(Average(block.shape))
            self._averages[shard].add(block)
        self._names.update(sha256.encode())
        self.samples += 1

    @property
    def sha256(self) -> str:
        """Names the samples so far, in their order."""
        return self._names.hexdigest()

    def metrics(self) -> dict[str, float]:
        """Metrics of the samples so far, as `raychains evaluate` finds them."""
        if isinstance(self._evaluation, Classification):
            parts = [self._evaluation.reduce_average(average, s) for s, average in enumerate(self._averages)]
        else:
            parts = [self._evaluation.reduce(blocks, shard) for shard, blocks in enumerate(self._blocks)]
        [found] = self._evaluation.measure(parts)
        return {name: float(value) for name, value in found.items()}
