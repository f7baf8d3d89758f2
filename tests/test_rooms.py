"""The house's plan, checked on the code: who may import whom, what start-up loads, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse.csgraph

import raychains
from tests.processes import SECONDS

PACKAGE = Path(raychains.__file__).parent
REPOSITORY = PACKAGE.parent
LAYERS = (
    ("core",),
    ("evaluation", "priors", "models", "schedules", "samplers", "data", "tasks"),
    ("chain",),
    ("store", "planning", "coordination", "plotting"),
    ("inference", "orchestration"),
    ("measures", "callbacks", "report", "status"),
    ("api",),
    ("papers",),
    ("cli",),
)
"""From the ground up: a room imports only rooms of lower layers, and of its own layer those before it."""
ROOMS = tuple(room for layer in LAYERS for room in layer)
OPEN = ("callbacks", "evaluation", "measures", "models", "plotting", "priors", "samplers", "schedules", "tasks")
"""Rooms that an outside package may import from: they are documented, or pure functions usable alone."""
RAY = ("orchestration",)
"""The folders that import Ray."""


def room_of(module: str) -> str | None:
    """``samplers`` of ``raychains.samplers.sampler``; None for the package itself and for others' modules."""
    parts = module.split(".")
    return parts[1] if parts[0] == "raychains" and len(parts) > 1 else None


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those inside functions and under TYPE_CHECKING too."""
    if isinstance(tree, ast.Import):
        yield from ((tree.lineno, alias.name) for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        base = tree.module or ""
        if tree.level:
            base = ".".join([*package.split(".")[: len(package.split(".")) - tree.level + 1], *filter(None, [base])])
        yield from ((tree.lineno, f"{base}.{alias.name}") for alias in tree.names)
    elif isinstance(tree, ast.Call) and tree.args and isinstance(tree.args[0], ast.Constant):
        called = ast.unparse(tree.func)
        if called in ("__import__", "import_module", "importlib.import_module") and isinstance(tree.args[0].value, str):
            yield tree.lineno, tree.args[0].value
    for child in ast.iter_child_nodes(tree):
        yield from imported(child, package)


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imports_of(file: Path) -> list[tuple[int, str]]:
    package = ".".join(file.relative_to(REPOSITORY).parent.parts)
    return list(imported(ast.parse(file.read_text()), package))


def violations(room: str, found: list[tuple[int, str]]) -> list[str]:
    """Imports of rooms that do not lie before ``room``."""
    wrong = []
    for line, module in found:
        other = room_of(module)
        if other is None or other == room:
            continue
        if other in ROOMS and ROOMS.index(other) < ROOMS.index(room):
            continue
        if other not in ROOMS and module.count(".") == 1 and module.rpartition(".")[2].startswith("_"):
            continue  # raychains.__version__
        wrong.append(f"line {line}: {room} imports {module}")
    return wrong


# The plan


def test_every_folder_and_module_of_the_package_is_a_room_of_the_plan() -> None:
    found = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert found - {"__init__", "__pycache__"} <= set(ROOMS)


def test_file_names_are_unique() -> None:
    found = Counter(file.name for file in files() if file.name != "__init__.py")
    assert {name: count for name, count in found.items() if count > 1} == {}


def test_a_room_imports_only_rooms_before_it() -> None:
    wrong = {}
    for file in files():
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found = imports_of(file)
        if room == "__init__":  # exports the public names lazily
            top = top_level_lines(file)
            wrong[file] = [f"line {line}: {m}" for line, m in found if room_of(m) not in (None, "core") and line in top]
        else:
            wrong[file] = violations(room, found)
    assert len(wrong) > 250
    assert {str(file): lines for file, lines in wrong.items() if lines} == {}


def test_a_published_table_imports_only_what_an_outside_package_could() -> None:
    """The public API as ``rc``, `raychains.papers` as ``rp``, documented rooms, and other tables."""
    folders = {folder.name for folder in (PACKAGE / "papers").iterdir() if folder.is_dir()}
    found = {
        (file.name, module)
        for file in PACKAGE.glob("papers/*/*.py")
        for _, module in imports_of(file)
        if (room := room_of(module)) is not None
        and (
            module.split(".")[2:3] not in ([], *([name] for name in folders)) if room == "papers" else room not in OPEN
        )
    }
    assert found == {("mixture_experiments.py", "raychains.report.figures.density_figure")}


def top_level_lines(file: Path) -> set[int]:
    return {node.lineno for node in ast.parse(file.read_text()).body}


def test_only_the_rooms_of_ray_import_it() -> None:
    others = [file for file in files() if not str(file.relative_to(PACKAGE)).startswith(RAY)]
    importing = {str(file): [m for _, m in imports_of(file) if m.split(".")[0] == "ray"] for file in others}
    assert len(importing) > 200
    assert {file: modules for file, modules in importing.items() if modules} == {}


@pytest.mark.parametrize(
    ("room", "code", "wrong"),
    [
        ("samplers", "from raychains.schedules.schedule import Schedule", False),
        ("samplers", "from raychains import store", True),
        ("samplers", "import raychains.store.codec", True),
        ("samplers", "from raychains import core, chain", True),
        ("store", "def f():\n    from raychains.planning import budget", True),
        ("store", "def f():\n    from ..planning import budget", True),
        ("store", "from . import codec", False),
        ("store", "import importlib\nimportlib.import_module('raychains.report')", True),
        ("store", "if TYPE_CHECKING:\n    from raychains.planning import budget", True),
        ("planning", "from raychains.nowhere import x", True),
        ("cli", "from raychains import __version__", False),
    ],
)
def test_the_rule_above_finds_what_it_should(room: str, code: str, wrong: bool) -> None:
    assert bool(violations(room, list(imported(ast.parse(code), f"raychains.{room}")))) is wrong


CIRCLES: dict[frozenset[str], str] = {
    frozenset({"tasks.base", "tasks.density", "tasks.module"}): (
        "Task.from_module and Task.from_log_density make subclasses; set on Task from above, type checkers lose their "
        "signatures"
    )
}
"""Files that import each other, and why."""


def test_files_import_each_other_in_few_known_circles() -> None:
    names = {".".join(f.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): f for f in files()}
    graph = {
        name: {found for _, m in imports_of(f) if (found := m if m in names else m.rpartition(".")[0]) in names}
        - {name, "raychains"}
        for name, f in names.items()
        if name != "raychains"
    }
    circles = {
        frozenset(m.removeprefix("raychains.") for m in circle) for circle in strongly_connected_components(graph)
    }
    assert circles <= set(CIRCLES), circles - set(CIRCLES)


def strongly_connected_components(graph: dict[str, set[str]]) -> list[set[str]]:
    """The components of more than one node: nodes that reach each other."""
    nodes = sorted(graph)
    place = {node: n for n, node in enumerate(nodes)}
    edges = [(place[a], place[b]) for a, found in graph.items() for b in found]
    matrix = scipy.sparse.coo_array(
        (np.ones(len(edges)), tuple(zip(*edges, strict=True))), shape=(len(nodes), len(nodes))
    )
    _, labels = scipy.sparse.csgraph.connected_components(matrix, connection="strong")
    return [{nodes[i] for i in np.flatnonzero(labels == n)} for n in np.flatnonzero(np.bincount(labels) > 1)]


def test_the_table_of_rooms_is_the_plan() -> None:
    page = (REPOSITORY / "docs" / "concepts" / "code.md").read_text().partition("## Packages")[2]
    rows = [line.split("|")[1:3] for line in page.splitlines() if "|" in line]
    named = [
        (int(layer), room)
        for layer, rooms in rows
        if layer.strip().isdecimal()
        for room in rooms.replace("`", "").split(",")
    ]
    assert [(layer, room.strip()) for layer, room in named] == [
        (n, room) for n, rooms in enumerate(LAYERS) for room in rooms
    ]


# Fresh interpreters


HEAVY = (
    "torch",
    "ray",
    "torchvision",
    "torchmetrics",
    "sklearn",
    "matplotlib",
    "scipy",
    "pandas",
    "PIL",
    "torch._dynamo",
)


def fresh(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


HELP = """
for arguments in (["--help"], ["compare", "--help"], ["--version"], ["reproduce", "--list"]):
    sys.argv = ["raychains", *arguments]
    try:
        runpy.run_module("raychains.cli", run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
"""
DATA = """
from raychains.data import augment, cifar10_c, sets, source
from tests.data import small
for name in ("mnist", "cifar10", "cifar100"):
    with tempfile.TemporaryDirectory() as root:
        assert len(sets.read(small.write(name, pathlib.Path(root)), "train", pathlib.Path(root))) == 30
"""
CHAIN = """
from raychains import tasks
from raychains.chain.chain import Chain
from raychains.core.spec import ChainSpec, Part
from raychains.samplers import SGLD
task = tasks.make("digits", train=40, hidden=[4])
schedule = schedules.Cyclical(steps=4, lr=.1, cycles=1, exploration=.5)
spec = ChainSpec(task=task.spec(), sampler=Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 40}),
                 schedule=schedule.part(), steps=4, steps_per_epoch=2, batch_size=20, seed=0, repeat=0, chain=0)
