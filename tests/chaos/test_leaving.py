"""Chains leave a node that will be gone soon, and lose no step."""

from __future__ import annotations

from pathlib import Path

from tests.processes import json_of


def test_chains_leave_a_node_that_is_told_to_go_at_their_last_steps(tmp_path: Path) -> None:
    """A real node gets SIGTERM under `ray start --block`; the script compares every sample's bytes with those of undisturbed chains."""
    told = json_of("-m", "tests.chaos.leaving", str(tmp_path), RAY_BACKEND_LOG_LEVEL="fatal")
    assert not told["failed"] and not told["lost"], "a preemption is no failure"
    assert told["preempted"] == told["chains"] and told["attempts"] == [2, 2]
    assert told["begins"] == told["ends"] and len(told["begins"]) == 2, (
        "no step was made twice, without periodic checkpoints"
    )
