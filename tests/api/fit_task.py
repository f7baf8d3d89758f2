"""The task of the fit's tests, and a callback that kills its process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import raychains as rc
from raychains.core.sample import tensors_sha256
from raychains.planning.events import ChainFinished


def waves() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return 96 training and 40 test examples of a regression whose noise grows."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(136, 1, generator=g) * 4 - 2
    y = torch.sin(2 * x[:, 0]) + (0.1 + 0.1 * (x[:, 0] > 0)) * torch.randn(136, generator=g)
    return (x[:96], y[:96]), (x[96:], y[96:])


def make_task(title: str = "waves") -> rc.Task:
    """Return the posterior of a small network on `waves`."""
    return rc.Task.from_module(Net, *waves(), "heteroscedastic", name=title)


class Net(nn.Sequential):
    """A small network with the outputs of a heteroscedastic regression."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))


class Dies:
    """Kills its process when a chain is finished and a file is there, which the environment names."""

    def __init__(self, **about: Any) -> None:
        self.once = Path(os.environ["DIES_ONCE"])

    def on(self, event: Any) -> None:
        """Look for the file."""
        if isinstance(event, ChainFinished) and self.once.exists():
            os.kill(os.getpid(), signal.SIGKILL)


def samples(store: str) -> dict[str, set[str]]:
    """Return the hashes of each sample's tensors by chain, index and variable; of equal ones of several attempts there
    is one."""
    found: dict[str, set[str]] = {}
    for file in sorted((Path(store) / "chains").glob("*/samples/[!.]*")):
        name = f"{file.parts[-3]}/{file.stem.rpartition('-')[0]}"
        found.setdefault(name, set()).add(tensors_sha256(load_file(file)))
    return found
