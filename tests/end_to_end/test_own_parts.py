"""A user's own sampler, schedule and task: nothing of them is imported because a store names it; names by entry points."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import raychains as rc
from raychains.core import registry
from raychains.core.checksum import unsealed
from raychains.planning import methods
from raychains.schedules import base as schedule_base
from tests.checks import refused
from tests.processes import SECONDS, outside

COMMANDS = """
import contextlib, io, json, os, sys
from raychains.cli import main
said = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    said.append([status, out.getvalue(), err.getvalue(), "own_parts" in sys.modules])
print(json.dumps(said), flush=True)
os._exit(0)
"""
"""Command lines one after another, without what threads of libraries do at a process's end on a busy machine."""

OWN = '''
"""Parts of a user, whose import leaves a file."""
import os
from dataclasses import dataclass
from pathlib import Path

import raychains as rc

Path(__file__).with_name("imported").touch()


class Mine(rc.SGLD):
    def _update(self, group, params, grads):
        super()._update(group, params, [g * 1.0 for g in grads])


@dataclass(frozen=True, kw_only=True)
class Warm(rc.NonCyclical):
    lr: float

    def _check_shape(self):
        pass

    def lr_at(self, step):
        return self.lr * min(1, step / 10)


class Counting:
    def on(self, event):
        with open("events", "a") as file:
            print(type(event).__name__, file=file)


def make_task():
    return rc.make_task("digits")


MEASURE = rc.Measure(name="none", about="nothing", tables=lambda context: {}, figures={})
'''
RUN_COMMAND = """run --task own-digits --sampler mine-sgld --schedule warm --lr .1 --epochs 2 --batch-size 100 --chains 2
--name own --callback counting"""
ENTRY_POINTS = """
[raychains.samplers]
mine-sgld = own_parts:Mine
[raychains.schedules]
warm = own_parts:Warm
[raychains.tasks]
own-digits = own_parts:make_task
[raychains.measures]
no-measure = own_parts:MEASURE
[raychains.callbacks]
counting = own_parts:Counting
"""


class Said(NamedTuple):
    """A command's exit status, what it printed, and whether the user's module was imported by then."""

    status: int
    out: str
    err: str
    imported: bool


def commands(folder: Path, *lines: str, path: str = "") -> list[Said]:
    """Run them in one process, with ``path`` on Python's own."""
    env = outside()
    env["PYTHONPATH"] += f"{os.pathsep}{path}" if path else ""
    words = json.dumps([shlex.split(line) for line in lines])
    run = [sys.executable, "-c", COMMANDS, words]
    done = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return [Said(*each) for each in json.loads(done.stdout.splitlines()[-1])]


