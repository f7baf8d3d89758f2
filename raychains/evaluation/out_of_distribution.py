"""What a classifier says of inputs that are none of its classes: how unsure its posterior predictive is, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from raychains.evaluation.base import Array, Metric, Reduced, add_curves, gather, normalised
from raychains.evaluation.classification import Average, Predicting
from raychains.evaluation.metrics import SURE


class OutOfDistribution(Predicting):
    """A split without labels whose inputs show something else: a good predictive is unsure of all of them.

    Rows: ``prediction``, ``confidence`` (max p̄), ``entropy`` of p̄ and ``expected_entropy`` (mean entropy of the p_s), in
    nats; their difference is the mutual information between prediction and parameters.

    Metrics: mean predictive entropy, mean mutual information, share of inputs with an entropy below .5 nats, and mean
    confidence.

    Source: cSG-MCMC §5.3 (MNIST against notMNIST; lower shares of low entropy are less over-confident).
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="entropy", label="Predictive entropy (nats)", better="higher"),
        Metric(name="mutual_information", label="Mutual information (nats)", better="higher"),
        Metric(name="low_entropy", label=f"Entropy below {SURE} nats (%)", better="lower", scale=100, digits=1),
        Metric(name="confidence", label="Mean confidence (%)", better="lower", scale=100, digits=1),
    )

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        given = normalised(weights, len(blocks))
        average = Average(blocks[0].shape)
        curves: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        for s, block in enumerate(blocks):
            average.add(block, 1.0 if given is None else given[s])
            for name, values in _measured(average.entropy, average.expected_entropy, average.mean.max(axis=1)).items():
                curves[name].append(float(values.sum()) if average.weight else np.nan)  # of nothing
        mean = average.mean
        rows = {
            "prediction": mean.argmax(axis=1),
            "confidence": mean.max(axis=1),
            "entropy": average.entropy,
            "expected_entropy": average.expected_entropy,
        }
        return Reduced(rows=rows, curves={name: np.array(values) for name, values in curves.items()})

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows = gather(parts)
        found = _measured(rows["entropy"], rows["expected_entropy"], rows["confidence"])
        return [{name: float(values.mean()) for name, values in found.items()}]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        n = sum(len(p.rows["entropy"]) for p in parts)
        return [{name: (total / n).tolist() for name, total in add_curves(parts).items()}]


def _measured(entropy: Array, expected_entropy: Array, confidence: Array) -> dict[str, Array]:
    """What the metrics are means of, per input."""
    return {
        "entropy": entropy,
        "mutual_information": entropy - expected_entropy,
        "low_entropy": (entropy < SURE).astype(np.float64),
        "confidence": confidence,
    }
