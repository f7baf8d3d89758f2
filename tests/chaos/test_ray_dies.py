"""A Ray whose own processes die: the call says how to go on, and the resumed one ends with an undisturbed run's
samples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.processes import json_of

AT_ONCE = (("run",), ("sweep", "reproduce", "foreign"))
"""Kinds of calls: two scripts, each of which mostly waits."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the scripts saw, which resume calls in the same process, and compare samples and results."""
    folder = str(tmp_path_factory.mktemp("dying"))

    def those(kinds: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        return dict(json_of("-m", "tests.chaos.dying_ray", folder, *kinds, RAY_BACKEND_LOG_LEVEL="fatal"))

    with ThreadPoolExecutor() as pool:
        one, others = pool.map(those, AT_ONCE)
    return one | others


def test_a_run_whose_gcs_and_then_whose_raylet_die_is_resumed_to_the_samples_of_an_undisturbed_run(
    told: dict[str, dict[str, Any]],
) -> None:
    found = told["run"]
    again = "; what the store holds is intact. To go on: the same call with `resume=True`, `name=r`"
    assert found["lost"][:2] == [f"4: Ray's {who} on this machine died{again}" for who in ("gcs_server", "raylet")]
    assert found["lives"] == 4 and not found["connected"]
    assert found["began"][:2] == [0, 0] and min(found["began"][2:4]) > 0, "two chains resumed from checkpoints"
    assert sum(step > 0 for step in found["began"]) >= 4, "and again"


def test_a_run_whose_gcs_is_stopped_treats_it_as_dead(told: dict[str, dict[str, Any]]) -> None:
    [lost] = told["run"]["lost"][2:]
    assert "gcs_server did not answer for 5 s" in lost


def test_a_sweep_whose_gcs_dies_is_resumed_to_the_samples_of_undisturbed_chains(
    told: dict[str, dict[str, Any]],
) -> None:
    [lost] = told["sweep"]["lost"]
    assert "gcs_server on this machine died" in lost and lost.endswith("`resume=True`, `name=s`")
    assert told["sweep"]["lives"] == 2


def test_a_reproduction_whose_raylet_dies_goes_on_by_the_same_command(told: dict[str, dict[str, Any]]) -> None:
    [lost] = told["reproduce"]["lost"]
    assert "on this machine died" in lost and lost.endswith("To go on: the same command")


def test_a_run_on_a_cluster_whose_gcs_is_gone_says_how_to_go_on_and_leaves_the_process_alive(
    told: dict[str, dict[str, Any]],
) -> None:
    [lost] = told["foreign"]["lost"]
    assert lost.startswith("4: the Ray cluster at ") and "same call with `resume=True`, `name=r`" in lost
    assert told["foreign"]["lives"] == 1
    assert not told["foreign"]["connected"], "a connection that stayed would end the process"
