"""Chains, trials and evaluators leave a node that will be gone soon, and lose no step and no prediction.

A real node gets SIGTERM under `ray start --block`; the script compares every sample's bytes with those of undisturbed chains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.processes import json_of


def told(folder: Path, *kinds: str) -> dict[str, dict[str, Any]]:
    return dict(json_of("-m", "tests.chaos.leaving", str(folder), *kinds, RAY_BACKEND_LOG_LEVEL="fatal"))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "chains"), [("workers", 2), ("group", 1), ("trials", 2)])
def test_chains_leave_a_node_that_is_told_to_go_at_their_last_steps(kind: str, chains: int, tmp_path: Path) -> None:
    """Of a group the second worker's node is told; trials' processes may not die once."""
    found = told(tmp_path, kind)[kind]
    assert not found["lost"], "a preemption is no failure"
    assert found["preempted"] == found["chains"] and len(found["chains"]) == chains
    assert found["preemptions"] == [[0, 1]] * chains, "as the attempts' records have it"
    ends = [end for start, end in found["lives"] if start == 0]
    begins = [start for start, _ in found["lives"] if start > 0]
    assert sorted(begins) == sorted(ends) and begins, "no step was made twice, without periodic checkpoints"
    assert {step for step in found["from"] if step} == set(begins)


@pytest.mark.long
def test_an_evaluator_leaves_its_predictions_to_others(tmp_path: Path) -> None:
    """Chains wait until the node is gone; then their samples' view is formed, also of what was predicted there."""
    found = told(tmp_path, "evaluators")["evaluators"]
    assert not found["lost"] and not found["preempted"]
    assert 0 < found["there"] < found["predictions"] == found["samples"] == 12, "none was made twice"
