"""The order in which a prepared set's images are learned from: a function of the manifest and a seed alone.

Row groups are the unit of reading. They are permuted, cut into windows of W groups, and the rows of each window are
permuted together: a reader needs W groups in memory, and a batch mixes images of about all of them. The order depends
on neither ranks nor decoders nor the cluster's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
GROUPS, ROWS = 0, 1
"""Purposes of the random numbers: each has a stream of its own."""


def permutation(seed: int, purpose: int, number: int, size: int) -> Array:
    """Return a permutation of range(size), int64, from the Philox stream of (seed, purpose, number).

    The ranks of 64-bit random integers: the bits are those of the published generator in every version of numpy.
    """
    counter = [0, 0, purpose, number]
    raw = np.random.Philox(key=[seed & (2**64 - 1), 0], counter=counter).random_raw(size)
    return np.argsort(raw, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class Epoch:
    """One epoch's order."""

    indices: Array
    """Every index of the set once, int64 [images], in the order of learning."""
    place: Array
    """The place of each row group in the order in which groups are read, int64 [groups]; place // W is its window."""


def epoch_order(rows: Sequence[int], seed: int, window: int) -> Epoch:
    """Return the order of the epoch with this seed, of row groups of so many ``rows`` each in the order of storage."""
    counts = np.asarray(rows, dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)])
    groups = permutation(seed, GROUPS, 0, len(counts))
    parts = [np.zeros(0, dtype=np.int64)]
    for number, begin in enumerate(range(0, len(groups), window)):
        inside = np.concatenate([np.arange(first[g], first[g + 1]) for g in groups[begin : begin + window]])
        parts.append(inside[permutation(seed, ROWS, number, len(inside))])
    return Epoch(np.concatenate(parts), np.argsort(groups, kind="stable").astype(np.int64))


@dataclass(frozen=True)
class Part:
    """One rank's share of a global batch, or all of it."""

    seed: int
    """Seed of the epoch: crops are drawn from it and the image's index."""
    indices: Array
    """int64 [images]."""
    step: int
    """The batch's place in its epoch, from 0."""
    start: int = 0
    """Index in the batch at which the part begins."""

    def __len__(self) -> int:
        return len(self.indices)

    def slice(self, first: int, parts: int, last: int | None = None) -> Part:
        """Return the ``first``-th of ``parts`` contiguous pieces, whose lengths differ by one at most; or those before
        ``last``."""
        low, high = (len(self) * n // parts for n in (first, first + 1 if last is None else last))
        return Part(self.seed, self.indices[low:high], self.step, self.start + low)


class ShardedOrder(Sequence[Part]):
    """An epoch's batches; the last may be shorter. Resuming in mid-epoch needs a position only."""

    def __init__(self, rows: Sequence[int], batch_size: int, seed: int, window: int) -> None:
        self.seed, self.batch_size, self.window = seed, batch_size, window
        self.epoch = epoch_order(rows, seed, window)

    def __len__(self) -> int:
        return -(-len(self.epoch.indices) // self.batch_size)

    def __getitem__(self, i: int) -> Part:  # type: ignore[override]  # no slices
        if not 0 <= i < len(self):
            raise IndexError(i)
        return Part(self.seed, self.epoch.indices[i * self.batch_size : (i + 1) * self.batch_size], i)
