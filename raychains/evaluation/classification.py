"""Posterior predictive of a classifier: samples' log-probabilities to their average, rows and metrics, labelled or
not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.core import gpus, tree
from raychains.core.errors import UserError
from raychains.core.tree import Tree
from raychains.evaluation import calibration_error, metrics
from raychains.evaluation.evaluation import (
    Array,
    Metric,
    Reduced,
    Sharded,
    add_curves,
    add_sums,
    fed,
    gather,
    load_sample,
    normalised,
    one_at_a_time,
)

MANY_CLASSES = 100
"""Above this many classes blocks are kept in half precision."""
IMAGES_AT_ONCE = 250
"""More at a time leave a CPU's caches (LeNet takes 1.7 times as long with 1,000); a ResNet takes a few hundred MB."""
TINY = np.finfo(np.float64).tiny
"""A probability that underflows has a finite log this way."""
Prepare = Callable[[Tree], Tree]


class Predicting(Sharded):
    """Base of splits that a network predicts on: a sample's block is its log-probabilities on a shard.

    Args:
        model: network from inputs [n, …] to logits [n, classes]; its parameters are overwritten by each sample.
        inputs: [examples, …], as they are stored: shards of them, and no more, are prepared at a time.
        prepare: turns stored inputs into the network's; None leaves them as they are.
        preparation: `prepare` as JSON, by which predictions of the same inputs are told apart.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        inputs: Tensor,
        prepare: Prepare | None = None,
        preparation: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model=model, inputs=inputs)
        self._prepare, self._preparation = prepare, preparation

    @cached_property
    def fingerprint(self) -> str:
        h = hashlib.sha256(np.ascontiguousarray(self.inputs.numpy()).tobytes())
        h.update(self._also_identified_by())
        if self._preparation is not None:
            h.update(json.dumps(self._preparation, sort_keys=True).encode())
        return h.hexdigest()

    def _also_identified_by(self) -> bytes:
        """Return what makes the split besides its inputs."""
        return b""

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return log-probabilities [examples of the shard, classes], float32 (float16 above 100 classes)."""
        return log_probabilities(self._model, tensors, self._inputs(shard), prepare=self._prepare)

    @property
    def predicted_bytes(self) -> int:
        classes: int = getattr(self, "classes", 1)
        return self.examples * classes * (2 if classes > MANY_CLASSES else 4)

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        n = sum(len(p.rows["prediction"]) for p in parts)
        return [{name: (total / n).tolist() for name, total in add_curves(parts).items()}]


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
    """Metrics of a classification; with five classes or fewer there is no top-5 error."""

    def __init__(self, *, labels: Array | Callable[[], Array], classes: int, **others: Any) -> None:
        super().__init__(**others)
        self._read, self.classes = labels, classes

    @cached_property
    def _labels(self) -> Array:
        found = self._read() if callable(self._read) else self._read
        wrong = found[(found < 0) | (found >= self.classes)]
        if len(wrong):
            raise UserError(f"labels must lie in [0, {self.classes}), got {wrong[0]}")
        return found

    def _also_identified_by(self) -> bytes:
        return self._labels.tobytes()

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        labels = self._labels[self.range_of(shard)]
        return reduce_classification(blocks, labels, bins=self.bins, weights=weights)

    def log_likelihoods(self, block: Array, shard: int) -> Array:
        labels = self._labels[self.range_of(shard)]
        return block[np.arange(len(labels)), labels].astype(np.float64)

    def reduce_average(self, average: Average, shard: int) -> Reduced:
        """Return rows of a predictive whose samples came one after another and were not kept; no curves."""
        return reduce_average(average, self._labels[self.range_of(shard)], bins=self.bins)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows = gather(parts)
        found = {name: metrics.of_points(name, rows) for name in ("error", "nll", "brier")}
        # A network whose outputs overflow predicts nan: then so are its metrics.
        known = bool(np.isfinite(rows["entropy"]).all())
        if self.classes > metrics.TOP:
            found["top5_error"] = metrics.of_points("top5_error", rows)
        found |= {
            "ece": metrics.ece(rows, self.bins) if known else np.nan,
            "ece_mass": metrics.ece_mass(rows, self.bins) if known else np.nan,
            "classwise_ece": calibration_error.classwise_error(add_sums(parts)["classwise"]),
            "entropy": metrics.of_points("entropy", rows),
            "mutual_information": metrics.of_points("mutual_information", rows) if known else np.nan,
        }
        return [{metric.name: found[metric.name] for metric in self.metrics if metric.name in found}]


