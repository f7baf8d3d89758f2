"""docs/reference/tasks.md says what the code says: every task, its size and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raychains import samplers, tasks
from raychains.data import tabular
from raychains.tasks.defaults import Defaults
from raychains.tasks.images import ImageTask
from raychains.tasks.uci import bde_split
from raychains.tasks.user_defaults import defaults_of
from tests.data.prepared.made import without_pictures
from tests.tasks import made_images
from tests.tasks.made_images import NETWORKS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "tasks.md").read_text()


def rows(first: str) -> dict[str, list[str]]:
    """Cells of the rows of the table whose head begins with ``first``, by the task's name."""
    table = PAGE.partition(f"| task | {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in table]
    return {c[0].strip("`"): c[1:] for c in cells}


def test_every_task_is_on_the_page() -> None:
    assert set(rows("network")) == set(NETWORKS)
    others = {"digits", "mnist-1v7", *rows("network for a prepared set"), *rows("data")}
    assert set(rows("network")) | set(rows("target")) | others == set(tasks.NAMES)
    assert "`digits`" in PAGE


def stated(name: str) -> Defaults:
    """The settings that a built-in task states."""
    kind: Any = tasks.kind_of(name)
    found = kind.defaults
    assert isinstance(found, Defaults)
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_an_image_tasks_row_is_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made_images.use(monkeypatch)
    task = tasks.make(name)
    assert isinstance(task, ImageTask)
    size = sum(p.numel() for p in task.build_model(seed=0, lanes=1).parameters())
    d = stated(name)
    kind = samplers.method(d.run).kind
    d = d.of(kind)
    _, parameters, data, *others = rows("network")[name]
    assert parameters == f"{size:,}" and data.lower() == task.data.name.replace("cifar", "cifar-")
    wanted = [d.epochs, d.batch_size, d.rate("cyclical", kind), d.cycles, d.exploration, d.temperature, d.weight_decay]
    assert others == [d.run, *(f"{v:g}" for v in wanted if v is not None)]
    for companion in task.data.companions:
        assert f"`ood:{companion}`" in PAGE


def test_a_prepared_sets_row_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(tmp_path, "imagenet", [f"n{i:08d}" for i in range(1000)])
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    found = {}
    for name in rows("network for a prepared set"):
        task = tasks.make(name, size=32)
        size = sum(p.numel() for p in task.build_model(seed=0, lanes=1).parameters())
        d = defaults_of(task)
        kind = samplers.method(d.run).kind
        d = d.of(kind)
        numbers = [d.epochs, d.batch_size, d.rate("cyclical", kind), d.cycles]
        found[name] = [f"{size:,}", d.run, *(f"{v:g}" for v in numbers if v is not None)]
    told = {
        name: [cells[1].removeprefix("size=32: "), *cells[2:]]
        for name, cells in rows("network for a prepared set").items()
    }
    assert told == found


@pytest.mark.parametrize(
    "name", ["mixture25", "gaussian", "two-modes", "linear-regression", "blr-australian", "blr-german", "blr-heart"]
)
def test_a_densitys_row_is_true(name: str) -> None:
    d = stated(name)
    assert rows("target")[name][1:] == [str(d.steps), f"{d.cycles}", f"{d.exploration:g}"]
    assert d.repeats == (100 if name == "two-modes" else 10)


@pytest.mark.parametrize("name", [name for name in tasks.NAMES if name.startswith("uci-")])
def test_a_uci_tasks_row_is_true(name: str) -> None:
    table, d = tabular.REGRESSION_TABLES[name.removeprefix("uci-")], stated(name)
    train = len(bde_split(table.examples)[0])
    numbers = [d.epochs, d.batch_size, d.rate("cyclical", samplers.method(d.run).kind), d.cycles, d.exploration]
    counts = [f"{table.examples:,}", f"{table.features}", f"{train:,}"]
    assert rows("data")[name][1:] == [*counts, d.run, *(f"{v:g}" for v in numbers if v is not None)]


def test_what_is_said_of_digits_is_true() -> None:
    d = stated("digits")
    said = f"{d.epochs} epochs, batch {d.batch_size}, lr {d.rate('cyclical', 'sghmc'):g} for SGHMC, M {d.cycles}"
    assert said in " ".join(PAGE.split()) and f"λ {d.weight_decay:g}" in PAGE


def test_what_is_said_of_one_against_seven_is_true() -> None:
    d = stated("mnist-1v7")
    eta, inner = (d.sampler_settings[s][n] for s, n in (("emcmc", "eta"), ("entropy-sgd", "inner_lr")))
    said = (
        f"{d.epochs} epochs, batch {d.batch_size}, lr {d.rate('constant', 'emcmc'):g}, η {eta:g}, T {d.temperature:g}"
    )
    text = " ".join(PAGE.split())
    assert "`mnist-1v7`: the 13,007" in text and said in text
    assert f"λ {d.weight_decay:g}" in text and inner == d.rate("constant", "sgld") == 0.03
