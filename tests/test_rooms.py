"""The house's plan, checked on the code: who may import whom, what start-up loads, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import raychains

PACKAGE = Path(raychains.__file__).parent
REPOSITORY = PACKAGE.parent
ROOMS = (
    "errors", "retry", "options", "spec", "sample", "schedules", "samplers", "priors", "models", "data", "evaluation", "tasks",
    "warmstart", "execution", "methods", "draws", "streams", "positions", "ranks", "micro", "chain", "divergence", "store", "planning", "listeners", "predictive", "deploy", "orchestration", "status", "experiments", "analyses", "report", "published", "resumed", "api", "template", "filed", "cli",
)  # fmt: skip
"""From the ground up: a room imports only rooms before it."""
LONGEST = 400
"""Lines of a file; over this it asks for a split."""
NOT_OURS = {".venv", "build", "dist", "runs", ".git"}


def room_of(module: str) -> str | None:
    """``samplers`` of ``raychains.samplers.base``; None for the package itself and for others' modules."""
    parts = module.split(".")
    return parts[1] if parts[0] == "raychains" and len(parts) > 1 else None


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those inside functions too, but for TYPE_CHECKING's."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        for node in tree.orelse:
            yield from imported(node, package)
        return
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


@pytest.mark.parametrize("file", files(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_before_it(file: Path) -> None:
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    found = imports_of(file)
    if room == "__init__":  # exports the public names lazily
        top = [m for line, m in found if room_of(m) and line in top_level_lines(file)]
        assert all(room_of(m) in ("errors", "options", "spec") for m in top), top
        return
    assert violations(room, found) == []


def top_level_lines(file: Path) -> set[int]:
    return {node.lineno for node in ast.parse(file.read_text()).body}


@pytest.mark.parametrize("file", files(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_orchestration_alone_imports_ray(file: Path) -> None:
    if file.relative_to(PACKAGE).parts[0] != "orchestration":
        assert [m for _, m in imports_of(file) if m.split(".")[0] == "ray"] == []


def test_orchestration_does_import_ray() -> None:
    found = {m.split(".")[0] for f in (PACKAGE / "orchestration").rglob("*.py") for _, m in imports_of(f)}
    assert "ray" in found


def test_no_python_file_is_longer_than_the_house_allows() -> None:
    ours = [f for f in REPOSITORY.rglob("*.py") if not NOT_OURS & set(f.relative_to(REPOSITORY).parts)]
    long = {str(f.relative_to(REPOSITORY)): n for f in ours if (n := len(f.read_text().splitlines())) > LONGEST}
    assert len(ours) > 40 and not long


@pytest.mark.parametrize(
    ("room", "code", "wrong"),
    [
        ("samplers", "from raychains.schedules.base import is_number", False),
        ("samplers", "from raychains import store", True),
        ("samplers", "import raychains.store.codec", True),
        ("samplers", "from raychains import errors, chain", True),
        ("store", "def f():\n    from raychains.planning import budget", True),
        ("store", "def f():\n    from ..planning import budget", True),
        ("store", "from . import codec", False),
        ("store", "import importlib\nimportlib.import_module('raychains.report')", True),
        ("store", "if TYPE_CHECKING:\n    from raychains.planning import budget", False),
        ("store", "if TYPE_CHECKING:\n    pass\nelse:\n    from raychains.planning import budget", True),
        ("planning", "from raychains.nowhere import x", True),
        ("cli", "from raychains import __version__", False),
    ],
)
def test_the_rule_above_finds_what_it_should(room: str, code: str, wrong: bool) -> None:
    assert bool(violations(room, list(imported(ast.parse(code), f"raychains.{room}")))) is wrong


# Fresh interpreters


def loaded(code: str, *names: str) -> list[str]:
    """Which of the named packages are loaded after ``code`` ran in a fresh interpreter."""
    ask = f"\nimport sys\nprint(sorted(set({names!r}) & set(sys.modules)))"
    run = [sys.executable, "-c", code + ask]
    done = subprocess.run(run, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0, done.stderr
    return list(ast.literal_eval(done.stdout.splitlines()[-1]))


HEAVY = ("torch", "ray", "torchvision", "torchmetrics", "sklearn", "matplotlib", "scipy")


def test_importing_raychains_loads_neither_torch_nor_ray() -> None:
    assert loaded("import raychains, sys", *HEAVY) == []


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["--version"]], ids=" ".join)
def test_help_and_version_load_neither_torch_nor_ray(arguments: list[str]) -> None:
    code = (
        "import atexit, runpy, sys\n"
        f"sys.argv = ['raychains', *{arguments!r}]\n"
        "try:\n    runpy.run_module('raychains.cli', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
    )
    assert loaded(code, *HEAVY) == []


def test_everything_but_orchestration_imports_without_ray() -> None:
    modules = [
        ".".join(f.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        for f in files()
        if f.relative_to(PACKAGE).parts[0] != "orchestration"
    ]
    assert len(modules) > 40
    code = f"import importlib, sys\nsys.modules['ray'] = None\nfor m in {modules!r}:\n    importlib.import_module(m)"
    assert loaded(code, "torch") == ["torch"]


def test_a_chain_worker_never_loads_what_only_evaluation_or_images_need() -> None:
    """Cold imports measured: torchvision 7 s, torchmetrics 9 s, torch's compiler 1.4 s; a worker samples before that."""
    code = """
import os, tempfile
import raychains.tasks.images
from raychains import methods, tasks
from raychains.options import Run
from raychains.orchestration.worker import ChainWorker

for name, length in (("digits", {"epochs": 40}), ("mixture25", {"steps": 300})):
    task = tasks.make(name)
    spec = methods.resolve(Run(**length), task=task, name=name, sampler="sghmc", schedule="cyclical").spec
    with tempfile.TemporaryDirectory() as store:
        worker = ChainWorker(store, 60.0, False, None, 0.0)
        worker.start(spec.to_json(), 1, {})
        kinds = []
        while not kinds or kinds[-1] != "ended":
            event, _ = worker.next(spec.digest, 1)
            kinds.append(event["kind"])
        assert event["outcome"] == "finished" and "sample" in kinds, event
if os.environ.get("RAYCHAINS_DATA"):
    for name in ("mnist-mlp", "cifar10-resnet18"):
        task = tasks.make(name, train_subset=10)
        task.prepare(task.splits()["test"].inputs[:1])
"""
    names = ("torch", "torch._dynamo", "torchvision", "torchmetrics", "sklearn", "scipy", "matplotlib")
    assert loaded(code, *names) == ["torch"]
