"""A regression whose evaluators die of one network, once. Workers import it by path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.data.source import EpochOrder
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.regression import Regression
from raychains.tasks.base import Task, seeded
from tests.measures.made import DIM, N, data


class Deadly(Task):
    """A linear network; the one whose third weight is 4 ends the process that predicts with it.

    Args:
        marker: a file that remembers that it happened.
    """

    predicts, noise, num_data, fingerprint = "gaussian", 1.0, N, "deadly"

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self._x, self._y = data(0)

    def settings(self) -> dict[str, Any]:
        return {"marker": self.marker}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return nn.Linear(DIM, 1)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return EpochOrder(N, batch_size, seed)

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        return F.mse_loss(model(self._x[batch])[:, 0], self._y[batch]) / 2

    def to(self, device: torch.device) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"test": _Split(self, *data(1), "test"), "train": _Split(self, *data(0), "train")}


class _Split(Regression):
    def __init__(self, task: Deadly, x: Tensor, y: Tensor, name: str) -> None:
        model = task.build_model(seed=0, lanes=1)
        super().__init__(model=model, inputs=x, targets=y.numpy(), noise=1.0, fingerprint=name)
        self._marker = Path(task.marker)

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        if float(tensors["weight"][0, 2]) == 4 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), 9)
        return super().predict(tensors, shard)
