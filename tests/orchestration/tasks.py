"""Tasks for tests of the orchestration: slow, failing or dying on purpose. Workers import them by path."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raychains.tasks.mixture import Mixture25


class Paced(Mixture25):
    """The mixture with a pause in every step, so that a chain lasts as long as a test needs."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self.pause = pause

    def settings(self) -> dict[str, Any]:
        return {"pause": self.pause}

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        time.sleep(self.pause)
        return super().backward(model, batch, generator)


class Broken(Mixture25):
    """Raises in the chain whose first lane starts on the given side of the origin: a bug in a user's model."""

    def __init__(self, negative: bool = True) -> None:
        super().__init__()
        self.negative, self._steps = negative, 0

    def settings(self) -> dict[str, Any]:
        return {"negative": self.negative}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = super().build_model(seed=seed, lanes=lanes)
        self._steps, self._bad = 0, bool(next(model.parameters())[0, 0] < 0) is self.negative
        return model

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._steps += 1
        if self._bad and self._steps == 30:
            raise ZeroDivisionError("the user's own mistake")
        return super().backward(model, batch, generator)


class Dying(Mixture25):
    """Ends its process once, in the middle of a step, as a preempted machine would; a file remembers that it did."""

    def __init__(self, marker: str, at: int = 500) -> None:
        super().__init__()
        self.marker, self.at, self._steps = marker, at, 0

    def settings(self) -> dict[str, Any]:
        return {"marker": self.marker, "at": self.at}

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._steps += 1
        if self._steps == self.at and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), 9)
        return super().backward(model, batch, generator)
