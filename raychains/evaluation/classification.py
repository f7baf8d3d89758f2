"""Posterior predictive of a classifier: samples' log-probabilities to rows to error, NLL, ECE and Brier score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation import calibration, metrics, uncertainty
from raychains.evaluation.base import BINS, Array, Evaluation, Metric, Reduced, add_curves, add_sums, gather, normalised

SHARD = 1000
"""Examples per shard at most."""
MANY_CLASSES = 100
"""Above this many classes blocks are kept in half precision."""
IMAGES_AT_ONCE = 250
"""More at a time leave a CPU's caches (LeNet takes 1.7 times as long with 1,000); a ResNet takes a few hundred MB."""
TINY = np.finfo(np.float64).tiny
"""A probability that underflows has a finite log this way."""


Prepare = Callable[[Tensor], Tensor]


class Predicting(Evaluation):
    """Base of splits that a network predicts on: a sample's block is its log-probabilities on a shard.

    Args:
        model: network from inputs [n, …] to logits [n, classes]; its parameters are overwritten by each sample.
        inputs: [examples, …], as they are stored: shards of them, and no more, are prepared at a time.
        prepare: what the network takes, from stored inputs; None gives it them as they are.
        preparation: what `prepare` does, as JSON: it tells predictions of the same inputs apart.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        inputs: Tensor,
        prepare: Prepare | None = None,
        preparation: Mapping[str, Any] | None = None,
    ) -> None:
        self._model, self.inputs = model.eval(), inputs
        self._prepare, self._preparation = prepare, preparation
        self._device = torch.device("cpu")

    @cached_property
    def fingerprint(self) -> str:
        h = hashlib.sha256(np.ascontiguousarray(self.inputs.numpy()).tobytes())
        h.update(self._also_identified_by())
        if self._preparation is not None:
            h.update(json.dumps(self._preparation, sort_keys=True).encode())
        return h.hexdigest()

    def _also_identified_by(self) -> bytes:
        """What besides the inputs makes the split."""
        return b""

    @property
    def shards(self) -> int:
        return -(-len(self.inputs) // SHARD)

    def _range(self, shard: int) -> slice:
        return slice(shard * SHARD, (shard + 1) * SHARD)

    def to(self, device: torch.device) -> None:
        self._model, self._device = self._model.to(device), device

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Log-probabilities [examples of the shard, classes], float32 (float16 above 100 classes)."""
        inputs = self.inputs[self._range(shard)].to(self._device)
        return log_probabilities(self._model, tensors, inputs, prepare=self._prepare)


class Classification(Predicting):
    """A labelled split under a model whose parameters are one sample at a time.

    Args:
        labels: [examples], integers; or a function that reads them when they are needed.
        classes: number of classes.
        others: as for `Predicting`: ``model`` and ``inputs`` at least.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="error", label="Error (%)", better="lower", scale=100, digits=2),
        Metric(name="nll", label="NLL (nats)", better="lower", digits=4),
        Metric(name="ece", label="ECE (%)", better="lower", scale=100, digits=2),
        Metric(name="brier", label="Brier score", better="lower", digits=4),
        Metric(name="top5_error", label="Top-5 error (%)", better="lower", scale=100, digits=2, minor=True),
        Metric(name="ece_mass", label="ECE, equal mass (%)", better="lower", scale=100, digits=2, minor=True),
        Metric(name="classwise_ece", label="Classwise ECE (%)", better="lower", scale=100, digits=3, minor=True),
        Metric(name="entropy", label="Predictive entropy (nats)", better="neither", digits=4, minor=True),
        Metric(name="mutual_information", label="Mutual information (nats)", better="neither", digits=4, minor=True),
    )
    """Of five classes or fewer there is no top-5 error."""

    def __init__(self, *, labels: Array | Callable[[], Array], classes: int, **others: Any) -> None:
        super().__init__(**others)
        self._given, self.classes = labels, classes

    @cached_property
    def _labels(self) -> Array:
        return self._given() if callable(self._given) else self._given

    def _also_identified_by(self) -> bytes:
        return self._labels.tobytes()

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        labels = self._labels[self._range(shard)]
        return reduce_classification(blocks, labels, bins=self.bins, weights=weights)

    def reduce_average(self, average: Average, shard: int) -> Reduced:
        """Rows of a predictive whose samples came one after another and were not kept; no curves."""
        return reduce_average(average, self._labels[self._range(shard)], bins=self.bins)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows = gather(parts)
        found = {name: metrics.of_points(name, rows) for name in ("error", "nll", "brier")}
        if self.classes > metrics.TOP:
            found["top5_error"] = metrics.of_points("top5_error", rows)
        # A network whose outputs overflow predicts nan: then so are its metrics.
        known = bool(np.isfinite(rows["entropy"]).all())
        found |= {
            "ece": metrics.ece(rows, self.bins) if known else np.nan,
            "ece_mass": metrics.ece_mass(rows, self.bins) if known else np.nan,
            "classwise_ece": calibration.classwise_error(add_sums(parts)["classwise"]),
            "entropy": metrics.of_points("entropy", rows),
            "mutual_information": metrics.of_points("mutual_information", rows) if known else np.nan,
        }
        return [{metric.name: found[metric.name] for metric in self.metrics if metric.name in found}]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        n = sum(len(p.rows["label"]) for p in parts)
        return [{name: (total / n).tolist() for name, total in add_curves(parts).items()}]


@torch.no_grad()
def log_probabilities(
    model: nn.Module,
    tensors: Mapping[str, Any],
    inputs: Tensor,
    *,
    prepare: Prepare | None = None,
) -> Array:
    """Log-probabilities of one sample, [inputs, classes]; float16 above 100 classes, else float32.

    The softmax is taken in float32 at least, whatever the network's own dtype.

    Args:
        model: the network, in evaluation mode; its parameters are overwritten.
        tensors: the sample's.
        inputs: [n, …], on the model's device; of those with several axes it takes `IMAGES_AT_ONCE` at a time.
        prepare: what the network takes, from ``inputs``; None gives it them as they are.
    """
    model.load_state_dict(dict(tensors))
    dtype = next(model.parameters()).dtype
    blocks = []
    at_once = IMAGES_AT_ONCE if inputs.ndim > 2 else max(1, len(inputs))
    for part in inputs.split(at_once):
        x = part if prepare is None else prepare(part)
        logits = model(x.to(dtype) if x.is_floating_point() else x)
        log_p = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
        blocks.append(log_p.to(torch.float16 if logits.shape[-1] > MANY_CLASSES else torch.float32).cpu())
    return torch.cat(blocks).numpy()


class Average:
    """The predictive p̄ = Σ_s w_s·p_s / Σ_s w_s of the samples so far, from their log-probabilities [n, classes].

    With no weight so far it is nan.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.weight = 0.0
        """Σ_s w_s"""
        self.total = np.zeros(shape, dtype=np.float64)
        """Σ_s w_s·p_s"""
        self._entropies = np.zeros(shape[0])

    def add(self, block: Array, weight: float = 1.0) -> None:
        """One more sample."""
        log_p = block.astype(np.float64)
        p = np.exp(log_p)
        self.total += weight * p
        self._entropies -= weight * (p * np.maximum(log_p, np.log(TINY))).sum(axis=1)
        self.weight += weight

    @property
    def mean(self) -> Array:
        """p̄, [n, classes]."""
        return self._over_weight(self.total)

    @property
    def entropy(self) -> Array:
        """Entropy of p̄ in nats, [n]."""
        mean = self.mean
        return -(mean * np.log(np.maximum(mean, TINY))).sum(axis=1)

    @property
    def expected_entropy(self) -> Array:
        """Mean entropy of the p_s in nats, [n]; what `entropy` has more is the mutual information."""
        return self._over_weight(self._entropies)

    def _over_weight(self, total: Array) -> Array:
        return total / self.weight if self.weight else np.full(total.shape, np.nan)


