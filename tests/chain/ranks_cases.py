"""A small chain in micro-batches, for one process and for several: dropout, and BatchNorm or GroupNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from raychains.core.spec import ChainSpec
from raychains.data.source import Resident
from raychains.schedules import Cyclical
from raychains.tasks.base import seeded
from raychains.tasks.user_model import adapt
from tests.chain import chain_cases
from tests.chain.chain_tasks import VariedDigits

BATCH, STEPS = 24, 24


class GroupNormDigits(VariedDigits):
    """GroupNorm and dropout between two linear layers."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return nn.Sequential(nn.Linear(64, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 10))


class PlainDigits(VariedDigits):
    """One linear layer: nothing depends on how a batch is divided."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return nn.Sequential(nn.Linear(64, 10))


class BranchDigits(VariedDigits):
    """A layer that some micro-batches alone use, a parameter that none does, and buffers of other dtypes; inputs are
    dicts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.source = Resident({"input": self.source.inputs}, self.source.targets)

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return adapt(nn.Sequential(nn.Linear(64, 10), _Branch()), None)


class _Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(10, 10), nn.Parameter(torch.randn(3))
        for name, kind in (("levels", torch.int16), ("angles", torch.complex64), ("time", torch.float64)):
            self.register_buffer(name, torch.randn(3).mul(10).to(kind))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x) if bool(x.argmax() % 2) else x
        return out


def task(norm: str = "batch") -> VariedDigits:
    """With 90 training images: 4 batches of 24 an epoch, the last of 18."""
    if norm == "batch":
        return VariedDigits(batchnorm=True, dropout=0.2)
    if norm == "branch":
        return BranchDigits()
    return GroupNormDigits(dropout=0.2) if norm == "group" else PlainDigits()


def chain_spec(micro_batch: int | None, *, norm: str = "batch", sampler: str = "sghmc", **change: Any) -> ChainSpec:
    """SGHMC unless said otherwise, in two cycles."""
    made = task(norm)
    settings = {"weight_decay": 1e-3, "momentum": 0.9}
    schedule = Cyclical(
        steps=STEPS, lr=0.1, cycles=2, exploration=0.25, samples_per_cycle=2, thinning=2,
        temperature=chain_cases.temperature_of(sampler),
    )  # fmt: skip
    fields = {"steps_per_epoch": 4, "batch_size": BATCH, "micro_batch": micro_batch, **change}
    return chain_cases.chain_spec(made, sampler, schedule, settings, **fields)
