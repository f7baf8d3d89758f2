"""A task for tests on several nodes: its chains say where they are, and wait in their middle until they may go on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.orchestration.tasks import Mixture


class Gated(Mixture):
    """Waits at step ``at`` until ``folder/go`` exists; ``folder/places`` has a line for each time that it began."""

    def __init__(self, folder: str, at: int) -> None:
        super().__init__()
        self.folder, self.at, self._steps = folder, at, 0

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._steps = 0
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._steps += 1
        if self._steps == 1:
            self._say_where()
        time.sleep(0.001)  # a checkpoint comes before the wait, however fast the machine is
        while self._steps == self.at and not (Path(self.folder) / "go").exists():
            time.sleep(0.02)
        return super().backward(model, batch, generator)

    def _say_where(self) -> None:
        import ray

        context = ray.get_runtime_context()
        if context.get_actor_id() is not None:  # else a test runs the chain itself
            with (Path(self.folder) / "places").open("a") as f:
                gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
                f.write(f"{context.get_node_id()} {os.getpid()} {gpus} {context.get_actor_name()}\n")


def places(folder: Path) -> list[dict[str, str]]:
    try:
        lines = (folder / "places").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [dict(zip(("node", "pid", "gpus", "actor"), line.split(" "), strict=True)) for line in lines]