def reduce_classification(
    blocks: Sequence[Array], labels: Array, *, bins: int = BINS, weights: Sequence[float] | None = None
) -> Reduced:
    """Rows of the averaged predictive p̄ = Σ_s w_s·p_s, and prefix curves of error and NLL over the samples.

    Weights w_s [samples] are normalised; None weighs all samples the same.

    Rows: ``label``, ``prediction``, ``log_p_label`` (nats), ``confidence`` (max p̄), ``entropy`` of p̄ and
    ``expected_entropy`` (mean entropy of the p_s) in nats, ``brier`` = Σ_c (p̄_c − 1[c = label])², ``top5`` (whether the
    label is among the five most probable classes, of equally probable ones the first: `uncertainty.in_top`).

    Sums: ``classwise``, those of `calibration.classwise_sums` over ``bins`` bins; nan where a probability is.
    """
    at = np.arange(len(labels))
    average = Average(blocks[0].shape)
    errors, nlls = np.zeros(len(blocks)), np.zeros(len(blocks))
    given = normalised(weights, len(blocks))
    for s, block in enumerate(blocks):
        average.add(block, 1.0 if given is None else given[s])
        if not average.weight:
            errors[s] = nlls[s] = np.nan  # a predictive of nothing
            continue
        errors[s] = np.count_nonzero(average.total.argmax(axis=1) != labels)
        nlls[s] = -np.log(np.maximum(average.total[at, labels] / average.weight, TINY)).sum()
    return reduce_average(average, labels, bins=bins, curves={"error": errors, "nll": nlls})


def reduce_average(
    average: Average, labels: Array, *, bins: int = BINS, curves: Mapping[str, Array] | None = None
) -> Reduced:
    """Rows and sums as of `reduce_classification`, of an average that is there already; its curves are nobody's."""
    mean = average.mean
    p_label = mean[np.arange(len(labels)), labels]
    rows = {
        "label": labels,
        "prediction": mean.argmax(axis=1),
        "log_p_label": np.log(np.maximum(p_label, TINY)),
        "confidence": mean.max(axis=1),
        "entropy": average.entropy,
        "expected_entropy": average.expected_entropy,
        "brier": (mean**2).sum(axis=1) - 2 * p_label + 1,
        "top5": uncertainty.in_top(mean, labels, metrics.TOP),
    }
    known = bool(np.isfinite(mean).all())
    shape = (3, mean.shape[1], bins)
    sums = calibration.classwise_sums(mean, labels, bins) if known else np.full(shape, np.nan)
    return Reduced(rows=rows, curves=curves or {}, sums={"classwise": sums})
