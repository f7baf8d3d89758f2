"""A chain's training losses: their mean since its last progress record, and those that its samples are judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from raychains.core import gpus


class Losses:
    """The minibatch losses of a chain since its last progress record; a density has none."""

    def __init__(self, device: torch.device) -> None:
        self.sum: Tensor = torch.zeros((), dtype=torch.float64, device=device)
        self.count = 0
        """Steps that the sum is of."""
        self.start: float | None = None
        """The lower of the first minibatch's and the first record's; None of densities, and after a checkpoint without
        it."""
        self.recorded: float | None = None
        """The last progress record's, before the first record the first minibatch's."""

    def add(self, loss: Tensor) -> None:
        """Add a step's mean minibatch loss."""
        self.sum += loss
        self.count += 1

    def move(self, place: Tensor) -> None:
        """Keep the sum in ``place`` from now on."""
        place.copy_(self.sum)
        self.sum = place

    def begin(self) -> None:
        """Note the loss of a chain's first step."""
        if self.count:
            self.start = self.recorded = finite(self.sum)

    def mean(self, second: Tensor | None) -> tuple[float | None, float | None]:
        """Return the mean, None without losses, and another number, None if it is not finite.

        The device is waited for once.
        """
        second = second.double() if second is not None else None  # a user's may be less
        if self.count == 0:
            return None, finite(second)
        both = gpus.value(self.sum if second is None else torch.complex(self.sum, second))
        return both.real / self.count, None if second is None else finite(both.imag)

    def record(self, mean: float | None, *, first: bool) -> None:
        """Note a progress record's mean, the chain's ``first`` or a later one, and begin anew."""
        self.sum.zero_()
        self.count = 0
        self.recorded = mean
        if first and mean is not None and self.start is not None:
            self.start = min(self.start, mean)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs, as entries of the chain's state."""
        return {
            "loss_sum": self.sum,
            "loss_count": self.count,
            "start_loss": self.start,
            "recorded_loss": self.recorded,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a chain's state; those of older versions have neither first nor last loss."""
        self.sum = state["loss_sum"].to(self.sum.device).clone()
        self.count = state["loss_count"]
        self.start, self.recorded = state.get("start_loss"), state.get("recorded_loss")


def finite(value: Tensor | float | None) -> float | None:
    """Return a number where it is finite, else None; a GPU is waited for."""
    if isinstance(value, Tensor):
        value = float(gpus.value(value))
    return value if value is not None and math.isfinite(value) else None
