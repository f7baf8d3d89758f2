"""Posterior predictive of a classifier: samples' log-probabilities to rows to error, NLL, ECE and Brier score."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation import metrics
from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, add_curves, gather

SHARD = 1000
"""Examples per shard at most."""
MANY_CLASSES = 100
"""Above this many classes blocks are kept in half precision."""


class Classification(Evaluation):
    """A labelled split under a model whose parameters are one sample at a time.

    Args:
        model: network from inputs [n, …] to logits [n, classes]; its parameters are overwritten by each sample.
        inputs: [examples, …].
        labels: [examples], integers.
        classes: number of classes.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="error", label="Error (%)", better="lower", scale=100, digits=2),
        Metric(name="nll", label="NLL (nats)", better="lower", digits=4),
        Metric(name="ece", label="ECE (%)", better="lower", scale=100, digits=2),
        Metric(name="brier", label="Brier score", better="lower", digits=4),
    )

    def __init__(self, *, model: nn.Module, inputs: Tensor, labels: Array, classes: int) -> None:
        self._model, self.inputs, self._labels, self._classes = model.eval(), inputs, labels, classes

    @cached_property
    def fingerprint(self) -> str:
        h = hashlib.sha256(np.ascontiguousarray(self.inputs.numpy()).tobytes())
        h.update(self._labels.tobytes())
        return h.hexdigest()

    @property
    def shards(self) -> int:
        return -(-len(self._labels) // SHARD)

    def _range(self, shard: int) -> slice:
        return slice(shard * SHARD, (shard + 1) * SHARD)

    def warm(self) -> None:
        import torchmetrics.functional.classification  # noqa: F401

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Log-probabilities [examples of the shard, classes], float32 (float16 above 100 classes)."""
        return log_probabilities(self._model, tensors, self.inputs[self._range(shard)])

    def reduce(self, blocks: Sequence[Array], shard: int) -> Reduced:
        labels = self._labels[self._range(shard)]
        return reduce_classification(blocks, labels)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows = gather(parts)
        return [
            {
                "error": metrics.error(rows),
                "nll": metrics.nll(rows),
                "ece": metrics.ece(rows),
                "brier": metrics.brier(rows),
            }
        ]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        n = sum(len(p.rows["label"]) for p in parts)
        return [{name: (total / n).tolist() for name, total in add_curves(parts).items()}]


@torch.no_grad()
def log_probabilities(model: nn.Module, tensors: Mapping[str, Any], inputs: Tensor) -> Array:
    """Log-probabilities of one sample, [inputs, classes]; float16 above 100 classes, else float32.

    The softmax is taken in float32 at least, whatever the network's own dtype.
    """
    model.load_state_dict(dict(tensors))
    parameter = next(model.parameters())
    logits = model(inputs.to(parameter.dtype)) if inputs.is_floating_point() else model(inputs)
    out = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    half = logits.shape[-1] > MANY_CLASSES
    return out.to(torch.float16 if half else torch.float32).numpy()


def reduce_classification(blocks: Sequence[Array], labels: Array) -> Reduced:
    """Rows of the averaged predictive p̄ = (1/S) Σ_s p_s, and prefix curves of error and NLL over the samples.

    Rows: ``label``, ``prediction``, ``log_p_label`` (nats), ``confidence`` (max p̄), ``entropy`` of p̄ and
    ``expected_entropy`` (mean entropy of the p_s) in nats, ``brier`` = Σ_c (p̄_c − 1[c = label])², ``top5``.
    """
    n = len(labels)
    at = np.arange(n)
    total = np.zeros(blocks[0].shape, dtype=np.float64)
    expected_entropy = np.zeros(n)
    errors, nlls = np.zeros(len(blocks)), np.zeros(len(blocks))
    tiny = np.finfo(np.float64).tiny  # a probability that underflows has a finite log this way
    for s, block in enumerate(blocks):
        log_p = block.astype(np.float64)
        p = np.exp(log_p)
        total += p
        expected_entropy -= (p * np.maximum(log_p, np.log(tiny))).sum(axis=1)
        errors[s] = np.count_nonzero(total.argmax(axis=1) != labels)
        nlls[s] = -np.log(np.maximum(total[at, labels] / (s + 1), tiny)).sum()
    mean = total / len(blocks)
    p_label = mean[at, labels]
    rank = np.count_nonzero(mean > p_label[:, None], axis=1)
    rows = {
        "label": labels,
        "prediction": mean.argmax(axis=1),
        "log_p_label": np.log(np.maximum(p_label, tiny)),
        "confidence": mean.max(axis=1),
        "entropy": -(mean * np.log(np.maximum(mean, tiny))).sum(axis=1),
        "expected_entropy": expected_entropy / len(blocks),
        "brier": (mean**2).sum(axis=1) - 2 * p_label + 1,
        "top5": rank < 5,
    }
    return Reduced(rows=rows, curves={"error": errors, "nll": nlls})