events = list(Chain(spec))
assert len(events) == 4, events
"""
WORKER = """
import os
import raychains.tasks.images
from raychains.planning import methods
from raychains.core.config import Run
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.chains.messages import ChainAssignment, ChainWorkerConfig
from raychains.coordination.coordinator import Ended, Sampled

for name, length in (("digits", {"epochs": 40}), ("mixture25", {"steps": 300})):
    task = tasks.make(name)
    spec = methods.resolve(Run(**length), task=task, sampler="sghmc", schedule="cyclical").spec
    with tempfile.TemporaryDirectory() as store:
        worker = ChainWorker(ChainWorkerConfig(store=store))
        worker.start(ChainAssignment(spec=spec.to_json(), attempt=1))
        kinds = []
        while Ended not in kinds:
            event, _ = worker.next(spec.digest, 1)
            kinds.append(type(event))
        assert event.outcome == "finished" and Sampled in kinds, event
if os.environ.get("RAYCHAINS_DATA"):
    for name in ("mnist-mlp", "cifar10-resnet18"):
        task = tasks.make(name, train_subset=10)
        task.prepare(task.splits()["test"].inputs[:1])
"""
STEPS: list[tuple[str, set[str]]] = [
    ("import pathlib, runpy, sys, tempfile, raychains", set()),
    (HELP, set()),
    ("from raychains import schedules\nschedules.Cyclical", set()),
    ("schedules.ScheduleLR", {"torch"}),
    ("from raychains.models import build\nbuild('resnet18', classes=10), build('resnet_plus', depth=8), build('lenet')",
     {"torch"}),
    (DATA, {"torch"}),
    (CHAIN, {"torch"}),
    (WORKER, {"torch", "ray", "pandas"}),
]  # fmt: skip
"""Code that one process runs in turn, and which of `HEAVY` may be there behind it."""


def test_libraries_are_loaded_when_they_are_needed_and_not_before() -> None:
    """Cold imports measured: torchvision 7 s, torchmetrics 9 s, torch's compiler 1.4 s; a worker samples before
    that."""
    ask = f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    told = fresh("\n".join(f"{code}\n{ask}" for code, _ in STEPS)).splitlines()
    found = [set(ast.literal_eval(line)) for line in told if line.startswith("[")]
    assert len(found) == len(STEPS)
    for (code, allowed), heavy in zip(STEPS, found, strict=True):
        assert heavy <= allowed and ("torch" in heavy) is ("torch" in allowed), code


def test_everything_but_orchestration_imports_without_ray() -> None:
    modules = [
        ".".join(f.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        for f in files()
        if not str(f.relative_to(PACKAGE)).startswith(RAY)
    ]
    assert len(modules) > 40
    fresh(f"import importlib, sys\nsys.modules['ray'] = None\nfor m in {modules!r}:\n    importlib.import_module(m)")
