"""Runs in a process that cannot import Ray: on simulated workers and a simulated clock, and with real chains in
threads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import json_of

SCRIPT = """
import json, sys
sys.modules["ray"] = None
from pathlib import Path
import pytest
from benchmarks.cluster import Costs
from benchmarks.scale import comparison, drive
from benchmarks.simulated import Schedule
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.run.launch import run_chains
from raychains.tasks.mixture import Mixture25
from tests.orchestration import worlds
from tests.orchestration.threads import ThreadWorkers, keep_this_process
found = drive(60, 4, 8, Costs(), Schedule(lost=0.2))
outcome = found.outcome
simulated = {
    "chains": found.chains, "most": found.most, "lost": found.lost, "finished": len(outcome.seconds),
    "failed": len(outcome.failed), "views": len(outcome.views), "arms": len(comparison(60, 4).arms),
    "samples": outcome.samples, "seconds": found.simulated,
}
plan, folder, workers = worlds.comparison(Mixture25(), chains=3, steps=300), Path(sys.argv[1]), ThreadWorkers()
with pytest.MonkeyPatch.context() as patch:
    keep_this_process(patch)
    outcome = run_chains(plan, worlds.root(folder), ResourceConfig(), worlds.Diary(), workers=workers)
same = worlds.stored_hashes(worlds.root(folder), plan) == worlds.undisturbed_hashes(plan, Mixture25())
real = {"same": same, "views": len(outcome.views), "finished": len(outcome.seconds)}
print(json.dumps({"simulated": simulated, "real": real}))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of both runs, in one process."""
    found: dict[str, Any] = json_of("-c", SCRIPT, str(tmp_path_factory.mktemp("runs")))
    return found


def test_a_driver_of_simulated_workers_that_die_finishes_what_can_be_finished(outcomes: dict[str, Any]) -> None:
    found = outcomes["simulated"]
    assert found["chains"] == 60 and 0 < found["most"] <= 8 and found["lost"] > 5
    assert found["finished"] + found["failed"] == 60 and found["finished"] > 40
    assert found["samples"] == 4 * found["finished"] and found["views"] > 20, "the failed ones have none"
    assert found["seconds"] > 100, "by the simulated clock"


def test_real_chains_in_threads_have_the_samples_of_undisturbed_ones(outcomes: dict[str, Any]) -> None:
    assert outcomes["real"] == {"same": True, "views": 1, "finished": 3}
