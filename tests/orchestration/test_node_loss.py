"""A node that takes its workers, evaluators, samples and blocks along costs work, but no sample and no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from raychains.chain.chain import Chain
from raychains.core.sample import Sample
from raychains.store import ChainStore, codec
from raychains.tasks.mixture import Mixture25
from tests.orchestration.losing_a_node import PLAN
from tests.orchestration.worlds import comparison, root
from tests.processes import json_of


@pytest.mark.long
def test_everything_that_was_on_a_lost_node_is_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    found = json_of("-m", "tests.orchestration.losing_a_node", str(folder), RAY_BACKEND_LOG_LEVEL="fatal")
    assert found["removed"] and not found["failed"] and found["same"]
    assert found["told"].count("WorkerLost") >= 2, "both chains of the node were lost"
    assert found["told"].count("Waiting") == found["told"].count("Resumed") == 1, "no node had room, then one had"
    assert found["view"] == found["samples"] == 3 * 6
    assert found["predictions"] > found["samples"], "blocks went with the node and were made again"
    evaluation = Mixture25().splits()["target"]
    stores = [ChainStore(root(folder), d.name) for d in (folder / "store" / "chains").iterdir()]
    blocks = [evaluation.predict(codec.decode(s.read_sample(r.file))[0], 0) for s in stores for r in s.records()]
    assert found["counts"] == int(sum(blocks).sum()) > 0


@pytest.mark.long
def test_a_trial_of_tune_whose_node_is_lost_resumes_on_another_one_at_once(tmp_path: Path) -> None:
    """Reports and samples are undisturbed, and it does not wait until its predecessor counts as dead."""
    steps = json_of("-m", "tests.orchestration.losing_a_trial", str(tmp_path), RAY_BACKEND_LOG_LEVEL="fatal")
    assert steps[0] == 0 < steps[-1]


def test_its_samples_are_of_a_size_that_lies_in_a_nodes_store() -> None:
    [spec] = comparison(Mixture25(), chains=1, **PLAN).chains().values()
    sample = next(event for event in Chain(spec, Mixture25()) if isinstance(event, Sample))
    assert sum(t.nbytes for t in sample.tensors.values()) > 100 * 1024, "max_direct_call_object_size"
