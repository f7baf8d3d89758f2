"""Tasks by import path: found in the current folder, rebuilt by path and arguments, refused in one line that says
why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raychains import tasks
from raychains.api import plans
from raychains.core.config import Compare, Run
from raychains.core.spec import ChainSpec, TaskSpec
from raychains.tasks import passed_tasks
from raychains.tasks.digits import Digits
from raychains.tasks.from_options import make_task
from tests.checks import refused

MODULE = '''
import subprocess
import torch
import raychains as rc
from raychains.tasks.digits import Digits


def make_task(train: int = 20, slope: float = 2.0, seed=0, lr=None):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(train + 10, 2, generator=g)
    y = (slope * x[:, 0] > x[:, 1]).long()
    data = (x[:train], y[:train]), (x[train:], y[train:])
    return rc.Task.from_module(lambda: torch.nn.Linear(2, 2), *data, name="lines")


def itself(val_split: float = 0.0):
    x, y = torch.ones(20, 2), torch.arange(20) % 2
    return rc.Task.from_module(lambda: torch.nn.Linear(2, 2), (x, y), (x, y), name="mine", val_split=val_split)


def small():
    return Digits(train=60, hidden=[4])


def anything(**settings):
    return make_task(**settings)


class Makers:
    @classmethod
    def make(cls):
        return make_task()


class Named(Digits):
    """Takes an argument and states no settings of its own."""

    def __init__(self, size=50):
        super().__init__(train=size, hidden=[3])

    settings = rc.Task.settings


class Stating(Digits):
    pass


def nothing():
    return None


def raising():
    raise RuntimeError("the file flowers.csv\\nis missing")


def wrong_type():
    return 1 + "x"


def exiting():
    raise SystemExit(3)


class Net(torch.nn.Module):
    pass


not_callable = 3
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, holding the module `own_things`; not on Python's path."""
    (tmp_path / "own_things.py").write_text(MODULE)
    (tmp_path / "broken_things.py").write_text("import raychains\nx = 1 / 0\n")
    (tmp_path / "ending_things.py").write_text("raise SystemExit(2)\n")
    package = tmp_path / "own_package" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "things.py").write_text("from own_things import make_task\n")
    before = list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != ""])
    yield tmp_path
    sys.path[:] = before
    for name in [n for n in sys.modules if n.startswith(("own_", "broken_", "ending_"))]:
        del sys.modules[name]


def test_a_function_in_the_current_folder_makes_the_task_that_its_spec_rebuilds(folder: Path) -> None:
    assert str(folder) not in sys.path
    task = tasks.make("own_things:make_task", train=30)
    spec = task.spec()
    assert (spec.kind, dict(spec.settings), spec.revision) == ("own_things:make_task", {"train": 30}, task.revision)
    assert spec.fingerprint == task.fingerprint
    again = tasks.construct(spec.kind, TaskSpec.from_json(spec.to_json()).settings)
    assert again is not task and again.spec() == spec and again.num_data == 30


def test_a_task_that_was_named_is_found_again_and_others_are_made_anew() -> None:
    task = tasks.make("own_things:make_task")
    assert tasks.build(task.spec()) is task
    other = tasks.construct("own_things:make_task", {"train": 25}).spec()
    assert tasks.build(other).num_data == 25


def test_classes_by_path() -> None:
    stating = tasks.make("own_things:Stating", train=40)
    assert stating.spec().settings["train"] == 40 and stating.spec().settings["hidden"] == [100, 100]
    named = tasks.make("own_things:Named", size=44)
    assert named.spec().kind == "own_things:Named" and dict(named.spec().settings) == {"size": 44}
    assert tasks.construct(named.spec().kind, named.spec().settings).num_data == 44
    assert tasks.make("own_things:small").spec().kind == "own_things:small"
    assert tasks.make("raychains.tasks.digits:Digits").spec() == tasks.make("digits").spec()


def test_packages_methods_and_functions_of_others_work() -> None:
    assert tasks.make("own_package.inner.things:make_task").num_data == 20
    assert tasks.make("own_things:Makers.make").num_data == 20


def test_arguments_come_from_task_settings_whatever_they_are_called() -> None:
    given = ("train=24", "slope=1", "seed=3", "lr=.5")
    options = Run(task="own_things:make_task", task_settings=given, epochs=8, batch_size=8, cycles=1)
    planned = plans.run(options).comparison
    assert planned.task == "own_things:make_task" and planned.run_name.startswith("own_things-make_task-")
    assert dict(planned.task_spec.settings) == {"train": 24, "slope": 1.0, "seed": 3, "lr": 0.5}
    assert isinstance(planned.task_spec.settings["slope"], float)  # 1 and 1.0 are one setting
    (spec,) = {s.task for s in planned.chains().values()}
    assert ChainSpec.from_json(next(iter(planned.chains().values())).to_json()).task == spec
    free = plans.run(Run(task="own_things:anything", task_settings=("train=33",), epochs=8, batch_size=11, cycles=1))
    assert dict(free.comparison.task_spec.settings) == {"train": 33}


