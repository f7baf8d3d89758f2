"""Digits that count the gradients that are made of them. Workers import them by their path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tests.sweeps.tasks import Guarded


class Counted(Guarded):
    """Each process appends a byte to its own file in ``folder`` for each gradient of a micro-batch."""

    def __init__(self, folder: str, pause: float = 0.0, val_split: float = 0.0) -> None:
        super().__init__(pause, val_split)
        self.folder = folder

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder, **super().settings()}

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        with Path(self.folder, str(os.getpid())).open("ab") as file:
            file.write(b".")
        return super().backward(model, batch, generator)


def counts(folder: Path) -> dict[int, int]:
    """Gradients by process."""
    return {int(file.name): file.stat().st_size for file in folder.iterdir()}
