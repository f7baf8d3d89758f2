"""A chain that takes more and more memory once, until Ray's memory monitor kills its worker; prints what came of it.

`python -m tests.chaos.greedy FOLDER` runs it on a local Ray that kills what makes the machine use a bit more memory than now.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.planning import Arm, Comparison
from raychains.schedules import Cyclical
from raychains.spec import ChainSpec, Part
from raychains.tasks.mixture import Mixture25

STEPS, AT = 400, 150
MARGIN, MOST = 3_500_000_000, 5_000_000_000
"""Bytes above the present use at which Ray kills, of which Ray and its workers take 1.5 GB and other tests theirs; bytes that
the chain takes if nobody does."""
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
            while PIECE * len(self._taken) < MOST:
                self._taken.append(bytearray(os.urandom(1)) * PIECE)
                time.sleep(0.05)
            time.sleep(5)
            marker.with_name("survived").touch()
        return super().backward(model, batch, generator)


def spec(folder: str) -> ChainSpec:
    """Checkpoints at cycle ends, before and after the step at which memory is taken."""
    schedule = Cyclical(lr=0.09, steps=STEPS, cycles=4, exploration=0.25)
    return ChainSpec(
        task=Greedy(folder).spec(), sampler=sampler(), schedule=schedule.part(), steps=STEPS, steps_per_epoch=1,
        batch_size=1, seed=0, repeat=0, chain=0, block_draws=50,
    )  # fmt: skip


def sampler() -> Part:
    from raychains.samplers import SGLD

    return Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 1, "weight_decay": 0.0})


def main(folder: str) -> None:
    """Run it, and print one line of JSON."""
    from ray._common.utils import get_system_memory
    from ray._private.utils import get_used_memory

    from raychains.orchestration.driver import Driver, Placement
    from raychains.orchestration.session import connect
    from raychains.planning import listener as told
    from raychains.store import Root

    class Lost(told.Silent):
        """Why slots went."""

        reasons: ClassVar[list[str]] = []

        def on(self, event: Any) -> None:
            if isinstance(event, told.SlotGone):
                self.reasons.append(event.reason)

    threshold = (get_used_memory() + MARGIN) / get_system_memory()
    os.environ.update({"RAY_memory_usage_threshold": str(threshold), "RAY_memory_monitor_refresh_ms": "100"})
    arm = Arm(
        name="greedy", label="greedy", sampler="sgld", schedule="cyclical", chains=((spec(folder),),), length=STEPS,
        published={},
    )  # fmt: skip
    comparison = Comparison(task="greedy", unit="steps", split="target", arms=(arm,))
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        session = connect("local", temp_dir=temporary, cpus=1)
        outcome = Driver(comparison, Root(Path(folder, "store")), Placement(), Lost()).run()
        session.close()
    print(json.dumps({"failed": outcome.failed, "samples": outcome.samples, "reasons": Lost.reasons}))


if __name__ == "__main__":
    from tests.chaos import greedy  # workers import it by this name

    greedy.main(sys.argv[1])
