"""A node that takes its workers, evaluators, samples and blocks along costs work, but no sample and no result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raychains.store import ChainStore, codec
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import comparison, root

REPOSITORY = Path(__file__).parents[2]


def losing_a_node(folder: Path) -> dict[str, Any]:
    """What a run came to whose node with CPUs was taken away, if evaluators were there."""
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.orchestration.losing_a_node", str(folder)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False,
        env={**environment, "PYTHONPATH": str(REPOSITORY), "RAY_BACKEND_LOG_LEVEL": "fatal"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def test_everything_that_was_on_a_lost_node_is_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "once"
    found = losing_a_node(folder)
    if not found["removed"]:  # Ray had put all evaluators on the other node, which is rare
        folder = tmp_path / "again"
        found = losing_a_node(folder)
    assert found["removed"] and not found["failed"] and found["same"]
    assert found["told"].count("SlotGone") >= 2, "both chains of the node were lost"
    assert found["told"].count("Waiting") == found["told"].count("GoesOn") == 1, "no node had room, then one had"
    assert found["view"] == found["samples"] == 3 * 6
    assert found["predictions"] > found["samples"], "blocks went with the node and were made again"
    evaluation = Mixture25().splits()["target"]
    stores = [ChainStore(root(folder), d.name) for d in (folder / "store" / "chains").iterdir()]
    blocks = [evaluation.predict(codec.decode(s.read_sample(f))[0], 0) for s in stores for f in s.sample_files()]
    assert found["counts"] == int(sum(blocks).sum()) > 0


def test_the_same_plan_has_objects_of_a_size_that_lie_in_a_nodes_store() -> None:
    """Smaller ones travel in messages and would survive by themselves."""
    [spec] = comparison(Mixture25(), chains=1, steps=1200, block=100, lanes=100).chains().values()
    assert spec.lanes * spec.block_draws * 2 * 8 > 100 * 1024


pytestmark = pytest.mark.timeout(280)
