"""Python on README.md and on the docs' first pages runs as written; the listed dependencies are the packaged ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.pool import unpaged

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
Names = dict[str, Any]


def good_fit(names: Names) -> bool:
    rows = names["result"].table(full=True)
    return bool(names["p"].shape == (100, 2) and np.allclose(names["p"].sum(1), 1) and rows["error"].iloc[0] < 0.3)


@pytest.fixture(scope="module", autouse=True)
def here(folder: Path, runs: str) -> Iterator[Path]:
    """The current folder, so that runs of all pages share a store and with it their workers."""
    with pytest.MonkeyPatch.context() as patch, unpaged():
        patch.chdir(folder)
        yield folder


BLOCKS: dict[str, Callable[[Names], bool]] = {
    "README.md 0": lambda names: names["intervals"].shape == (len(names["x"]) - 400, 2),
    "docs/how-to/local-learning-coefficient.md 1": lambda names: Path("step400.pt").is_file(),
    "docs/how-to/own-model.md 0": good_fit,
    "docs/reference/samplers.md 0": lambda names: len(names["samples"]) == 4,
}
"""Pages' blocks by number, with what must hold of their variables."""


LONG = {"docs/how-to/local-learning-coefficient.md 1"}


def run_page(page: str) -> Iterator[Names]:
    """Run a page's blocks of Python from top to bottom; after each, the variables so far."""
    names: Names = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.S):
        exec(compile(code, page, "exec"), names)
        yield names


@pytest.mark.parametrize("block", [pytest.param(b, marks=[pytest.mark.long] if b in LONG else []) for b in BLOCKS])
def test_python_runs_as_written(block: str) -> None:
    page, number = block.split()
    code = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)[int(number)]
    names: Names = {}
    torch.manual_seed(list(BLOCKS).index(block))  # two pages make the same task of data that they draw
    exec(compile(code, page, "exec"), names)
    assert BLOCKS[block](names)


def test_python_on_the_page_on_own_loops_runs_from_top_to_bottom() -> None:
    losses: list[float] = []
    for names in run_page("how-to/own-loop.md"):
        assert losses or (names["p"].shape == (500, 3) and len(names["samples"]) == 12)
        losses.append(float(names.get("loss", 0.0)))
        assert all(t.isfinite().all() for sample in names["samples"] for t in sample.values())
    assert len(losses) == 5 and all(0 < loss < 3 for loss in losses[1:])
    assert len(names["samples"]) == 10 and names["mclmc"].step_length() is not None


@pytest.mark.long
def test_python_on_the_page_on_estimators_runs_from_top_to_bottom() -> None:
    *_, names = run_page("how-to/scikit-learn.md")
    assert len(names["mean"]) == len(names["y_test"]) and names["bounds"].shape == (len(names["y_test"]), 2)


@pytest.mark.long
def test_python_on_the_page_on_notebooks_runs_from_top_to_bottom(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    page = (ROOT / "docs" / "get-started" / "notebooks.md").read_text(encoding="utf-8")
    *_, names = run_page("get-started/notebooks.md")
    shown = re.findall(r"```text\n(.*?)```", page, flags=re.S)[0].splitlines()
    printed = capsys.readouterr().out.splitlines()
    assert [re.sub(r"\d+\.\d+", "…", line) for line in shown[:2]] == [
        re.sub(r"\d+\.\d+", "…", line) for line in printed[:2]
    ]
    assert (here / "reliability.pdf").read_bytes().startswith(b"%PDF")
    assert {"posterior", "log_likelihood", "posterior_predictive"} <= set(names["draws"].children)


def test_all_python_of_the_readme_runs() -> None:
    assert README.count("```python") == sum(block.startswith("README.md") for block in BLOCKS)


def test_the_dependency_table_is_the_packaged_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packaged = {re.match(r"[\w-]+(\[[\w,]+\])?", d)[0] for d in project["dependencies"]}  # type: ignore[index]
    page = (ROOT / "docs" / "concepts" / "code.md").read_text(encoding="utf-8")
    table = page.partition("## Dependencies")[2].partition("##")[0]
    listed = {
        name.strip()
        for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.M)
        for name in re.split(r", (?![^\[]*\])", row)
    }
    assert listed - {"package"} == packaged
