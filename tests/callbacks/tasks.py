"""Digits that wait for a listener."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raychains.tasks.digits import Digits


class Slowing(Digits):
    """Takes its time for each step of a process from the ``at``-th on, until the file exists."""

    def __init__(self, go: str, at: int) -> None:
        super().__init__()
        self.go, self.at, self._steps = go, at, 0

    def settings(self) -> dict[str, Any]:
        return {"go": self.go, "at": self.at}

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._steps += 1
        if self._steps >= self.at and not Path(self.go).exists():
            time.sleep(0.05)
        return super().backward(model, batch, generator)
