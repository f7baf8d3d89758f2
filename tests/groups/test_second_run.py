"""A run whose chains are groups of workers waits while another run holds all slots, says so, and begins after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

import raychains as rc
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from tests.orchestration.tasks import Waiting
from tests.orchestration.worlds import comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import ROOT, SECONDS, outside

CHAINS = 4
GROUP = """--task digits --sampler csghmc --epochs 4 --cycles 1 --chains 1 --batch-size 50 --repeats 1 --evaluators 1
    --workers-per-chain 2 --name second --callback tests.groups.second:Notes"""


class First:
    """Starts the other driver once chains of this one hold both slots; notes how far the other one is when each of them
    begins."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.second: subprocess.Popen[str] | None = None
        self._command = [sys.executable, "-m", "tests.groups.second", "run", *GROUP.split()]
        self._command += ["--address", address, "--store", str(folder / "second")]
        self.began: list[str] = []

    def on(self, event: Any) -> None:
        if isinstance(event, events.ChainBegan):
            names = ("ChainBegan", "Waiting")
            self.began.append(next((n for n in names if (self.folder / n).exists()), ""))
            if len(self.began) == 2:
                # This session has the loopback address, for which Ray would put another one of this machine.
                environment = outside() | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "NOTES": str(self.folder)}
                self.second = subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_group_says_that_it_waits_and_begins_after_the_run_that_holds_all_slots(tmp_path: Path) -> None:
    first = First(tmp_path, ray.get_runtime_context().gcs_address)
    task = Waiting(str(tmp_path / "Waiting"), 20)
    plan = comparison(task, chains=CHAINS, steps=60)
    with Lease(root(tmp_path), "first") as lease:
        outcome = run_chains(plan, root(tmp_path), ResourceConfig(evaluate=False), first, lease=lease)
    second = first.second
    assert second is not None
    said, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, said
    assert first.began == ["", "", "Waiting", "Waiting"], "it keeps its slots from chain to chain"
    assert not outcome.failed and stored_hashes(root(tmp_path), plan) == undisturbed_hashes(plan, task)
    group = rc.load(f"{tmp_path}/second/runs/second").comparison
    assert stored_hashes(f"{tmp_path}/second", group) == undisturbed_hashes(group)
