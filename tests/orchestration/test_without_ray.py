"""Runs in a process that cannot import Ray: on simulated workers and a simulated clock, and with real chains in threads."""

from __future__ import annotations

from pathlib import Path

from tests.processes import json_of

SIMULATED = """
import json, sys
sys.modules["ray"] = None
from benchmarks.cluster import Costs
from benchmarks.scale import comparison, drive
from benchmarks.simulated import Schedule
found = drive(60, 4, 8, Costs(), Schedule(lost=0.2))
outcome = found.outcome
print(json.dumps({
    "chains": found.chains, "most": found.most, "lost": found.lost, "finished": len(outcome.seconds),
    "failed": len(outcome.failed), "views": len(outcome.views), "arms": len(comparison(60, 4).arms),
    "samples": outcome.samples, "seconds": found.simulated,
}))
"""
THREADS = """
import json, sys
sys.modules["ray"] = None
from pathlib import Path
import pytest
from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.run import run_chains
from raychains.tasks.mixture import Mixture25
from tests.orchestration.threads import ThreadWorkers, keep_this_process
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes
plan, folder, workers = comparison(Mixture25(), chains=3, steps=300), Path(sys.argv[1]), ThreadWorkers()
with pytest.MonkeyPatch.context() as patch:
    keep_this_process(patch)
    outcome = run_chains(plan, root(folder), ResourceConfig(), Diary(), workers=workers)
same = stored_hashes(root(folder), plan) == undisturbed_hashes(plan, Mixture25())
print(json.dumps({"same": same, "views": len(outcome.views), "finished": len(outcome.seconds)}))
"""


def test_a_driver_of_simulated_workers_that_die_finishes_what_can_be_finished() -> None:
    found = json_of("-c", SIMULATED)
    assert found["chains"] == 60 and 0 < found["most"] <= 8 and found["lost"] > 5
    assert found["finished"] + found["failed"] == 60 and found["finished"] > 40
    assert found["samples"] == 4 * found["finished"] and found["views"] > 20, "the failed ones have none"
    assert found["seconds"] > 100, "by the simulated clock"


def test_real_chains_in_threads_have_the_samples_of_undisturbed_ones(tmp_path: Path) -> None:
    assert json_of("-c", THREADS, str(tmp_path)) == {"same": True, "views": 1, "finished": 3}
