"""A person's own module beside raychains/ and jobs/: a small classification whose forward pass takes its time.

It is copied into a job's working directory and imported there as ``slowtask``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

import torch

import raychains as rc


class Slow(torch.nn.Module):
    """Says in a file which process made it, and from where that has this module, raychains, Python and
    ``extra_ten``."""

    def __init__(self, pause: float, note: str) -> None:
        super().__init__()
        self.layer, self.pause, self.passes = torch.nn.Linear(3, 2), pause, 0
        if note:
            extra = importlib.util.find_spec("extra_ten")
            places = (os.getpid(), __file__, rc.__file__, sys.prefix, extra.origin if extra else "")
            (Path(note) / str(time.time_ns())).write_text("\n".join(map(str, places)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        time.sleep(self.pause * (self.passes > 40))
        return self.layer(x)


def make(note: str = "") -> rc.Task:
    """How long a late pass takes is no part of the task, so that a test can repeat it without: a file of the folder
    says it."""
    pause = float((Path(note) / "pause").read_text()) if note else 0.0
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g)
    y = (x[:, 0] > 0).long()
    return rc.Task.from_module(lambda: Slow(pause, note), (x[:40], y[:40]), (x[40:], y[40:]), name="slow")
