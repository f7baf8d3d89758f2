"""A run in a process that cannot import Ray, on simulated workers and a simulated clock. (On real ones:
tests/api/test_backend.py.)"""

from __future__ import annotations

from tests.processes import json_of

SCRIPT = """
import json, sys
sys.modules["ray"] = None
from benchmarks.cluster import Costs
from benchmarks.scale import comparison, drive
from benchmarks.simulated import Schedule
found = drive(60, 4, 8, Costs(), Schedule(lost=0.2))
outcome = found.outcome
simulated = {
    "chains": found.chains, "most": found.most, "lost": found.lost, "finished": len(outcome.seconds),
    "failed": len(outcome.failed), "views": len(outcome.views), "arms": len(comparison(60, 4).arms),
    "samples": outcome.samples, "seconds": found.simulated,
}
print(json.dumps(simulated))
"""


def test_a_driver_of_simulated_workers_that_die_finishes_what_can_be_finished() -> None:
    found = json_of("-c", SCRIPT)
    assert found["chains"] == 60 and 0 < found["most"] <= 8 and found["lost"] > 5
    assert found["finished"] + found["failed"] == 60 and found["finished"] > 40
    assert found["samples"] == 4 * found["finished"] and found["views"] > 20, "the failed ones have none"
    assert found["seconds"] > 100, "by the simulated clock"
