"""A person's own module beside raychains/ and jobs/: a small classification whose forward pass takes its time.

It is copied into a job's working directory and imported there as ``slowtask``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

import raychains as rc


class Slow(torch.nn.Module):
    """Says in a file from where the process that runs it has this module and raychains."""

    def __init__(self, pause: float, note: str) -> None:
        super().__init__()
        self.layer, self.pause, self.passes = torch.nn.Linear(3, 2), pause, 0
        if note:
            (Path(note) / str(time.time_ns())).write_text(f"{os.getpid()}\n{__file__}\n{rc.__file__}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        time.sleep(self.pause * (self.passes > 40))
        return self.layer(x)


def make(note: str = "") -> rc.Task:
    """How long a late pass takes is no part of the task, so that a test can repeat it without: a file of the folder says it."""
    pause = float((Path(note) / "pause").read_text()) if note else 0.0
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g)
    y = (x[:, 0] > 0).long()
    return rc.Task.from_module(lambda: Slow(pause, note), (x[:40], y[:40]), (x[40:], y[40:]), name="slow")
