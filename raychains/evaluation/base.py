"""What a split can be asked: one sample's block per shard, a view's rows per shard, and metrics of all rows.

A *block* is what one sample predicts on one shard. A *view* (a selection of samples) reduces its blocks shard by
shard to *rows*, one per example, so that memory is bounded by shards and not by samples. Metrics are plain functions
of all rows, because AUROC, equal-mass bins and bootstraps cannot be merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a measured quantity is called and read."""

    name: str
    """Key in result rows and tables."""
    label: str
    """For people, with the unit."""
    better: Literal["lower", "higher"]
    scale: float = 1.0
    """Multiplied in when shown (100 for per cent)."""
    digits: int = 3
    """Digits behind the point when shown."""


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """One view on one shard."""

    rows: Mapping[str, Array]
    """Columns with one entry per example (classification) or per lane (densities) on axis 0."""
    curves: Mapping[str, Array]
    """Sums over the shard's examples for the view's first 1, 2, … samples, on axis 0."""


class Evaluation(ABC):
    """One split of one task, with pure functions from samples to metrics."""

    metrics: ClassVar[tuple[Metric, ...]]

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
    def reduce(self, blocks: Sequence[Array], shard: int) -> Reduced:
        """Rows and curves of the equally weighted predictive of ``blocks``, one per sample, in the view's order."""

    @abstractmethod
    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        """Metrics from every shard's rows: one dict per repeat that the view holds (lanes are repeats)."""

    @abstractmethod
    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        """Per repeat, metrics of the view's first 1, 2, … samples."""


def gather(parts: Sequence[Reduced]) -> dict[str, Array]:
    """The columns of all shards, concatenated in the shards' order."""
    return {name: np.concatenate([p.rows[name] for p in parts]) for name in parts[0].rows}


def add_curves(parts: Sequence[Reduced]) -> dict[str, Array]:
    """The curves' sums over all shards."""
    return {name: np.sum([p.curves[name] for p in parts], axis=0) for name in parts[0].curves}
