"""`ray job submit` as people use it: a head with token authentication, a working directory that is uploaded, real jobs.

Below `uv run` a package that only its environment has is there in every worker, of a cluster and of a Ray started here.
The first steps of docs/how-to/cluster.md run as far as this machine goes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from tests.jobs import slowtask
from tests.jobs.head import Head
from tests.launcher import pages
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import ROOT, SECONDS, until

pytestmark = pytest.mark.long

UNPACKED = "runtime_resources/working_dir_files"
"""Where Ray puts the copies of working directories."""
UV = "uv run --no-project --offline --with ./extra"
SKIPPED = (
    "make install",  # these tests run in the environment that it makes
    "source .venv/bin/activate",
    "ray start",  # the fixture's head is started so, on ports of its own
    "ray stop",  # would end every Ray of this machine
)
"""Commands of the page."""
CONNECT = """
import sys
from raychains.orchestration.cluster import session
session.NOTICE, session.FIRST_WORKER = 1.0, 2.0
try:
    session.connect(sys.argv[1])
except session.UserError as error:
    print(error)
"""
LOCAL = """
import os, sys, ray
from raychains.orchestration.cluster import session

def where():
    import extra_ten
    return os.getcwd(), extra_ten.__name__, sys.prefix

made = session.connect("local", cpus=1)
print(where(), ray.get(ray.remote(where).remote()), sep="\\n")
made.close()
"""


def without_ray(home: Path) -> dict[str, str]:
    """An environment that has neither a Ray nor this checkout, and finds the programs beside this Python."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("RAY", "PYTHON"))}
    return outside | {"PATH": f"{Path(sys.executable).parent}:{outside['PATH']}", "HOME": str(home)}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a person has one: the checkout's package and jobs, a module of their own, and a package beside it,
    locked."""
    folder = tmp_path_factory.mktemp("uv") / "project"
    for part in ("raychains", "jobs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(slowtask.__file__, folder)
    package = folder / "extra/src/extra_ten"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (folder / "extra/pyproject.toml").write_text(
        '[project]\nname = "extra-ten"\nversion = "1.0"\n'
        '[build-system]\nrequires = ["uv_build"]\nbuild-backend = "uv_build"\n'  # a part of uv: nothing is fetched
    )
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = ["extra-ten"]\n'
        '[tool.uv.sources]\nextra-ten = {path = "extra"}\n'
    )
    subprocess.run(["uv", "lock", "--offline"], cwd=folder, env=without_ray(folder), check=True, timeout=SECONDS)
    return folder


@dataclass(frozen=True)
class Refused:
    """A job whose store is a folder of its working directory."""

    status: int
    """Of `ray job submit`, which uploaded that folder: other jobs have it from there."""
    job: dict[str, Any]
    log: str


@pytest.fixture(scope="module")
def refused(head: Head, project: Path) -> Refused:
    command = ["python", "jobs/run.py", "--task", "slowtask:make", "--store", "runs"]
    done = head.ray("job", "submit", "--submission-id", "refused", "--working-dir", ".", "--", *command, cwd=project)
    return Refused(done.returncode, head.ended("refused"), head.log("refused"))


def submit(head: Head, refused: Refused, name: str, command: str, **variables: str) -> None:
    """Start a job in the folder that is uploaded already."""
    environment = {**refused.job["runtime_env"], "env_vars": variables}
    head.api("jobs/", {"submission_id": name, "entrypoint": command, "runtime_env": environment})


@dataclass(frozen=True)
class Note:
    """What a process wrote when it made the task's network: see `slowtask.Slow`."""

    process: str
    module: str
    package: str
    prefix: str
    extra: str


def taken(notes: Path) -> list[Note]:
    """The notes of a folder, each of which is read once."""
    found = [Note(*note.read_text().split("\n")) for note in notes.glob("[0-9]*")]
    for note in notes.glob("[0-9]*"):
        note.unlink()
    assert all(UNPACKED in file for note in found for file in (note.module, note.package)), found
    return found


def test_wrong_input_is_one_line_in_the_log_and_its_status_in_the_jobs_info(refused: Refused) -> None:
    job, log = refused.job, refused.log
    assert refused.status == 1, "Ray's own, whatever the script's"
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


def test_a_job_that_is_stopped_is_resumed_below_uv_run_to_the_same_samples(
    head: Head, refused: Refused, tmp_path: Path
) -> None:
    """Its store is the one that the node's environment names; all processes of the second job have uv's environment."""
    store, notes = str(head.store), tmp_path / "notes"
    notes.mkdir()
    (notes / "pause").write_text("2")  # seconds of a forward pass in the last 80 of 120 steps
    command = (
        f"python jobs/run.py --task slowtask:make --task-settings note={notes} --chains 1 --name r --epochs 30 "
        "--cycles 6 --samples-per-cycle 1 --batch-size 10 --checkpoint-every 0.2 --evaluators 1"
    )
    submit(head, refused, "stopped", command, RAY_JOB_STOP_WAIT_TIME_S="120")
    chains = Path(store) / "chains"

    def on_its_way() -> bool:
        assert head.job("stopped")["status"] in ("PENDING", "RUNNING"), head.log("stopped")
        return any(chains.glob("*/samples/*"))

    until(on_its_way, "a sample")
    said = head.ray("job", "stop", "stopped")
    assert said.returncode == 0, said.stdout + said.stderr
    log = head.log("stopped")
    assert head.job("stopped")["status"] == "STOPPED", log
    assert "go on from their last checkpoints" in log and "--resume, --name r" in log and "Traceback" not in log
    assert len(list(chains.glob("*/samples/*"))) < 6, "it was through before it was stopped"
    assert list(chains.glob("*/checkpoints/*")) and not list((Path(store) / "drivers").iterdir())
    plain = taken(notes)
    assert len({note.process for note in plain}) > 1, "only the driver made networks"
    assert {(note.prefix, note.extra) for note in plain} == {(sys.prefix, "")}

    (notes / "pause").write_text("0")
    submit(head, refused, "resumed", f"{UV} {command} --resume")
    job = head.ended("resumed")
    assert (job["status"], job["driver_exit_code"]) == ("SUCCEEDED", 0), head.log("resumed")
    plan = rc.load(f"{store}/runs/r").comparison.chains()
    firsts = [json.loads(p.read_text())["from_step"] for p in chains.glob("*/incarnations/2.json")]
    assert len(firsts) == len(plan) == 1 and min(firsts) > 0
    found = undisturbed_hashes(plan, slowtask.make())
    assert len(found) == 6 and stored_hashes(store, plan) == found
    below = taken(notes)
    assert len({note.process for note in below}) > 2, "only the driver made networks"
    assert all(note.extra for note in below) and sys.prefix not in {note.prefix for note in below}


