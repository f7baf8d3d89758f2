"""`uv run` around raychains: a package that only its environment has is there in every worker, of a cluster and of a Ray started here."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from tests.jobs import slowtask
from tests.jobs.head import Head
from tests.orchestration.worlds import stored_hashes
from tests.processes import ROOT, SECONDS

UV = "uv run --no-project --offline --with ./extra"
RUN = "--task uvtask:make --chains 1 --epochs 5 --samples-per-cycle 1 --batch-size 10 --evaluators 1"
CONNECT = """
import sys
from raychains.orchestration import session
session.NOTICE, session.FIRST_WORKER = 1.0, 2.0
try:
    session.connect(sys.argv[1])
except session.UserError as error:
    print(error)
"""
LOCAL = """
import os, sys, ray
from raychains.orchestration import session

def where():
    import extra_ten
    return os.getcwd(), extra_ten.__name__, sys.prefix

made = session.connect("local", cpus=1)
print(where(), ray.get(ray.remote(where).remote()), sep="\\n")
made.close()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a person has one: the checkout's package and jobs, a module of their own, and a package beside it, locked."""
    folder = tmp_path_factory.mktemp("uv") / "project"
    for part in ("raychains", "jobs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (slowtask.__file__, str(Path(__file__).with_name("uvtask.py"))):
        shutil.copy(module, folder)
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


def without_ray(home: Path) -> dict[str, str]:
    """An environment that has neither a Ray nor this checkout, and finds the programs beside this Python."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("RAY", "PYTHON"))}
    return outside | {"PATH": f"{Path(sys.executable).parent}:{outside['PATH']}", "HOME": str(home)}


def prefixes(folder: Path) -> set[str]:
    """Environments of a job's processes, each of which says in ``folder/notes`` where it made the task; its run is complete."""
    chains = rc.load(f"{folder}/store/runs/u").comparison.chains()
    assert {chain for chain, *_ in stored_hashes(str(folder / "store"), chains)} == set(chains)
    found = [note.read_text().splitlines() for note in (folder / "notes").iterdir()]
    assert len(found) > 2, "only drivers made the task"
    return {prefix for prefix, *_ in found}


def entry(uv: str, folder: Path) -> str:
    """A job's command, whose store and notes lie in a folder."""
    (folder / "notes").mkdir(parents=True)
    return f"{uv} python jobs/run.py {RUN} --task-settings note={folder}/notes --name u --store {folder}/store"


@pytest.fixture(scope="module")
def added(head: Head, project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a job that `uv run --with` runs, and the job, which `ray job submit` uploaded and waited for."""
    folder = tmp_path_factory.mktemp("added")
    submit = ["job", "submit", "--submission-id", "uv-with", "--working-dir", ".", "--"]
    done = head.ray(*submit, *shlex.split(entry(UV, folder)), cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, head.job("uv-with")


@pytest.mark.long
def test_workers_of_a_job_have_the_environment(added: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = added
    assert sys.prefix not in prefixes(folder)


@pytest.mark.long
def test_a_locked_project_is_installed_by_every_worker(
    head: Head, added: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The environment of the node, which uv brings up to date: it begins with this one's packages, since Ray must be in it."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    (installed,) = (p for p in sys.path if Path(p).is_relative_to(sys.prefix) and p.endswith("site-packages"))
    (site / "nodes.pth").write_text(installed)
    uploaded = {**added[1]["runtime_env"], "env_vars": {"VIRTUAL_ENV": str(environment)}}
    command = entry("uv run --active --locked --offline", tmp_path / "job")
    head.api("jobs/", {"submission_id": "uv-locked", "entrypoint": command, "runtime_env": uploaded})
    assert head.ended("uv-locked")["status"] == "SUCCEEDED", head.log("uv-locked")
    assert prefixes(tmp_path / "job") == {str(environment)}


@pytest.mark.long
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


@pytest.mark.long
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
