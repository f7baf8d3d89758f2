"""A task for tests on several nodes: its chains say where they are, and wait in their middle until they may go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.orchestration.tasks import Bulky


class Gated(Bulky):
    """Beside waiting for ``folder/go``, it leaves a line in ``folder/places`` each time that it begins."""

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        if self._steps == 0:
            self._say_where()
        return super().backward(model, batch, generator)

    def _say_where(self) -> None:
        import ray

        context = ray.get_runtime_context()
        if context.get_actor_id() is not None:  # else a test runs the chain itself
            with (Path(self.folder) / "places").open("a") as f:
                gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
                f.write(f"{context.get_node_id()} {os.getpid()} {gpus} {context.get_actor_name()}\n")


def places(folder: Path) -> list[dict[str, str]]:
    """Where chains began so far."""
    try:
        lines = (folder / "places").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [dict(zip(("node", "pid", "gpus", "actor"), line.split(" "), strict=True)) for line in lines]
