"""A chain that takes more and more memory once, until Ray's memory monitor kills its worker; prints what came of it.

`python -m tests.chaos.greedy FOLDER` runs it on a local Ray that kills what makes the machine use a bit more memory
than now.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ray._private.utils import get_used_memory
from torch import Tensor, nn

from raychains.core.spec import ChainSpec
from raychains.orchestration.lease import Lease
from raychains.planning import Comparison
from raychains.schedules import Cyclical
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import Diary, arm_of, chain_spec

STEPS, AT = 400, 150
MARGIN, BEYOND = 6_000_000_000, 1_500_000_000
"""Bytes above the present use at which Ray kills, at most half of what is free: Ray and its workers take 1.5 GB, other
tests theirs; and bytes beyond that at which the chain has taken enough: whatever other processes take or give back, it
is killed before."""
PIECE = 100_000_000


class Greedy(Mixture25):
    """The mixture of 25 Gaussians, whose first process takes memory at one step until it is killed."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder, self._calls, self._taken = folder, 0, []

    def settings(self) -> dict[str, Any]:
        return {"folder": self._folder}

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self._calls += 1
        marker = Path(self._folder, "taken")
        if self._calls == AT and not marker.exists():
            marker.write_text(str(os.getpid()))
            limit = int(marker.with_name("limit").read_text())
            while get_used_memory() < limit + BEYOND:
                self._taken.append(bytearray(os.urandom(1)) * PIECE)
                time.sleep(0.05)
            time.sleep(120)  # Ray may be slow to see it
            marker.with_name("survived").touch()
        return super().backward(model, batch, generator)


def spec(folder: str) -> ChainSpec:
    """Checkpoints at cycle ends, before and after the step at which memory is taken."""
    schedule = Cyclical(lr=0.09, steps=STEPS, cycles=4, exploration=0.25)
    return chain_spec(Greedy(folder), "sgld", schedule, {"weight_decay": 0.0}, block_draws=50)


def main(folder: str) -> None:
    """Run it, and print one line of JSON."""
    from ray._common.utils import get_system_memory

    from raychains.orchestration.cluster.resource_config import ResourceConfig
    from raychains.orchestration.cluster.session import connect
    from raychains.orchestration.run.launch import run_chains
    from raychains.planning import events
    from raychains.store import Storage

    used, total = get_used_memory(), get_system_memory()
    limit = used + min(MARGIN, (total - used) // 2)
    Path(folder, "limit").write_text(str(limit))
    threshold = limit / total
    os.environ.update({"RAY_memory_usage_threshold": str(threshold), "RAY_memory_monitor_refresh_ms": "100"})
    comparison = Comparison(task="greedy", unit="steps", split="target", arms=(arm_of("greedy", spec(folder)),))
    diary = Diary()
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        session = connect("local", temp_dir=temporary, cpus=1)
        root = Storage(Path(folder, "store"))
        outcome = run_chains(comparison, root, ResourceConfig(), diary, lease=Lease(root))
        session.close()
    print(
        json.dumps(
            {
                "failed": outcome.failed,
                "samples": outcome.samples,
                "reasons": [h.reason for h in diary.of(events.WorkerLost)],
            }
        )
    )


if __name__ == "__main__":
    from tests.chaos import greedy  # workers import it by this name

    greedy.main(sys.argv[1])
