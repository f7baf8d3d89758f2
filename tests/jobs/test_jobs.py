"""`ray job submit` as people use it: a head with token authentication, a working directory that is uploaded, real jobs."""

from __future__ import annotations

import json
import shlex
import shutil
import urllib.error
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from tests.jobs import slowtask
from tests.jobs.head import Head
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import until

pytestmark = pytest.mark.long

REPOSITORY = Path(rc.__file__).parents[1]
UNPACKED = "runtime_resources/working_dir_files"
"""Where Ray puts the copies of working directories."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without what a job does not need, and a person's own module in it."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("raychains", "jobs"):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(slowtask.__file__, folder / "slowtask.py")
    return folder


@pytest.fixture(scope="module")
def refused(head: Head, project: Path) -> tuple[int, dict[str, Any], str]:
    """A job whose store is a folder of its working directory: exit status of `ray job submit`, the job, its log."""
    command = ["python", "jobs/run.py", "--task", "slowtask:make", "--store", "runs"]
    done = head.ray("job", "submit", "--submission-id", "refused", "--working-dir", ".", "--", *command, cwd=project)
    return done.returncode, head.ended("refused"), head.log("refused")


def test_wrong_input_is_one_line_in_the_log_and_its_status_in_the_jobs_info(
    refused: tuple[int, dict[str, Any], str],
) -> None:
    status, job, log = refused
    assert status == 1, "Ray's own, whatever the script's"
    assert (job["status"], job["driver_exit_code"]) == ("FAILED", 2)
    [line] = [line for line in log.splitlines() if line.startswith("raychains:")]
    assert line.startswith(
        "raychains: --store must be an absolute path or a URI (s3://bucket/prefix) in a Ray job, got 'runs'"
    )
    assert "exit code 2" in job["message"] and line in job["message"] and "Traceback" not in log + job["message"]


def test_without_the_token_a_job_is_not_even_looked_at(head: Head) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        head.api("jobs/", token=False)
    assert refusal.value.code == 401


def test_a_job_that_is_stopped_is_resumed_by_another_to_the_same_samples(
    head: Head, refused: tuple[int, dict[str, Any], str], tmp_path: Path
) -> None:
    """Its store is the one that the node's environment names."""
    store, notes = str(head.store), tmp_path / "notes"
    notes.mkdir()
    (notes / "pause").write_text("2")  # seconds of a forward pass in the last 80 of 120 steps
    command = shlex.split(
        f"python jobs/run.py --task slowtask:make --task-settings note={notes} --chains 2 --name r --epochs 30 --cycles 6 "
        f"--samples-per-cycle 1 --batch-size 10 --checkpoint-every 0.2 --evaluators 1"
    )

    def submit(name: str, *more: str) -> None:
        """With the package that is there already."""
        environment = {**refused[1]["runtime_env"], "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "120"}}
        entry = shlex.join([*command, *more])
        head.api("jobs/", {"submission_id": name, "entrypoint": entry, "runtime_env": environment})

    submit("stopped")
    chains = Path(store) / "chains"

    def both_on_their_way() -> bool:
        assert head.job("stopped")["status"] in ("PENDING", "RUNNING"), head.log("stopped")
        return len({sample.parents[1] for sample in chains.glob("*/samples/*")}) == 2

    until(both_on_their_way, "samples of both chains")
    said = head.ray("job", "stop", "stopped")
    assert said.returncode == 0, said.stdout + said.stderr
    log = head.log("stopped")
    assert head.job("stopped")["status"] == "STOPPED", log
    assert "go on from their last checkpoints" in log and "--resume, --name r" in log and "Traceback" not in log
    assert len(list(chains.glob("*/samples/*"))) < 12, "it was through before it was stopped"
    assert list(chains.glob("*/checkpoints/*")) and not list((Path(store) / "drivers").iterdir())

    (notes / "pause").write_text("0")
    submit("resumed", "--resume")
    job = head.ended("resumed")
    assert (job["status"], job["driver_exit_code"]) == ("SUCCEEDED", 0), head.log("resumed")
    plan = rc.load(f"{store}/runs/r").comparison.chains()
    firsts = [json.loads(p.read_text())["from_step"] for p in chains.glob("*/incarnations/2.json")]
    assert len(firsts) == len(plan) == 2 and min(firsts) > 0
    found = undisturbed_hashes(plan, slowtask.make())
    assert len(found) == 12 and stored_hashes(store, plan) == found
    imported = [note.read_text().splitlines() for note in notes.glob("[0-9]*")]
    assert len({process for process, *_ in imported}) > 2, "only drivers made networks"
    assert all(UNPACKED in file for _, *files in imported for file in files), imported
