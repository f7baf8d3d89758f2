"""A user's own sampler, schedule and task: nothing of them is imported because a store names it; names by entry
points."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raychains as rc
from raychains.api import plans, sampling
from raychains.cli import main
from raychains.core import user_code
from raychains.core.checksum import unsealed
from raychains.orchestration.cluster.worker_pool import WorkerPool
from raychains.store import finished_chains
from tests.checks import refused
from tests.pool import unpaged
from tests.processes import SECONDS, outside

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
RUN_COMMAND = """run --task own-digits --sampler mine-sgld --schedule warm --lr .1 --epochs 2 --batch-size 100
--chains 1 --name own --callback counting"""
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


RUN = "runs/runs/own"


@pytest.fixture(scope="module")
def folder(pool: WorkerPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module, installed as a package beside it, and a store with a run of its parts."""
    made = tmp_path_factory.mktemp("own")
    packages = made / "packages"
    (packages / "own_parts-1.0.dist-info").mkdir(parents=True)
    (packages / "own_parts.py").write_text(OWN)
    (packages / "own_parts-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n"
    )
    (packages / "own_parts-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as here, unpaged():
        here.chdir(made)
        here.syspath_prepend(str(packages))
        assert main(shlex.split(RUN_COMMAND)) == 0
    assert "Ready" in (made / "events").read_text().split()
    (packages / "imported").unlink()
    del sys.modules["own_parts"]
    return made


# What is read from the store


STEPS = """
import contextlib, io, json, os, sys
from pathlib import Path
from raychains.cli import main
packages, mark, said = os.path.abspath("packages"), Path("packages/imported"), {}
for name, there, step in json.loads(sys.argv[1]):
    sys.path[:] = [packages] * there + [folder for folder in sys.path if folder != packages]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if isinstance(step, str):
            exec(step, {})
        else:
            status = main(step)
    said[name] = status, out.getvalue(), err.getvalue(), mark.exists()
    mark.unlink(missing_ok=True)
    sys.modules.pop("own_parts", None)
print(json.dumps(said), flush=True)
os._exit(0)
"""
"""Commands and code one after another, without what threads of libraries do at a process's end on a busy machine."""
UNTRUSTED = {
    "status": f"status {RUN} --json",
    "store": "status runs",
    "report": f"report {RUN}",
    "export": f"export {RUN} --to never.safetensors",
    "older": "status older/runs/own",
}
TRUSTED = {"report trusted": f"report {RUN} --trust", "export trusted": f"export {RUN} --to own.safetensors --trust"}
REMOVE = f"""
from pathlib import Path
for name in ("report.html", "figures/schedules.svg"):
    Path({RUN!r}, name).unlink(missing_ok=True)
"""
LOOK = f"""
from pathlib import Path
print("own_parts:Warm" in Path({RUN!r}, "report.html").read_text(), Path({RUN!r}, "figures/schedules.svg").exists())
"""
OLDER_TABLE = "import raychains as rc; print(rc.load('older/runs/own').table(full=True)['error'].iloc[0])"
TABLE = f"""
import sys
import raychains as rc
result = rc.load({RUN!r})
print(result.table(full=True)["error"].iloc[0], len(result.results()), result.comparison.arms[0].label)
try:
    result.predict([[0.0] * 64])
except rc.UserError as error:
    print(error)
assert "own_parts" not in sys.modules
p = rc.load({RUN!r}, task=rc.make_task("own_parts:make_task")).predict([[0.0] * 64])
assert p.shape == (1, 10)
"""
PLACES = {"module-there": True, "module-missing": False}


class Said(NamedTuple):
    """A command's exit status, what it printed, and whether the user's module was imported by it."""

    status: int
    out: str
    err: str
    imported: bool


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Said]:
    """By a process that has imported nothing: with the module to be found, and where it is missing."""
    shutil.copytree(folder / "runs", folder / "older")
    plan = folder / "older" / "runs" / "own" / "plan.json"
    stored, _ = unsealed(json.loads(plan.read_text()))
    comparison = {k: v for k, v in stored["comparison"].items() if k != "facts"}
    plan.write_text(json.dumps({**stored, "comparison": comparison, "metrics": None}))

    steps: list[tuple[str, bool, str | list[str]]] = []
    for place, there in PLACES.items():
        steps.append((f"{place}: remove", there, REMOVE))
        steps += [(f"{place}: {name}", there, shlex.split(line)) for name, line in UNTRUSTED.items()]
        steps += [(f"{place}: look", there, LOOK), (f"{place}: older table", there, OLDER_TABLE)]
    steps += [("help", True, ["--help"]), ("help run", True, ["run", "--help"])]
    for place, there in reversed(PLACES.items()):
        steps += [(f"{place}: {name}", there, shlex.split(line)) for name, line in TRUSTED.items()]
    steps += [("look trusted", True, LOOK), ("table", True, TABLE)]
    env = outside()
    env["PYTHONPATH"] += f"{os.pathsep}{folder / 'packages'}"
    run = [sys.executable, "-c", STEPS, json.dumps(steps)]
    done = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return {name: Said(*each) for name, each in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("place", PLACES)
def test_reports_and_status_import_nothing_that_a_store_names(said: dict[str, Said], place: str) -> None:
    found = {name: said[f"{place}: {name}"] for name in ("status", "report", "store", "look")}
    assert not any(done.status or done.imported for done in found.values()), found
    assert [c["state"] for c in json.loads(found["status"].out)["chains"]] == ["finished"]
    assert found["look"].out.split() == ["True", "False"], "the page names the schedule, whose figure needs its class"


def test_trust_imports_them_for_the_figure_of_the_schedule(said: dict[str, Said]) -> None:
    there, missing = (said[f"{place}: report trusted"] for place in PLACES)
    assert there.status == 0 and there.imported
    assert said["look trusted"].out.split() == ["True", "True"]
    assert missing.status == 2 and "sampler must be an import path" in missing.err


@pytest.mark.parametrize("place", PLACES)
def test_an_ensemble_of_an_own_task_needs_trust(folder: Path, said: dict[str, Said], place: str) -> None:
    untrusted, trusted = said[f"{place}: export"], said[f"{place}: export trusted"]
    assert untrusted.status == 2 and not untrusted.imported and not (folder / "never.safetensors").exists()
    [line] = untrusted.err.splitlines()
    assert (
        line.startswith("raychains: task own_parts:make_task is code that this process has not imported")
        and "--trust" in line
    )
    assert (trusted.status == 0) == trusted.imported == PLACES[place]


def test_tables_are_read_without_import_and_predictions_with_the_task(said: dict[str, Said]) -> None:
    text = said["table"].out
    assert "Mine warm" not in text and "Mine Warm, 1 chain" in text and "trust=True" in text
    assert said["table"].imported  # by its last lines


@pytest.mark.parametrize("place", PLACES)
def test_an_older_versions_plan_is_read_without_import(said: dict[str, Said], place: str) -> None:
    """It says nothing of the classes: tables are read, and what needs the schedule is refused in one line."""
    status, table = said[f"{place}: older"], said[f"{place}: older table"]
    assert status.status == 2 and len(status.err.splitlines()) == 1 and "own_parts:" in status.err
    assert 0 <= float(table.out) <= 1 and not status.imported and not table.imported


def test_help_imports_no_package(said: dict[str, Said]) -> None:
    assert [(said[name].status, said[name].imported) for name in ("help", "help run")] == [(0, False)] * 2


# Entry points


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed for this process."""
    monkeypatch.syspath_prepend(str(folder / "packages"))
    yield folder
    sys.modules.pop("own_parts", None)


def test_a_short_name_and_an_import_path_are_one_chain(installed: Path) -> None:

    def digests(sampler: str, schedule: str) -> list[str]:
        options: dict[str, Any] = {"lr": f"{sampler}=.1", "epochs": 2, "chains": 1}
        found = plans.run(rc.Run(task="digits", sampler=sampler, schedule=schedule, **options)).comparison
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


# Classes in Python


def test_a_class_of_a_function_travels_to_the_workers(folder: Path) -> None:
    scale = 0.5

    class Half(rc.SGLD):
        def _update(self, group: dict[str, Any], params: Any, grads: Any) -> None:
            super()._update(group, params, [scale * g for g in grads])

    options: dict[str, Any] = {"task": rc.make_task("gaussian"), "steps": 200, "chains": 1, "repeats": 1, "lr": 0.1}
    options |= {"store": str(folder / "runs")}
    result = sampling.sample(sampler=Half, schedule=rc.Constant, **options)
    (arm,) = result.comparison.arms
    assert (
        arm.label == "Half constant, 1 chain" and arm.chains[0][0].sampler.kind == Half.kind and "<locals>" in Half.kind
    )
    assert user_code.is_local(Half.kind)
    assert finished_chains(result.store.root, result.comparison.chains()) == {*result.comparison.chains()}

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

    found = rc.sweep(task="digits", grid={"sampler": [Third]}, lr=0.3, epochs=2, store=store).table(full=True)
    assert found["sampler"].tolist() == [Third.kind] and found["status"].tolist() == ["finished"]


def test_a_measure_is_passed_as_it_is(installed: Path) -> None:
    def tables(context: Any) -> dict[str, list[dict[str, Any]]]:
        return {"arms": [{"arm": context.comparison.arms[arm].name, "group": group} for arm, group in context.groups]}

    own = rc.Measure(name="arms", about="each arm's name", tables=tables)
    result = rc.evaluate(str(installed / RUN), measures=[own, own], page=False)
    assert result.store.table("arms").num_rows == 1  # type: ignore[union-attr]