class OutOfDistribution(Predicting):
    """A split without labels whose inputs show something else: a good predictive is unsure of all of them.

    Rows: ``prediction``, ``confidence`` (max p̄), ``entropy`` of p̄ and ``expected_entropy`` (mean entropy of the p_s),
    in nats; their difference is the mutual information between prediction and parameters.

    Metrics: mean predictive entropy, mean mutual information, share of inputs with an entropy below .5 nats, and mean
    confidence.

    Source: cSG-MCMC §5.3 (MNIST against notMNIST; lower shares of low entropy are less over-confident).
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="entropy", label="Predictive entropy (nats)", better="higher"),
        Metric(name="mutual_information", label="Mutual information (nats)", better="higher"),
        Metric(name="low_entropy", label=f"Entropy below {metrics.SURE} nats (%)", better="lower", scale=100, digits=1),
        Metric(name="confidence", label="Mean confidence (%)", better="lower", scale=100, digits=1),
    )

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        shares = normalised(weights, len(blocks))
        average = Average(blocks[0].shape)
        curves: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        for s, block in enumerate(blocks):
            average.add(block, 1.0 if shares is None else shares[s])
            for name, values in _measured(average.entropy, average.expected_entropy, average.mean.max(axis=1)).items():
                curves[name].append(float(values.sum()) if average.weight else np.nan)  # of nothing
        return Reduced(rows=average.rows(), curves={name: np.array(values) for name, values in curves.items()})

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows = gather(parts)
        found = _measured(rows["entropy"], rows["expected_entropy"], rows["confidence"])
        return [{name: float(values.mean()) for name, values in found.items()}]


def _measured(entropy: Array, expected_entropy: Array, confidence: Array) -> dict[str, Array]:
    """Return the numbers whose means the metrics are, per input."""
    return {
        "entropy": entropy,
        "mutual_information": entropy - expected_entropy,
        "low_entropy": metrics.low_entropy(entropy),
        "confidence": confidence,
    }


@one_at_a_time()
@torch.no_grad()
def log_probabilities(
    model: nn.Module,
    tensors: Mapping[str, Any],
    inputs: Tree,
    *,
    prepare: Prepare | None = None,
    axis: int = -1,
) -> Array:
    """Return the log-probabilities of one sample, [inputs, classes]; float16 above 100 classes, else float32.

    Of labels per position they are [inputs, positions …, classes].

    The softmax is taken in float32 at least, whatever the network's own dtype.

    Args:
        model: the network, in evaluation mode; its parameters are overwritten.
        tensors: the sample's.
        inputs: [n, …], on the model's device; of those with three axes or more it takes `IMAGES_AT_ONCE` at a time.
        prepare: turns ``inputs`` into the network's; None leaves them as they are.
        axis: of the classes among the network's outputs.
    """
    load_sample(model, tensors)
    dtype = next(model.parameters()).dtype
    blocks = []
    n = tree.size(inputs)
    at_once = IMAGES_AT_ONCE if max(leaf.ndim for leaf in tree.leaves(inputs)) > 2 else max(1, n)
    for start in range(0, n, at_once):
        part = tree.at(inputs, slice(start, start + at_once))
        x = part if prepare is None else prepare(part)
        logits = model(fed(x, dtype)).movedim(axis, -1)
        log_p = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
        blocks.append(log_p.to(torch.float16 if logits.shape[-1] > MANY_CLASSES else torch.float32))
    return gpus.array(torch.cat(blocks))  # a GPU is waited for once


class Average:
    """The one average of predictions: p̄ = Σ_s w_s·p_s / Σ_s w_s of the samples so far, from their log-probabilities
    [n, classes].

    With no weight so far it is nan.
    """

    @classmethod
    def of(cls, blocks: Iterable[Array], weights: Iterable[float] | None = None) -> Average | None:
        """Return the average of blocks, one held at a time, equal without ``weights``; None without blocks."""
        average = None
        for block, weight in zip(blocks, repeat(1.0) if weights is None else weights, strict=weights is not None):
            average = average if average is not None else cls(block.shape)
            average.add(block, weight)
        return average

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.weight = 0.0
        """Σ_s w_s"""
        self.total = np.zeros(shape, dtype=np.float64)
        """Σ_s w_s·p_s"""
        self._entropies = np.zeros(shape[0])

    def add(self, block: Array, weight: float = 1.0) -> None:
        """Add one more sample."""
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

    def rows(self) -> dict[str, Array]:
        """Return the columns that need no labels."""
        mean = self.mean
        return {
            "prediction": mean.argmax(axis=1),
            "confidence": mean.max(axis=1),
            "entropy": self.entropy,
            "expected_entropy": self.expected_entropy,
        }

    def _over_weight(self, total: Array) -> Array:
        return total / self.weight if self.weight else np.full(total.shape, np.nan)


def reduce_classification(
    blocks: Sequence[Array], labels: Array, *, bins: int, weights: Sequence[float] | None = None
) -> Reduced:
    """Return rows of the averaged predictive p̄ = Σ_s w_s·p_s, and prefix curves of error and NLL over the samples.

    Weights w_s [samples] are normalised; None weighs all samples the same.

    Rows: ``label``, ``prediction``, ``log_p_label`` (nats), ``confidence`` (max p̄), ``entropy`` of p̄ and
    ``expected_entropy`` (mean entropy of the p_s) in nats, ``brier`` = Σ_c (p̄_c − 1[c = label])², ``top5`` (whether
    the label is among the five most probable classes, of equally probable ones the first: `metrics.in_top`).

    Sums: ``classwise``, those of `calibration_error.classwise_sums` over ``bins`` bins; nan where a probability is.
    """
    at = np.arange(len(labels))
    average = Average(blocks[0].shape)
    errors, nlls = np.zeros(len(blocks)), np.zeros(len(blocks))
    shares = normalised(weights, len(blocks))
    for s, block in enumerate(blocks):
        average.add(block, 1.0 if shares is None else shares[s])
        if not average.weight:
            errors[s] = nlls[s] = np.nan  # a predictive of nothing
            continue
        nlls[s] = -np.log(np.maximum(average.total[at, labels] / average.weight, TINY)).sum()
        errors[s] = np.nan if np.isnan(nlls[s]) else np.count_nonzero(average.total.argmax(axis=1) != labels)
    return reduce_average(average, labels, bins=bins, curves={"error": errors, "nll": nlls})


def reduce_average(average: Average, labels: Array, *, bins: int, curves: Mapping[str, Array] | None = None) -> Reduced:
    """Return rows and sums as `reduce_classification` does, of an average that is formed already."""
    mean = average.mean
    p_label = mean[np.arange(len(labels)), labels]
    unlabelled = average.rows()
    rows = {
        "label": labels,
        "prediction": unlabelled.pop("prediction"),
        "log_p_label": np.log(np.maximum(p_label, TINY)),
        **unlabelled,
        "brier": (mean**2).sum(axis=1) - 2 * p_label + 1,
        "top5": metrics.in_top(mean, labels, metrics.TOP),
    }
    known = bool(np.isfinite(mean).all())
    shape = (3, mean.shape[1], bins)
    sums = calibration_error.classwise_sums(mean, labels, bins) if known else np.full(shape, np.nan)
    return Reduced(rows=rows, curves=curves or {}, sums={"classwise": sums})
