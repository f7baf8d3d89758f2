"""A Ray whose own processes die: the call says how to go on, and the resumed one ends with an undisturbed run's samples."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.chaos import dying_ray, plans
from tests.processes import SECONDS, json_of, kill_session, outside, sessions, until

RAYLET = f"{Path(ray.__file__).parent}/core/src/ray/raylet/raylet".encode()
QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal"}


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the script saw, which resumes calls in the same process, and compares samples and results."""
    folder = tmp_path_factory.mktemp("dying")
    return dict(json_of("-m", "tests.chaos.dying_ray", str(folder), *dying_ray.KINDS, **QUIET))


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


def test_a_command_whose_ray_died_ends_with_a_status_of_its_own_and_says_how_to_go_on(tmp_path: Path) -> None:
    plans.write(tmp_path / "deaths", {})
    command = [
        "run", "--sampler", "sghmc", "--schedule", "cyclical", "--chains", "2", "--steps", "4000", "--cycles", "2", "--store",
        str(tmp_path / "store"), "--name", "r", "--checkpoint-every", "0.2",
    ]  # fmt: skip
    words = [sys.executable, "-m", "tests.chaos.command", str(tmp_path / "deaths"), *command]
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary, sessions() as start:
        run = start(*words, env=outside() | QUIET | {"RAY_TMPDIR": temporary})
        until(lambda: len(list(tmp_path.glob("store/chains/*/checkpoints/*"))) > 1, "checkpoints")
        assert kill_session(run.pid, kind=RAYLET) == 1
        _, told = run.communicate(timeout=SECONDS)
    [line] = [line for line in told.splitlines() if line.startswith("raychains: ")]
    assert run.returncode == 4 and "Traceback" not in told
    assert "raylet on this machine died" in line and "with --resume, --name r" in line