def python(folder: Path, code: str) -> str:
    env = outside()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module, installed as a package beside it, and a store with a run of its parts."""
    made = tmp_path_factory.mktemp("own")
    packages = made / "packages"
    (packages / "own_parts-1.0.dist-info").mkdir(parents=True)
    (packages / "own_parts.py").write_text(OWN)
    (packages / "own_parts-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n"
    )
    (packages / "own_parts-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    [done] = commands(made, RUN_COMMAND, path=str(packages))
    assert done.status == 0 and done.imported, done.err
    assert "Ready" in (made / "events").read_text().split()
    (packages / "imported").unlink()
    return made


def imported(folder: Path) -> bool:
    """Whether the module was imported since this was asked last."""
    mark = folder / "packages" / "imported"
    found = mark.exists()
    mark.unlink(missing_ok=True)
    return found


@pytest.fixture(params=[True, False], ids=["module-there", "module-missing"])
def path(folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """What is on the path beside raychains."""
    yield str(folder / "packages") if request.param else ""


RUN = "runs/runs/own"


def test_reports_and_status_import_nothing_that_a_store_names(folder: Path, path: str) -> None:
    (folder / RUN / "report.html").unlink()
    said = commands(folder, f"status {RUN} --json", f"report {RUN}", "status runs", path=path)
    assert [done.status for done in said] == [0] * 3, said
    assert [c["state"] for c in json.loads(said[0].out)["chains"]] == ["finished"] * 2
    assert "own_parts:Warm" in (folder / RUN / "report.html").read_text()
    assert not imported(folder)


def test_trust_imports_them_for_the_figure_of_the_schedule(folder: Path) -> None:
    drawn = folder / RUN / "figures" / "schedules.svg"
    drawn.unlink(missing_ok=True)
    [done] = commands(folder, f"report {RUN}", path=str(folder / "packages"))
    assert done.status == 0 and not drawn.exists()
    [done] = commands(folder, f"report {RUN} --trust", path=str(folder / "packages"))
    assert done.status == 0 and drawn.exists() and imported(folder)
    [done] = commands(folder, f"report {RUN} --trust")
    assert done.status == 2 and "sampler must be an import path" in done.err


def test_an_ensemble_of_an_own_task_needs_trust(folder: Path, path: str) -> None:
    untrusted, trusted = commands(
        folder, f"export {RUN} --to never.safetensors", f"export {RUN} --to own.safetensors --trust", path=path
    )
    assert untrusted.status == 2 and not untrusted.imported and not (folder / "never.safetensors").exists()
    [line] = untrusted.err.splitlines()
    assert (
        line.startswith("raychains: task own_parts:make_task is code that this process has not imported")
        and "--trust" in line
    )
    assert (trusted.status == 0) == trusted.imported == imported(folder) == bool(path)
    (folder / "own.safetensors").unlink(missing_ok=True)


TABLE = f"""
import sys
import raychains as rc
sys.path.insert(0, "packages")
result = rc.load({RUN!r})
print(result.table(full=True)["error"].iloc[0], len(result.results()), result.comparison.arms[0].label)
assert "own_parts" not in sys.modules
try:
    result.predict([[0.0] * 64])
except rc.UserError as error:
    print(error)
assert "own_parts" not in sys.modules
p = rc.load({RUN!r}, task=rc.make_task("own_parts:make_task")).predict([[0.0] * 64])
assert p.shape == (1, 10)
"""


def test_tables_are_read_without_import_and_predictions_with_the_task(folder: Path) -> None:
    text = python(folder, TABLE)
    assert "Mine warm" not in text and "Mine Warm, 2 chains" in text and "trust=True" in text
    assert imported(folder)  # by the last lines


def test_an_older_versions_plan_is_read_without_import(folder: Path, path: str) -> None:
    """It says nothing of the classes: tables are read, and what needs the schedule is refused in one line."""
    plan = folder / RUN / "plan.json"
    stored = json.loads(plan.read_text())
    older = {
        **unsealed(stored)[0],
        "comparison": {k: v for k, v in stored["comparison"].items() if k != "facts"},
        "metrics": None,
    }
    plan.write_text(json.dumps(older))
    try:
        [done] = commands(folder, f"status {RUN}", path=path)
        assert done.status == 2 and len(done.err.splitlines()) == 1 and "own_parts:" in done.err
        text = python(folder, f"import raychains as rc; print(rc.load({RUN!r}).table(full=True)['error'].iloc[0])")
        assert 0 <= float(text) <= 1 and not imported(folder)
    finally:
        plan.write_text(json.dumps(stored))


# Entry points


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed for this process."""
    monkeypatch.syspath_prepend(str(folder / "packages"))
    yield folder
    sys.modules.pop("own_parts", None)


def test_a_short_name_and_an_import_path_are_one_chain(installed: Path) -> None:
    from raychains.planning.presets import default_arms

    def digests(sampler: str, schedule: str) -> list[str]:
        options: dict[str, Any] = {"lr": f"{sampler}=.1", "epochs": 2, "chains": 1}
        found = default_arms.run(rc.Run(task="digits", sampler=sampler, schedule=schedule, **options)).comparison
        return [found.digest, *found.chains()]

    assert digests("mine-sgld", "warm") == digests("own_parts:Mine", "own_parts:Warm")
    stored = json.loads((installed / RUN / "plan.json").read_text())["comparison"]
    (spec, *_) = stored["chains"].values()
    assert spec["sampler"]["kind"] == "own_parts:Mine" and spec["schedule"]["kind"] == "own_parts:Warm"
    assert spec["task"]["kind"] == "own_parts:make_task"


