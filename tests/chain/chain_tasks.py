"""Variants of the digits task for tests of chains: BatchNorm, dropout, a prior of its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import priors
from raychains.tasks.base import seeded
from raychains.tasks.digits import Digits


class VariedDigits(Digits):
    """Digits under a small network that may have BatchNorm and dropout, and a Gaussian prior of standard deviation
    ``std``."""

    def __init__(
        self, train: int = 90, batchnorm: bool = False, dropout: float = 0.0, std: float | None = None
    ) -> None:
        super().__init__(train=train, hidden=[8])
        self._own = {"train": train, "batchnorm": batchnorm, "dropout": dropout, "std": std}
        self._batchnorm, self._dropout = batchnorm, dropout
        self.prior = None if std is None else priors.Gaussian(std=std)

    def settings(self) -> dict[str, Any]:
        return self._own

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            middle: list[nn.Module] = [nn.BatchNorm1d(8)] if self._batchnorm else []
            middle += [nn.ReLU(), nn.Dropout(self._dropout)] if self._dropout else [nn.ReLU()]
            return nn.Sequential(nn.Linear(64, 8), *middle, nn.Linear(8, 10))

    def raw(self) -> torch.Tensor:
        """The training images [N, 64]."""
        return self.source.inputs


class RestlessDigits(VariedDigits):
    """Digits under a network that draws from Python's and NumPy's generators and counts in a buffer that no state
    has."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        return nn.Sequential(super().build_model(seed=seed, lanes=lanes), _Restless())


class _Restless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * (random.gauss(1, 0.1) + 0.1 * np.random.randn() + 1 / self.count)
