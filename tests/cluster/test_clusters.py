"""Runs on clusters of several raylets: nodes that leave, join and are added on demand, and two runs on the same
ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from raychains import __version__
from tests.cluster.shared import RUN

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def told(script: Callable[[str], dict[str, Any]]) -> dict[str, Future[dict[str, Any]]]:
    """What the scripts saw, which go on at once: each mostly waits for its nodes."""
    with ThreadPoolExecutor() as pool:
        return {name: pool.submit(script, name) for name in ("shared", "growing")}


@pytest.fixture(scope="module")
def shared(told: dict[str, Future[dict[str, Any]]]) -> dict[str, Any]:
    return told["shared"].result()


def test_a_run_whose_node_leaves_and_another_joins_has_the_samples_of_an_undisturbed_one(
    shared: dict[str, Any],
) -> None:
    assert shared["room"] == 2 and not shared["grows"]
    assert shared["nodes"] == 3, "chains ran on both nodes and on the one that joined"
    assert not shared["failed"]
    [why] = shared["lost"]
    assert "its node has died" in why and "\n" not in why
    assert shared["same"] and shared["samples"] == 3 * 6


def test_two_runs_of_a_name_share_a_cluster_and_one_that_finds_no_room_waits(shared: dict[str, Any]) -> None:
    second = shared["second"]
    assert second["over first"], "its end and its ray.shutdown came while the first was running"
    assert second["status"] == 0 and second["same"]
    assert all("its node has died" in why for why in second["lost"]), "a worker may wait at the node that leaves"
    assert second["waiting"] == second["goes on"] >= 1, "on a node that joins late it may wait again"
    assert second["reasons"][0].startswith(
        "others hold the room for a chain (1 CPU): of 2 nodes of 1 CPU and 1 node of 0 CPU is free"
    )


def test_actors_and_processes_have_readable_names(shared: dict[str, Any]) -> None:
    names = shared["actors"]
    assert len(set(names)) >= 3, "the node that joined may take two chains"
    pattern = rf"raychains/{RUN}/chain-worker-\d-{shared['driver'][:6]}"
    assert all(re.fullmatch(pattern, name) for name in names), names
    assert all(t.startswith(f"ray::ChainWorker:{RUN}") for t in shared["titles"]), shared["titles"]


def test_chains_share_a_gpu_of_a_type(shared: dict[str, Any]) -> None:
    gpu = shared["gpu"]
    assert gpu["slots"] == 2 and gpu["there"] and gpu["finished"] == 3
    assert gpu["gpus"] == ["0", "0"] and gpu["processes"] == 2


def test_what_the_cluster_lacks_is_named_in_one_line(shared: dict[str, Any]) -> None:
    assert shared["refused"] == [
        "cpus_per_chain must be at most the CPUs of one node (1), got 2",
        "gpus_per_chain must be at most the cluster's GPUs (0), got 0.5",
        "accelerator_type must be left out, got 'A100': the cluster has no GPU whose type is known to Ray",
        "accelerator_type must be one of A100, got 'A10'; did you mean 'A100'?",
    ]


def test_a_run_that_cannot_be_placed_ends_in_one_line(shared: dict[str, Any]) -> None:
    missing, version = shared["ended"]
    assert "\n" not in missing + version
    assert missing.startswith(
        "nothing could be placed for 0.5 s: no node of the cluster has room for a chain (1 GPU, 5 CPU): it has"
    )
    assert "1 node of 4 CPU, 1 GPU (A100)" in missing and "`resume=True`" in missing
    assert f"must have raychains 0.0.1 as this process has, a worker has {__version__}" in version


def test_a_cluster_without_gpus_is_asked_for_them(told: dict[str, Future[dict[str, Any]]]) -> None:
    found = told["growing"].result()
    assert found["room"] == 0 and found["ready"] == [2]
    [reason] = found["reasons"]
    assert reason.startswith(
        "no node of the cluster has room for a chain (1 GPU, 1 CPU): it has 1 node of 0 CPU; more nodes"
    )
    assert found["goes on"] == 1 and found["gpus"] == 1
    assert found["finished"] == 2 and found["same"]
