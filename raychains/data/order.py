"""Seeded minibatch order: an epoch is a random-access sequence of index tensors, so resuming needs only a position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, overload

import torch
from torch import Tensor


class EpochOrder(Sequence[Tensor]):
    """A permutation of ``range(n)`` cut into batches of ``batch_size``; the last may be shorter.

    The permutation depends on ``seed`` alone, so the same (seed, epoch) gives the same batches anywhere.
    """

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.batch_size = batch_size
        self.permutation = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        """int64 [n], in main memory."""
        self._order = self.permutation

    def to(self, device: torch.device) -> Self:
        """Give index tensors on ``device`` from now on, beside the data; returns itself."""
        self._order = self.permutation.to(device)
        return self

    def place(self, indices: Tensor) -> slice | None:
        """Where in the permutation ``indices`` lies, if it is a batch of this order or a contiguous part of one.

        Told from the tensor's memory, so that nothing is compared and no device waited for; None for any other tensor.
        """
        same = indices.untyped_storage().data_ptr() == self._order.untyped_storage().data_ptr()
        if not same or indices.ndim != 1 or indices.dtype != torch.int64 or not indices.is_contiguous():
            return None
        return slice(indices.storage_offset(), indices.storage_offset() + len(indices))

    def __len__(self) -> int:
        return math.ceil(len(self._order) / self.batch_size)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> list[Tensor]: ...
    def __getitem__(self, i: int | slice) -> Tensor | list[Tensor]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self._order[i * self.batch_size : (i + 1) * self.batch_size]
