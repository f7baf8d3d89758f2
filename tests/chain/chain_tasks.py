"""Variants of the digits task for tests of chains: BatchNorm, dropout, a prior of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from raychains import priors
from raychains.tasks.base import seeded
from raychains.tasks.digits import Digits


class VariedDigits(Digits):
    """Digits under a small network that may have BatchNorm and dropout, and a Gaussian prior of standard deviation ``std``."""

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