def test_comparisons_take_it_too() -> None:
    planned = plans.compare(Compare(task="own_things:make_task", epochs=8, batch_size=5, cycles=1)).comparison
    assert len(planned.arms) == 8 and planned.split == "test" and planned.unit == "epochs"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere:make_task", ("ModuleNotFoundError: No module named 'nowhere'",)),
        ("own_things:nowhere", ("AttributeError", "nowhere")),
        ("own_things:", ("AttributeError",)),
        (":make_task", ("task must be an import path",)),
        ("broken_things:make", ("ZeroDivisionError: division by zero",)),
        ("ending_things:make", ("SystemExit: 2",)),
        ("own_things:not_callable", ("must name a subclass of raychains.Task",)),
        ("own_things:Net", ("must name a subclass of raychains.Task",)),
        ("own_things:nothing", ("must return a raychains.Task, got NoneType",)),
        ("own_things:raising", ("raised RuntimeError: the file flowers.csv",)),
        ("own_things:wrong_type", ("raised TypeError: unsupported operand",)),
        ("own_things:exiting", ("raised SystemExit: 3",)),
        ("own_things.make_task", ("task must be one of", "an import path has a colon")),
    ],
)
def test_what_is_wrong_is_one_line(path: str, words: tuple[str, ...]) -> None:
    with refused(*words):
        tasks.make(path)


@pytest.mark.parametrize(
    "path",
    ["os:system", "subprocess:run", "own_things:subprocess.run", "own_things:torch.load", "builtins:eval",
     "own_things:rc.load", "raychains.cli:main", "raychains.tasks:make"],
)  # fmt: skip
def test_a_path_calls_nothing_that_is_not_meant_to_make_tasks(path: str, folder: Path) -> None:
    spec = TaskSpec(kind=path, revision=1, settings={"args": "touch touched"}, fingerprint="x")
    with refused("must name a subclass of raychains.Task"):
        tasks.build(spec)
    assert not (folder / "touched").exists()


def test_a_function_need_not_know_of_a_part_that_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Run(task="own_things:make_task", val_split=0.2, task_settings=("train=50",))
    task = make_task(options, options.task)
    spec = TaskSpec.from_json(task.spec().to_json())
    assert dict(spec.settings) == {"train": 50, "val_split": 10} and spec.kind == options.task
    assert make_task(Run(task=options.task, val_split=10, task_settings=("train=50",)), options.task).spec() == spec
    monkeypatch.setattr(passed_tasks, "_GIVEN", {})  # as in another process
    built = tasks.build(spec)
    assert built is not task and built.num_data == 40 and len(built.splits()["val"]._labels) == 10
    assert "val_split" not in make_task(Run(task=options.task), options.task).spec().settings
    aware = make_task(Run(task="own_things:itself", val_split=0.2), "own_things:itself")
    assert aware.num_data == 16 and dict(aware.spec().settings) == {"val_split": 0.2}


def test_arguments_that_do_not_fit_are_refused() -> None:
    with refused("task_settings must be one of lr, seed, slope, train", "did you mean 'train'"):
        plans.run(Run(task="own_things:make_task", task_settings=("trian=3",)))
    with refused("task_settings must be left out", "there are none"):
        plans.run(Run(task="own_things:small", task_settings=("train=3",)))
    with refused("val_split must be left out", "no such setting"):  # nobody says whether it uses it
        plans.run(Run(task="own_things:anything", val_split=0.5))
    with refused("unexpected keyword argument"):
        tasks.make("own_things:make_task", nothing=1)
    for name in ("kind", "revision", "fingerprint"):
        with refused(f"an argument cannot be called '{name}'"):
            tasks.make("own_things:anything", **{name: 1})


def test_a_spec_whose_data_changed_says_so() -> None:
    task = tasks.make("own_things:make_task", seed=1)
    spec = tasks.make("own_things:make_task", seed=2).spec()
    changed = TaskSpec(kind=spec.kind, revision=1, settings=spec.settings, fingerprint=task.fingerprint)
    with refused("training data and test data"):
        tasks.build(changed)


def test_an_object_of_a_class_that_nobody_can_import_travels_itself() -> None:
    class Local(Digits):
        """Of a function, as one of a script's ``__main__`` would be."""

    task = tasks.give(Local(train=30))
    assert tasks.travels(task) and tasks.build(TaskSpec.from_json(task.spec().to_json())) is task
    assert not tasks.travels(Digits(train=30)) and not tasks.travels(tasks.make("own_things:make_task"))
    missing = TaskSpec(kind="__main__:Mine", revision=1, settings={}, fingerprint="x")
    with refused("task must be an import path", "AttributeError"):
        tasks.build(missing)
