"""`uv run` around raychains: a package that only its environment has is there in every worker, of a cluster and of a Ray started here."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import raychains as rc
from tests.jobs import slowtask
from tests.jobs.head import Head
from tests.orchestration.worlds import stored_hashes
from tests.processes import ROOT, SECONDS

UV = "uv run --no-project --offline --with ./extra"
RUN = "--task uvtask:make --chains 2 --epochs 5 --samples-per-cycle 1 --batch-size 10 --evaluators 1"
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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as a person has one: the checkout's package and jobs, a module of their own, and a package beside it."""
    folder = tmp_path / "project"
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
    return folder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder in which each process that makes the task says where it is."""
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def told(notes: Path) -> list[tuple[str, str, str]]:
    """Environment, file of the package and current folder of each process."""
    return [tuple(note.read_text().splitlines()) for note in notes.iterdir()]  # type: ignore[misc]


def complete(store: Path) -> bool:
    chains = rc.load(f"{store}/runs/u").comparison.chains()
    return {chain for chain, *_ in stored_hashes(str(store), chains)} == set(chains)


@pytest.mark.long
def test_workers_of_a_job_have_the_environment(head: Head, project: Path, notes: Path, tmp_path: Path) -> None:
    command = f"{UV} python jobs/run.py {RUN} --task-settings note={notes} --name u --store {tmp_path}/store"
    submit = ["job", "submit", "--submission-id", "uv-with", "--working-dir", "."]
    done = head.ray(*submit, "--", *shlex.split(command), cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert complete(tmp_path / "store")
    found = told(notes)
    assert len(found) > 2, "only drivers made the task"
    assert all(prefix != sys.prefix for prefix, *_ in found), found


@pytest.mark.long
def test_a_locked_project_is_installed_by_every_worker(head: Head, project: Path, notes: Path, tmp_path: Path) -> None:
    """The environment of the node, which uv brings up to date: it begins with this one's packages, since Ray must be in it."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    (installed,) = (p for p in sys.path if Path(p).is_relative_to(sys.prefix) and p.endswith("site-packages"))
    (site / "nodes.pth").write_text(installed)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = ["extra-ten"]\n'
        '[tool.uv.sources]\nextra-ten = {path = "extra"}\n'
    )
    subprocess.run(["uv", "lock", "--offline"], cwd=project, env=head.environment, check=True, timeout=SECONDS)
    command = f"uv run --active --locked --offline python jobs/run.py {RUN} --task-settings note={notes} --name u"
    variables = json.dumps({"env_vars": {"VIRTUAL_ENV": str(environment)}})
    submit = ["job", "submit", "--submission-id", "uv-locked", "--working-dir", ".", "--runtime-env-json", variables]
    done = head.ray(*submit, "--", *shlex.split(command), "--store", f"{tmp_path}/store", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert complete(tmp_path / "store")
    found = told(notes)
    assert len(found) > 2 and {prefix for prefix, *_ in found} == {str(environment)}, found


@pytest.mark.long
def test_a_ray_started_here_has_the_driver_s_interpreter_and_folder(project: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY", "PYTHON"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "HOME": str(tmp_path)}
    (project / "big").touch()
    os.truncate(project / "big", 600 << 20)  # more than Ray uploads
    done = subprocess.run(
        [*shlex.split(UV), "python", "-c", LOCAL],
        cwd=project, env=environment, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    driver, worker = (ast.literal_eval(line) for line in done.stdout.splitlines())
    assert driver == worker and driver[:2] == (str(project), "extra_ten") and driver[2] != sys.prefix


@pytest.mark.long
def test_an_environment_that_workers_cannot_have_is_refused(head: Head, project: Path) -> None:
    """The driver's environment is one that workers are not told of, as a variable of the driver alone does it."""
    (project / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "0"\n')
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