def test_short_names_are_known_and_suggested(installed: Path) -> None:
    for words, given in (
        (("sampler must be one of", "mine-sgld", "sghmc", "did you mean 'mine-sgld'"), {"sampler": "mine-sgdl"}),
        (("schedule must be one of", "warm", "cyclical", "did you mean 'warm'"), {"schedule": "wram"}),
        (("task must be one of", "own-digits"), {"task": "own-digts"}),
        (("callback must be one of", "counting"), {"callback": "countng"}),
    ):
        with refused(*words):
            rc.run(**{"task": "digits", "epochs": 2, **given})
    from raychains.measures import named

    assert named("no-measure").name == "none"
    with refused("measures must be one of", "no-measure"):
        named("no-measur")


def test_help_imports_no_package(folder: Path) -> None:
    imported(folder)
    said = commands(folder, "--help", "run --help", path=str(folder / "packages"))
    assert [done.status for done in said] == [0, 0] and not imported(folder)


# Classes in Python


def test_a_run_of_an_older_version_is_resumed(
    ray_session: None, store: str, monkeypatch: pytest.MonkeyPatch, installed: Path
) -> None:
    """Its specs do not hold the sources of the classes."""
    options: dict[str, Any] = {"task": "gaussian", "steps": 100, "chains": 1, "repeats": 1, "lr": 0.1, "store": store}
    options |= {"sampler": "own_parts:Mine", "schedule": "own_parts:Warm", "resume": True}
    with monkeypatch.context() as older:
        for module in (methods, schedule_base):
            older.setattr(module, "source_of", lambda part: None)
        first = rc.run(**options)
    again = rc.run(**options)
    assert again.path == first.path and len(list(Path(store, "chains").iterdir())) == 1
    pd.testing.assert_frame_equal(again.table(), first.table())
    other = rc.run(**{**options, "resume": False})  # as this version plans it
    assert other.path != first.path and len(list(Path(store, "chains").iterdir())) == 2


def test_a_class_of_a_function_travels_to_the_workers(ray_session: None, store: str) -> None:
    scale = 0.5

    class Half(rc.SGLD):
        def _update(self, group: dict[str, Any], params: Any, grads: Any) -> None:
            super()._update(group, params, [scale * g for g in grads])

    options: dict[str, Any] = {"task": "gaussian", "steps": 200, "chains": 2, "repeats": 2, "lr": 0.1, "store": store}
    result = rc.run(sampler=Half, schedule=rc.Constant, **options)
    (arm,) = result.comparison.arms
    assert (
        arm.label == "Half constant, 2 chains"
        and arm.chains[0][0].sampler.kind == Half.kind
        and "<locals>" in Half.kind
    )
    assert registry.is_local(Half.kind) and len(result.table()) == 1

    def made(stuck: Any) -> type:
        class Stuck(rc.SGLD):
            def held(self) -> Any:
                return stuck

        return Stuck

    with refused("Stuck must be picklable to travel to workers"):
        rc.run(sampler=made(threading.Lock()), **options)


def test_trials_of_a_sweep_get_a_class_of_a_function(ray_session: None, store: str) -> None:
    class Third(rc.SGLD):
        def _update(self, group: dict[str, Any], params: Any, grads: Any) -> None:
            super()._update(group, params, [g / 3 for g in grads])

    found = rc.sweep(task="digits", grid={"sampler": ["sgld", Third]}, lr=0.3, epochs=2, store=store).table(full=True)
    assert found["sampler"].tolist() == ["sgld", Third.kind] and found["status"].tolist() == ["finished"] * 2
    assert found["nll"].nunique() == 2


def test_a_measure_is_passed_as_it_is(ray_session: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tables(context: Any) -> dict[str, list[dict[str, Any]]]:
        return {"arms": [{"arm": context.comparison.arms[arm].name, "group": group} for arm, group in context.groups]}

    own = rc.Measure(name="arms", about="each arm's name", tables=tables)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder / "packages"))
    try:
        result = rc.evaluate(RUN, measures=[own, own])
        assert result.store.table("arms").num_rows == 1  # type: ignore[union-attr]
    finally:
        sys.modules.pop("own_parts", None)
