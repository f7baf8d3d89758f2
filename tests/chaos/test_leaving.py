"""Chains, trials and evaluators leave a draining node, and lose no step and no prediction.

Real nodes get SIGTERM under `ray start --block`; the scripts compare every sample's bytes with those of undisturbed
chains.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.processes import json_of

AT_ONCE = (("evaluators", "workers", "trials"), ("pair", "group"))
"""Two scripts with a cluster each, which mostly wait; in an order in which nodes that come serve the next kind as
well."""
OFTEN: dict[str, Any] = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5"}
"""Train takes one report every two seconds otherwise."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("leaving"))

    def those(kinds: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        words = ("-m", "tests.chaos.leaving", folder, *kinds)
        return dict(json_of(*words, RAY_BACKEND_LOG_LEVEL="fatal", **OFTEN))

    with ThreadPoolExecutor() as pool:
        some, others = pool.map(those, AT_ONCE)
    return some | others


@pytest.mark.parametrize(("kind", "chains"), [("workers", 2), ("group", 1), ("trials", 2)])
def test_chains_leave_a_node_that_is_told_to_go_at_their_last_steps(
    kind: str, chains: int, told: dict[str, dict[str, Any]]
) -> None:
    """Of a group the second worker's node is told; trials' processes may not die once."""
    found = told[kind]
    assert not found["lost"], "a preemption is no failure"
    assert found["preempted"] == found["chains"] and len(found["chains"]) == chains
    assert found["preemptions"] == [[0, 1]] * chains, "as the attempts' records have it"
    ends = [end for start, end in found["lives"] if start == 0]
    begins = [start for start, _ in found["lives"] if start > 0]
    assert sorted(begins) == sorted(ends) and begins, "no step was made twice, without periodic checkpoints"
    assert {step for step in found["from"] if step} == set(begins)


def test_an_evaluator_leaves_its_predictions_to_others(told: dict[str, dict[str, Any]]) -> None:
    """Chains wait until the node is gone; then their samples' view is formed, also of what was predicted there."""
    found = told["evaluators"]
    assert not found["lost"] and not found["preempted"]
    assert 0 < found["there"] < found["predictions"] == found["samples"] == 12, "none was made twice"


def test_a_pair_of_trains_workers_repeats_no_step_on_the_next_node(told: dict[str, dict[str, Any]]) -> None:
    """Train counts it as a preemption: no failure is allowed."""
    found = told["pair"]
    first, second = found["from"]
    assert first == 0 < second < 30 and found["made"] == found["alone"]
