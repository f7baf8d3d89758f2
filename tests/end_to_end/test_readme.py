"""The README holds: its Python runs as written, its commands parse, its dependency table is the packaged one."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from raychains.cli import COMMANDS, parse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)
COMMAND_LINES = re.findall(r"^\$ raychains (.+)$", README, flags=re.M)


def test_the_readme_shows_the_library_and_the_samplers() -> None:
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("code", BLOCKS, ids=["api", "own", "samplers"])
def test_its_python_runs_as_written(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    if "p" in names:
        assert names["p"].shape == (1297, 10)  # type: ignore[attr-defined]
    elif "out" in names:
        assert names["out"].probabilities.shape == (100, 2)  # type: ignore[attr-defined]
    else:
        assert len(names["samples"]) == 12  # type: ignore[arg-type]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_its_commands_parse(line: str) -> None:
    command, *arguments = shlex.split(line)
    assert command in COMMANDS
    assert (parse(command, arguments) is None) is ("--help" in arguments)


def test_its_dependency_table_is_the_packaged_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packaged = {re.match(r"[\w-]+(\[[\w,]+\])?", d)[0] for d in project["dependencies"]}  # type: ignore[index]
    table = README.partition("## Dependencies")[2].partition("##")[0]
    listed = {
        name.strip()
        for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.M)
        for name in re.split(r", (?![^\[]*\])", row)
    }
    assert listed - {"package"} == packaged


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures and all((ROOT / p).is_file() for p in pictures)
