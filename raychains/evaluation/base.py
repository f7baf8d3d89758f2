"""What a split can be asked: one sample's block per shard, a view's rows per shard, and metrics of all rows.

A *block* is what one sample predicts on one shard. A *view* (a selection of samples) reduces its blocks shard by
shard to *rows*, one per example, so that memory is bounded by shards and not by samples. Metrics are plain functions
of all rows, because AUROC, equal-mass bins and bootstraps cannot be merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from raychains.errors import UserError, require

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]
"""A view's columns, one entry per example on axis 0."""
BINS = 15
"""Bins of confidence, as in Guo et al. 2017."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a measured quantity is called and read."""

    name: str
    """Key in result rows and tables."""
    label: str
    """For people, with the unit."""
    better: Literal["lower", "higher", "neither"]
    """``neither`` where no end is the better one: entropies of labelled inputs, the coverage of an interval."""
    scale: float = 1.0
    """Multiplied in when shown (100 for per cent)."""
    digits: int = 3
    """Digits behind the point when shown."""
    minor: bool = False
    """Whether it stands in the result files and in the page's second table only."""


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """One view on one shard."""

    rows: Mapping[str, Array]
    """Columns with one entry per example (classification) or per lane (densities) on axis 0."""
    curves: Mapping[str, Array]
    """Sums over the shard's examples for the view's first 1, 2, … samples, on axis 0."""
    sums: Mapping[str, Array] = field(default_factory=dict)
    """Other sums over the shard's examples, whatever their shape: what metrics need that rows cannot hold."""


class Evaluation(ABC):
    """One split of one task, with pure functions from samples to metrics."""

    metrics: ClassVar[tuple[Metric, ...]]
    bins: int = BINS
    """Bins of calibration errors; asked for by `reduce` and `summarise`."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the split's inputs: with a sample's sha256 it names a block."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """How many shards the split has."""

    def warm(self) -> None:  # noqa: B027  nothing to import is a fine answer
        """Import what `summarise` needs, ahead of need."""

    def to(self, device: torch.device) -> None:  # noqa: B027  most predictions need no device
        """Predict on ``device`` from now on; blocks are arrays of the CPU wherever they are made."""

    @abstractmethod
    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """The block of one sample (its named tensors) on one shard."""

    @abstractmethod
    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        """Rows and curves of the predictive of ``blocks``, one per sample, in the view's order.

        Args:
            blocks: what `predict` gave.
            shard: which.
            weights: of the samples, [samples], not negative; None, like equal ones, gives every sample the same. A
                curve's first n samples have these weights renormalised, and no value while they are 0.

        Raises:
            UserError: weights that are not equal, of a task that has no use for them.
        """

    @abstractmethod
    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        """Metrics from every shard's rows: one dict per repeat that the view holds (lanes are repeats)."""

    @abstractmethod
    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        """Per repeat, metrics of the view's first 1, 2, … samples."""


def normalised(weights: Sequence[float] | None, samples: int) -> Array | None:
    """Weights [samples] with the sum 1; None where every sample counts the same.

    Raises:
        UserError: another number of them than samples, one that is negative or not finite, or a sum of 0.
    """
    if weights is None:
        return None
    found = np.asarray(weights, dtype=np.float64)
    require(found.shape == (samples,), "weights", found.shape, f"have the shape ({samples},), one for each sample")
    ok = bool(np.isfinite(found).all() and (found >= 0).all() and (found > 0).any())
    require(ok, "weights", found.tolist(), "be finite, not negative and not all 0")
    if (found == found[0]).all():
        return None
    scaled = found / found.max()
    return scaled / scaled.sum()


def only_equal(weights: Sequence[float] | None, samples: int, what: str) -> None:
    """Refuse weights where samples can only count the same.

    Raises:
        UserError: they are not equal.
    """
    if normalised(weights, samples) is not None:
        raise UserError(f"weights must be equal for {what}: every draw counts the same there")


def gather(parts: Sequence[Reduced]) -> dict[str, Array]:
    """The columns of all shards, concatenated in the shards' order."""
    return {name: np.concatenate([p.rows[name] for p in parts]) for name in parts[0].rows}


def add_curves(parts: Sequence[Reduced]) -> dict[str, Array]:
    """The curves' sums over all shards."""
    return {name: np.sum([p.curves[name] for p in parts], axis=0) for name in parts[0].curves}


def add_sums(parts: Sequence[Reduced]) -> dict[str, Array]:
    """The other sums over all shards."""
    return {name: np.sum([p.sums[name] for p in parts], axis=0) for name in parts[0].sums}
