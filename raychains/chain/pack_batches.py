"""The minibatches of a pack's networks, prepared for several steps: the indices and weights of each row's examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.chain.pack_row import AHEAD, Member, Row
from raychains.core import gpus
from raychains.data.source import EpochOrder
from raychains.tasks.base import PredictiveTask


class PackBatches:
    """The coming steps' batches of all rows, each divided into the sampler's sub-batches.

    Args:
        chain: one of the pack's kind.
        theta: the pack's parameters, [rows, …].
    """

    def __init__(self, chain: Member, task: PredictiveTask, theta: Tensor) -> None:
        self._task, self._theta, self._parts = task, theta, chain.sampler.parts
        self.whole = chain.spec.steps_per_epoch == 1 and self._parts == 1
        """Every step is on the same examples, all of a row's data, which are gathered once."""
        self._batch = chain.spec.batch_size
        batch = min(self._batch, chain.num_data)
        self.size = -(-batch // self._parts)
        """Examples of a sub-batch."""
        self._even = chain.num_data % batch == 0 and batch % self._parts == 0
        self._indices = np.zeros((AHEAD * self._parts, len(theta), self.size), dtype=np.int64)
        self._weights = np.zeros((AHEAD * self._parts, len(theta), self.size))
        self._full = self._divided(batch)
        self._stale = True
        """The whole data of every row are to be gathered again."""
        self._targets = torch.empty(0)

    def join(self, row: Row) -> None:
        """Reserve the row of a chain that joins."""
        self._weights[:, row.index] = 1 / self.size
        self._stale = True

    def leave(self, row: Row) -> None:
        """Clear the row of a chain that leaves."""
        self._indices[:, row.index] = self._weights[:, row.index] = 0
        self._stale = True

    def prepare(self, rows: Iterable[Row], moving: Iterable[Row], steps: int) -> None:
        """Prepare the batches of the coming steps: of the rows that move, or of all rows where batches stay the
        same."""
        if self.whole and not self._stale:
            return
        for row in rows if self.whole else moving:
            self._fill(row, steps)
        batches = slice(steps * self._parts)
        device, dtype = self._theta.device, self._theta.dtype
        self._step_indices = gpus.sent(torch.from_numpy(self._indices[batches]), device)
        self._step_weights = gpus.sent(torch.from_numpy(self._weights[batches]).to(dtype), device)

    def _fill(self, row: Row, steps: int) -> None:
        """Write the row's indices of the coming steps, all of one epoch, and the weights of its examples."""
        epoch, position = divmod(row.chain.step, row.chain.spec.steps_per_epoch)
        order = row.chain.order(epoch)
        assert isinstance(order, EpochOrder)
        parts, at = self._parts, row.index
        ahead = 1 if self.whole else steps
        taken = order.permutation.numpy()[position * self._batch : (position + ahead) * self._batch]
        batch = min(self._batch, row.chain.num_data)
        full, rest = divmod(len(taken), batch)
        places, weights = self._full
        self._indices[: full * parts, at] = taken[: full * batch].reshape(full, batch)[:, places].reshape(-1, self.size)
        if not self._even or self._stale:
            self._weights.reshape(-1, parts, *self._weights.shape[1:])[:, :, at] = weights
        if rest:  # the last batch of an epoch is short
            last = slice(full * parts, (full + 1) * parts)
            places, self._weights[last, at] = self._divided(rest)
            self._indices[last, at] = taken[full * batch :][places]

    def _divided(self, examples: int) -> tuple[Any, Any]:
        """Return the places of each sub-batch's examples in a batch, [parts, size], and their weights; the rest have
        weight 0."""
        places, weights = np.zeros((self._parts, self.size), dtype=np.int64), np.zeros((self._parts, self.size))
        for part, own in enumerate(np.array_split(np.arange(examples), min(self._parts, examples))):
            places[part, : len(own)], weights[part, : len(own)] = own, 1 / len(own)
        return places, weights

    def of_step(self, number: int) -> range:
        """Return the numbers of the sub-batches of the ``number``-th of the prepared steps."""
        return range(number * self._parts, (number + 1) * self._parts)

    def parts(self, number: int, row: Row) -> int:
        """Return how many sub-batches a row's batch of that step has: a short batch may have fewer."""
        return int(np.count_nonzero(self._weights[self.of_step(number), row.index, 0]))

    def examples(self, part: int, row: Row) -> int:
        """Return how many examples a row has in the ``part``-th of the prepared sub-batches."""
        return int(np.count_nonzero(self._weights[0 if self.whole else part, row.index]))

    def take(self, part: int, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Fill in ``inputs`` [rows, values, examples] of the ``part``-th sub-batch; return its targets, [rows,
        examples, …], and weights."""
        at = 0 if self.whole else part
        if not self.whole or self._stale:
            indices = self._step_indices[at]
            found, targets = self._task.source.batch(indices.flatten())
            found = self._task.network_inputs(found, self._theta.dtype)
            self._targets = targets.unflatten(0, indices.shape)
            inputs.copy_(found.unflatten(0, indices.shape)[: len(inputs)].flatten(2).mT)
            self._stale = False
        return self._targets, self._step_weights[at]
