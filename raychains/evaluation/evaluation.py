"""The interface of an evaluation: blocks of samples, rows of views, metrics.

A *block* is what one sample predicts on one shard of a split. A *view* (a selection of samples) reduces its blocks
shard by shard to *rows*, one per example, so that memory is bounded by shards and not by samples. Metrics are plain
functions of all rows, because AUROC, equal-mass bins and bootstraps cannot be merged.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from raychains.core import tree
from raychains.core.errors import UserError, require
from raychains.core.sample import check_tensors
from raychains.core.tree import Tree
from raychains.core.validation import integer, is_number, one_of, true_or_false

if TYPE_CHECKING:
    import torch
    from torch import nn

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]
"""A view's columns, one entry per example on axis 0."""
BINS = 15
"""Bins of confidence, as in Guo et al. 2017."""
SHARD = 1000
"""Examples per shard at most."""
_LOADED = threading.RLock()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The name of a measured quantity and how it is shown."""

    name: str
    """Key in result rows and tables."""
    label: str
    """For people, with the unit."""
    better: Literal["lower", "higher", "neither"]
    """``neither`` where no end is the better one: entropies of labelled inputs, the coverage of an interval."""
    scale: float = 1.0
    """Multiplied in when shown (100 for per cent)."""
    digits: int = 3
    """Digits after the decimal point when shown."""
    minor: bool = False
    """True if it stands in the result files and in the page's second table only."""
    of: Callable[[Rows], float] | None = None
    """A user's function of all rows of a view: columns by name, one entry per example on axis 0. None of built-in
    metrics."""

    def __post_init__(self) -> None:
        for name, text in (("name", self.name), ("label", self.label)):
            require(isinstance(text, str) and text != "", name, text, "be a text")
        one_of("better", self.better, ("lower", "higher", "neither"))
        require(is_number(self.scale), "scale", self.scale, "be a finite number")
        integer("digits", self.digits, 0, 20)
        true_or_false("minor", self.minor)
        require(self.of is None or callable(self.of), "of", self.of, "be a function of rows")


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
    """Bins of calibration errors, used by `reduce` and `summarise`; `configure` sets them."""

    def configure(self, *, bins: int | None, device: torch.device | None) -> Self:
        """Set the bins of calibration errors and the device of predictions, where they are given; return the
        evaluation."""
        if bins is not None:
            self.bins = bins
        if device is not None:
            self.to(device)
        return self

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the split's inputs: with a sample's sha256 it names a block."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """The number of the split's shards."""

    @property
    def per_shard(self) -> int:
        """The number of examples of a shard, but for the last one."""
        return SHARD

    def range_of(self, shard: int) -> slice:
        """Return where the examples of a shard are among the split's."""
        return slice(shard * self.per_shard, (shard + 1) * self.per_shard)

    @property
    def predicted_bytes(self) -> int:
        """Bytes of one sample's blocks of all shards; 0 where that is not known."""
        return 0

    def warm(self) -> None:  # noqa: B027  nothing to import is a fine answer
        """Import what `summarise` needs, ahead of need."""

    def to(self, device: torch.device) -> None:  # noqa: B027  most predictions need no device
        """Predict on ``device`` from now on; blocks are arrays of the CPU wherever they are made."""

    @abstractmethod
    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return the block of one sample (its named tensors) on one shard."""

    @abstractmethod
    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        """Return rows and curves of the predictive of ``blocks``, one per sample, in the view's order.

        Args:
            blocks: results of `predict`.
            shard: the shard's number.
            weights: of the samples, [samples], not negative; None, like equal ones, gives every sample the same. A
                curve's first n samples have these weights renormalised, and no value while they are 0.

        Raises:
            UserError: weights that are not equal, of a task that has no use for them.
        """

    def log_likelihoods(self, block: Array, shard: int) -> Array:
        """Return log p(y | x, θ) of each example of a shard, [examples], from one sample's block; nats.

        Raises:
            UserError: the split has no targets.
        """
        rows = self.reduce([block], shard).rows
        name = next((name for name in ("log_p_label", "log_p") if name in rows), None)
        if name is None:
            raise UserError("split must have targets for the likelihood of its examples")
        return np.asarray(rows[name], dtype=np.float64)

    @abstractmethod
    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        """Return the metrics of every shard's rows: one dict per repeat that the view holds (lanes are repeats)."""

    def measure(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        """Return `summarise` with the user's metrics; one that raises is nan, and a warning says why."""
        found, own = self.summarise(parts), [metric for metric in self.metrics if metric.of is not None]
        rows = gather(parts) if own else {}
        values = {metric.name: _own(metric, rows) for metric in own}
        return [{**one, **values} for one in found]

    @abstractmethod
    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        """Return, per repeat, the metrics of the view's first 1, 2, … samples."""


def _own(metric: Metric, rows: Rows) -> float:
    assert metric.of is not None
    try:
        return float(metric.of(rows))
    except Exception:  # the evaluation ends hours of sampling
        log.warning("metric %s could not be computed", metric.name, exc_info=True)
        return float("nan")


class Sharded(Evaluation):
    """Base of splits that a network predicts on, in shards of their inputs, on its device.

    Args:
        model: network of the inputs; its parameters are overwritten by each sample.
        inputs: [examples, …], or an object that reads them by range on demand.
    """

    def __init__(self, *, model: nn.Module, inputs: Any) -> None:
        import torch

        self._model, self.inputs = model.eval(), inputs
        self._device = torch.device("cpu")

    @property
    def examples(self) -> int:
        """Their number."""
        return len(self.inputs)

    @property
    def shards(self) -> int:
        return -(-self.examples // self.per_shard)

    def _inputs(self, shard: int) -> Tree:
        """Return a shard's inputs on the network's device."""
        return tree.sent(self.inputs[self.range_of(shard)], self._device)

    def to(self, device: torch.device) -> None:
        self._model, self._device = self._model.to(device), device


class DrawSums(Evaluation):
    """Base of evaluations of a density's draws, lane by lane, since lanes are repeats.

    A sample's block [lanes, …] holds sums over its draws; blocks add up, over time and over the chains of an arm.
    """

    column: ClassVar[str] = "sums"
    """The name of the sums among the rows."""

    @property
    def shards(self) -> int:
        return 1

    @abstractmethod
    def compare(self, sums: Array) -> dict[str, Array]:
        """Return metrics, each [..., lanes], of sums [..., lanes, k]."""

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        if normalised(weights, len(blocks)) is not None:
            raise UserError("weights must be equal for a density: every draw counts the same there")
        if len({block.shape for block in blocks}) > 1:
            raise UserError(f"samples must have equally many lanes, got {sorted({len(block) for block in blocks})}")
        running = np.cumsum(np.stack(blocks), axis=0)
        return Reduced(rows={self.column: running[-1]}, curves=self.compare(running))

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        found = self.compare(gather(parts)[self.column])
        return [
            {name: float(v) for name, v in zip(found, lane, strict=True)} for lane in zip(*found.values(), strict=True)
        ]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        curves = add_curves(parts)
        lanes = next(iter(curves.values())).shape[1]
        return [{name: v[:, lane].tolist() for name, v in curves.items()} for lane in range(lanes)]


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold other threads up while a network has a sample's tensors: with one network they would mix their samples."""
    with _LOADED:
        yield


def load_sample(model: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Give a network a sample's tensors.

    Raises:
        UserError: they are none of this network's.
    """
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError:
        check_tensors(tensors, model.state_dict())
        raise  # the device's


def fed(inputs: Tree, dtype: torch.dtype) -> Tree:
    """Return a copy of inputs for a network of ``dtype``, whose forward pass may change it; integers stay integers."""
    return tree.cast(inputs, dtype, copy=True)


def draws_of(tensors: Mapping[str, Any], dim: int) -> Array:
    """Return the draws [draws, lanes, dim] in a density's sample.

    Raises:
        UserError: it has none, or of another dimension.
    """
    found = np.asarray(tensors.get("theta", np.empty(0)))
    if found.ndim != 3 or found.shape[2] != dim:
        raise UserError(f"sample must have draws 'theta' of shape [draws, lanes, {dim}], got {list(found.shape)}")
    return found


def normalised(weights: Sequence[float] | None, samples: int) -> Array | None:
    """Return weights [samples] with the sum 1; None where every sample counts the same.

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


def joined(blocks: Sequence[Array]) -> Array:
    """Return a sample's blocks of all shards as one, [examples, …].

    Of a label per position, shards of shorter examples get zeros behind their own positions.
    """
    if len({block.shape[1:] for block in blocks}) > 1:
        most = max(block.shape[1] for block in blocks)
        blocks = [np.pad(block, ((0, 0), (0, most - block.shape[1]), (0, 0))) for block in blocks]
    return np.concatenate(blocks)


def gather(parts: Sequence[Reduced]) -> dict[str, Array]:
    """Return the columns of all shards, concatenated in the shards' order."""
    return {name: np.concatenate([p.rows[name] for p in parts]) for name in parts[0].rows}


def add_curves(parts: Sequence[Reduced]) -> dict[str, Array]:
    """Return the curves' sums over all shards."""
    return {name: np.sum([p.curves[name] for p in parts], axis=0) for name in parts[0].curves}


def add_sums(parts: Sequence[Reduced]) -> dict[str, Array]:
    """Return the other sums over all shards."""
    return {name: np.sum([p.sums[name] for p in parts], axis=0) for name in parts[0].sums}


def finite(values: Any, field: str) -> Array:
    """Return ``values`` as float64; raise `UserError` where one is not finite, as what a diverged network predicts."""
    out = np.asarray(values, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(out))
    if len(wrong):
        raise UserError(f"{field} must be finite, got {out.flat[wrong[0]]} as number {wrong[0]} of {out.size}")
    return out
