"""Posterior predictive of a label at every position of an example: words, pixels; samples' log-probabilities to rows
and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from raychains.core import tree
from raychains.core.errors import UserError, require
from raychains.core.tree import Tree
from raychains.evaluation import calibration_error, metrics
from raychains.evaluation.classification import MANY_CLASSES, TINY, Average, log_probabilities
from raychains.evaluation.evaluation import (
    SHARD,
    Array,
    Metric,
    Reduced,
    Sharded,
    add_curves,
    add_sums,
    fed,
    gather,
    normalised,
    one_at_a_time,
)
from raychains.evaluation.regression import mixed

BLOCK = 4 << 20
"""Bytes of a sample's log-probabilities on a shard, where it has several examples: of larger ones each is a shard."""
MOST_BYTES = 1 << 28
"""Bytes of a sample's log-probabilities on a split, of which an evaluation holds those of many samples."""
MOST_NUMBERS = 1 << 27
"""Probabilities that one call of `probabilities` returns at most: 1 GiB."""


class Pairs(Protocol):
    """Examples that are read by range, inputs and targets together."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: slice, /) -> Tree: ...

    def pair(self, at: slice, /) -> tuple[Tree, Tensor]:
        """Return inputs and targets [n, …]."""
        ...


class Positions(Sharded):
    """A split with a label at every position, under a network whose parameters are one sample at a time.

    The predictive of an example's labels together is the mixture Σ_s w_s Π_j p_s(y_j); at each position alone it is the
    average p̄_j = Σ_s w_s p_s(· at j). Positions whose label is ``ignore_index`` count in neither.

    The block of a sample is its log-probabilities on a shard, [examples, positions, classes] with all positions on one
    axis: float32, float16 above 100 classes. A shard has as many examples as fit into `BLOCK` bytes, at least one and
    at most 1,000. Positions may be of another number in each shard.

    Args:
        model: network from inputs [n, …] to logits; overwritten by each sample.
        data: the examples.
        classes: number of classes.
        positions: of an example, the longest where that is known: what the size of shards is chosen by.
        axis: of the classes among the logits' axes.
        ignore_index: the label of positions without one.
        fingerprint: identifies data and likelihood.

    Raises:
        UserError: one sample's log-probabilities of all examples take more than `MOST_BYTES`.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="label_error", label="Wrong labels (%)", better="lower", scale=100, digits=2),
        Metric(name="nll", label="NLL of an example (nats)", better="lower", digits=4),
        Metric(name="nll_label", label="NLL of a label (nats)", better="lower", digits=4),
        Metric(name="brier", label="Brier score per label", better="lower", digits=4),
        Metric(name="ece", label="ECE of labels (%)", better="lower", scale=100, digits=2),
        Metric(name="mutual_information", label="Mutual information (nats)", better="neither", digits=4, minor=True),
    )

    def __init__(
        self,
        *,
        model: nn.Module,
        data: Pairs,
        classes: int,
        positions: int,
        axis: int,
        ignore_index: int,
        fingerprint: str,
    ) -> None:
        super().__init__(model=model, inputs=data)
        self._data, self.classes, self._axis, self._ignored = data, classes, axis, ignore_index
        self._fingerprint, self._labels = fingerprint, dict[int, Array]()
        example = positions * classes * (2 if classes > MANY_CLASSES else 4)
        self._bytes = example * self.examples
        if self.predicted_bytes > MOST_BYTES:
            raise UserError(
                f"a split must have at most {MOST_BYTES >> 20} MiB of log-probabilities of one sample, got "
                f"{self.examples:,} examples of {positions:,} positions and {classes:,} classes, "
                f"{self.predicted_bytes >> 20:,} MiB: evaluate on fewer examples"
            )
        self._per_shard = min(SHARD, max(1, BLOCK // max(1, example)))

    @property
    def fingerprint(self) -> str:
        return f"positions/{self._fingerprint}"

    @property
    def predicted_bytes(self) -> int:
        return self._bytes

    @property
    def per_shard(self) -> int:
        return self._per_shard

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return log-probabilities [examples of the shard, positions, classes]."""
        inputs, targets = self._data.pair(self.range_of(shard))
        self._keep_labels(shard, targets)
        found = log_probabilities(self._model, tensors, tree.sent(inputs, self._device), axis=self._axis)
        return found.reshape(len(found), -1, self.classes)

    def labels(self, shard: int) -> Array:
        """Return a shard's labels [examples, positions], -1 where there is none; they are read once."""
        if shard not in self._labels:
            self._keep_labels(shard, self._data.pair(self.range_of(shard))[1])
        return self._labels[shard]

    def _keep_labels(self, shard: int, targets: Tensor) -> None:
        if shard in self._labels:
            return
        found = targets.reshape(len(targets), -1).long()
        found = torch.where(found == self._ignored, -1, found)
        wrong = found[(found < -1) | (found >= self.classes)]
        if len(wrong):
            raise UserError(f"labels must lie in [0, {self.classes}) or be {self._ignored}, got {int(wrong[0])}")
        self._labels[shard] = found.int().numpy()

    def log_likelihoods(self, block: Array, shard: int) -> Array:
        labels = self.labels(shard)
        return _summed(_of_labels(block, labels), labels)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        return reduce_positions(blocks, self.labels(shard), bins=self.bins, weights=weights)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        rows, sums = gather(parts), add_sums(parts)
        labels = rows["labels"].sum()
        with np.errstate(invalid="ignore"):
            found = {
                "label_error": rows["wrong"].sum() / labels,
                "nll": -rows["log_p"].mean(),
                "nll_label": -rows["log_p_labels"].sum() / labels,
                "brier": rows["brier_labels"].sum() / labels,
                "ece": calibration_error.top_class_error(sums["top_class"]),
            }
        known = bool(np.isfinite(rows["entropy"]).all())
        found["mutual_information"] = metrics.of_points("mutual_information", rows) if known else np.nan
        return [{name: float(value) for name, value in found.items()}]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        sums, rows = add_curves(parts), gather(parts)
        with np.errstate(invalid="ignore"):
            errors = sums["label_error"] / rows["labels"].sum()
        return [{"label_error": errors.tolist(), "nll": (sums["nll"] / len(rows["labels"])).tolist()}]


def reduce_positions(
    blocks: Sequence[Array], labels: Array, *, bins: int, weights: Sequence[float] | None = None
) -> Reduced:
    """Return rows of a predictive of labels per position, with the weights w_s [samples] of `normalised`.

    Rows, a number for each example: ``log_p`` = log Σ_s w_s Π_j p_s(y_j), of all labels together, nats; ``labels``,
    their number; ``wrong``, those that are not the most probable class of p̄_j; ``log_p_labels`` = Σ_j log p̄_j(y_j);
    ``brier_labels`` = Σ_j Σ_c (p̄_jc − 1[c = y_j])²; ``entropy`` and ``expected_entropy``, the means over the labelled
    positions of those of p̄_j and of the p_s, nats. An example without a label has 0 in all.

    Sums: ``top_class``, those of `calibration_error.top_class_sums` over the labels; nan where a probability is.

    Args:
        blocks: log-probabilities [examples, positions, classes] of each sample; with more positions than ``labels``
            those behind are left out.
        labels: [examples, positions], -1 where there is none.
    """
    shares = normalised(weights, len(blocks))
    where = labels >= 0
    own = labels[where]
    at = np.arange(len(own))
    average = Average((len(own), blocks[0].shape[2]))
    wrong_so_far, of_samples = np.zeros(len(blocks)), []
    for s, block in enumerate(blocks):
        of_samples.append(_summed(_of_labels(block, labels), labels))
        average.add(block[:, : labels.shape[1]][where], 1.0 if shares is None else shares[s])
        wrong = average.total.argmax(axis=1) != own
        known = average.weight > 0 and bool(np.isfinite(average.total).all())
        wrong_so_far[s] = np.count_nonzero(wrong) if known else np.nan
    mean = average.mean
    p_label = mean[at, own]
    running = mixed(np.stack(of_samples), shares)
    number = where.sum(axis=1)

    def of_examples(values: Array) -> Array:
        """Return the sums over each example's labels."""
        spread = np.zeros(labels.shape)
        spread[where] = values
        return spread.sum(axis=1)

    rows = {
        "labels": number,
        "log_p": running[-1],
        "log_p_labels": of_examples(np.log(np.maximum(p_label, TINY))),
        "wrong": of_examples(np.where(np.isnan(p_label), np.nan, mean.argmax(axis=1) != own)),
        "brier_labels": of_examples((mean**2).sum(axis=1) - 2 * p_label + 1),
        "entropy": of_examples(average.entropy) / np.maximum(number, 1),
        "expected_entropy": of_examples(average.expected_entropy) / np.maximum(number, 1),
    }
    known = bool(np.isfinite(mean).all())
    confidence, right = mean.max(axis=1, initial=0.0), mean.argmax(axis=1) == own
    sums = calibration_error.top_class_sums(confidence, right, bins) if known else np.full((3, bins), np.nan)
    curves = {"label_error": wrong_so_far, "nll": -running.sum(axis=1)}
    return Reduced(rows=rows, curves=curves, sums={"top_class": sums})


def _of_labels(block: Array, labels: Array) -> Array:
    """Return each label's log-probability [examples, positions]; of positions without one that of class 0."""
    at = np.maximum(labels, 0)[..., None]
    return np.take_along_axis(block[:, : labels.shape[1]], at, axis=2)[..., 0].astype(np.float64)


def _summed(log_p: Array, labels: Array) -> Array:
    return np.where(labels >= 0, log_p, 0.0).sum(axis=1)


def probabilities(
    model: nn.Module,
    samples: Iterable[Mapping[str, Any]],
    inputs: Tree,
    weights: Sequence[float] | None,
    axis: int,
) -> Array:
    """Return p̄ at every position of inputs [n, …], the classes last: [n, positions …, classes], float64.

    Inputs go through the network in parts whose probabilities take about `BLOCK` bytes, sample by sample.

    Args:
        model: overwritten by each sample.
        samples: their tensors, read once each in turn.
        weights: of the samples; None weighs all the same.
        axis: of the classes among the network's outputs.

    Raises:
        UserError: they are more than `MOST_NUMBERS`.
    """
    with one_at_a_time(), torch.no_grad():
        first = fed(tree.at(inputs, slice(1)), next(model.parameters()).dtype)
        shape = list(model(first).movedim(axis, -1).shape[1:])
    n, each = tree.size(inputs), int(np.prod(shape))
    allowed = f"have at most {MOST_NUMBERS // each:,} inputs, whose {each:,} probabilities each take 1 GiB"
    require(n * each <= MOST_NUMBERS, "x", n, allowed)
    step = max(1, BLOCK // (4 * each))
    parts = [tree.at(inputs, slice(start, start + step)) for start in range(0, n, step)]
    averages = [Average((tree.size(part) * each // shape[-1], shape[-1])) for part in parts]
    for s, tensors in enumerate(samples):
        for part, average in zip(parts, averages, strict=True):
            found = log_probabilities(model, tensors, part, axis=axis)
            average.add(found.reshape(-1, shape[-1]), 1.0 if weights is None else weights[s])
    return np.concatenate([average.mean for average in averages]).reshape(n, *shape)