def test_a_locked_project_is_installed_by_every_worker(head: Head, refused: Refused, tmp_path: Path) -> None:
    """The environment of the node, which uv brings up to date: it begins with this one's packages, since Ray must be in
    it."""
    environment, notes, store = tmp_path / "environment", tmp_path / "notes", tmp_path / "store"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    (installed,) = (p for p in sys.path if Path(p).is_relative_to(sys.prefix) and p.endswith("site-packages"))
    (site / "nodes.pth").write_text(installed)
    notes.mkdir()
    (notes / "pause").write_text("0")
    command = (
        f"uv run --active --locked --offline python jobs/run.py --task slowtask:make --task-settings note={notes} "
        f"--name u --store {store} --chains 1 --epochs 5 --samples-per-cycle 1 --batch-size 10 --evaluators 1"
    )
    submit(head, refused, "locked", command, VIRTUAL_ENV=str(environment))
    assert head.ended("locked")["status"] == "SUCCEEDED", head.log("locked")
    chains = rc.load(f"{store}/runs/u").comparison.chains()
    assert {chain for chain, *_ in stored_hashes(str(store), chains)} == set(chains)
    found = taken(notes)
    assert len({note.process for note in found}) > 2, "only drivers made the task"
    assert {note.prefix for note in found} == {str(environment)} and all(note.extra for note in found)


def test_a_ray_started_here_has_the_driver_s_interpreter_and_folder(project: Path, tmp_path: Path) -> None:
    big = project / "big"
    big.touch()
    os.truncate(big, 600 << 20)  # more than Ray uploads
    done = subprocess.run(
        [*shlex.split(UV), "python", "-c", LOCAL],
        cwd=project, env=without_ray(tmp_path), capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    big.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    driver, worker = (ast.literal_eval(line) for line in done.stdout.splitlines())
    assert driver == worker and driver[:2] == (str(project), "extra_ten") and driver[2] != sys.prefix


def test_an_environment_that_workers_cannot_have_is_refused(head: Head, project: Path) -> None:
    """The driver's environment is one that workers are not told of, as a variable of the driver alone does it."""
    variables = {"VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(ROOT)}
    driver = ["uv", "run", "--active", "--no-sync", "--offline", "python", "-c", CONNECT, head.address]
    done = subprocess.run(
        driver, cwd=project, env=head.environment | variables, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout.startswith(
        "workers must be able to start with 'uv run --active --no-sync --offline --python "
    ), done.stderr
    assert "raylet.err" in done.stdout

    outside = project / "below"
    outside.mkdir()
    driver = ["uv", "run", "--active", "--no-sync", "--offline", "--project", str(project), *driver[5:]]
    done = subprocess.run(
        driver, cwd=outside, env=head.environment | variables, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout.startswith("the workers' environment must be one that Ray can make: "), done.stderr
    assert "pyproject.toml file is in the working directory" in done.stdout and done.stdout.count("\n") == 1


def test_the_first_steps_of_the_page_run(head: Head, tmp_path: Path) -> None:
    """The head's own environment asks for colours; tests/launcher reads the same commands."""
    here = pages.section("First steps")
    assert all(any(c.startswith(s) for c in here) for s in SKIPPED)
    environment = {**head.environment, "PYTHONPATH": str(ROOT)}
    for name in ("RAY_AUTH_MODE", "RAY_API_SERVER_ADDRESS", "FORCE_COLOR"):  # the section sets the first two
        del environment[name]
    typed = [c for c in here if not c.startswith(SKIPPED)]
    port = head.url.rpartition(":")[2]
    script = "\n".join(typed).replace(":8265", f":{port}").replace('"$PWD/runs"', shlex.quote(f"{tmp_path}/runs"))
    script = script.replace("raychains status runs/", f"python -m raychains.cli status {tmp_path}/runs/")
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(r"run first: finished\n +2 chains of digits: 2 finished", done.stdout), said
    report = tmp_path / "runs/runs/first/report.html"
    assert report.is_file() and f"report: {report}" in said
    (name,) = set(re.findall(r"raysubmit_\w+", said))
    job, log = head.job(name), head.log(name)
    assert (job["status"], job["driver_exit_code"]) == ("SUCCEEDED", 0)
    assert re.search(r"cSGHMC, 2 chains +40/80 +1/1 ", log) and "\x1b" not in log
    chains = rc.load(str(report.parent)).comparison.chains()
    assert len(chains) == 2 and stored_hashes(tmp_path / "runs", chains) == undisturbed_hashes(chains)
