"""Where a chain's batches come from: tensors that live on its device, or anything else with the same two methods."""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import Tensor

from raychains.data.order import EpochOrder


class Source(Protocol):
    """Examples by index, as pairs of tensors on the chain's device."""

    def __len__(self) -> int:
        """Number of examples."""

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [n, …] and targets [n, …] of the examples ``indices`` [n] int64, in their order."""

    def to(self, device: torch.device) -> Self:
        """Give batches on ``device`` from now on; returns itself."""

    def follow(self, order: EpochOrder) -> None:
        """The batches that will be asked for next, so that they can be made ready ahead."""


class Resident:
    """A data set as two tensors that live on the chain's device.

    Args:
        inputs: [n, …], e.g. uint8 images.
        targets: [n, …].
    """

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the examples ``indices``, in their order."""
        indices = indices.to(self.inputs.device)
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)

    def to(self, device: torch.device) -> Self:
        """Move both tensors to ``device``."""
        self.inputs, self.targets = self.inputs.to(device), self.targets.to(device)
        return self

    def follow(self, order: EpochOrder) -> None:
        """Nothing to make ready."""
