"""Digits with a mistake that a single rank of a group makes, once. Workers import it by its path."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from raychains.tasks.digits import Digits

HIDDEN = [8]


class Mistaken(Digits):
    """Raises on one rank, the first time that it comes so far: building the model, or in a step.

    Args:
        marker: a file that says it has happened.
        rank: that makes the mistake.
        step: of the process's first chain; 0 is building its model.
        pause: seconds of rest in every micro-batch, so that a chain lasts as long as a test needs; among several ranks
            the later ones take far longer, so that no chain ends while it is to be interrupted.
    """

    def __init__(self, marker: str, rank: int = 1, step: int = 0, pause: float = 0.0) -> None:
        super().__init__(train=100, hidden=HIDDEN)
        self.marker, self.rank, self.step, self.pause, self._steps = marker, rank, step, pause, 0

    def settings(self) -> dict[str, Any]:
        return {"marker": self.marker, "rank": self.rank, "step": self.step, "pause": self.pause}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._perhaps(0)
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._steps += 1
        time.sleep(self.pause * (40 if distributed.is_initialized() and self._steps > 100 else 1))
        self._perhaps(self._steps)
        return super().backward(model, batch, generator)

    def _perhaps(self, step: int) -> None:
        here = distributed.is_initialized() and distributed.get_rank() == self.rank
        if here and step == self.step and not Path(self.marker).exists():
            Path(self.marker).touch()
            raise ZeroDivisionError(f"rank {self.rank}'s own mistake")
