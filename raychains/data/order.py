"""Seeded minibatch order: an epoch is a random-access sequence of index tensors, so resuming needs only a position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor


class EpochOrder(Sequence[Tensor]):
    """A permutation of ``range(n)`` cut into batches of ``batch_size``; the last may be shorter.

    The permutation depends on ``seed`` alone, so the same (seed, epoch) gives the same batches anywhere.
    """

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self._batch_size = batch_size
        self._order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return math.ceil(len(self._order) / self._batch_size)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> list[Tensor]: ...
    def __getitem__(self, i: int | slice) -> Tensor | list[Tensor]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self._order[i * self._batch_size : (i + 1) * self._batch_size]
