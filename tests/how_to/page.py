"""A page of docs/how-to, done as it says: its files written to a folder outside the project, its tests and scripts run
there."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from raychains.cli import main
from tests.pool import unpaged

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r"^\*\*`([\w/.]+)`\*\*\n\n```python\n(.*?)```", flags=re.M | re.S)
ONE_AT_A_TIME = ("--concurrent", "1", "--evaluators", "1")
"""One process makes all chains of a run, and one evaluates them: what a test pays for is the start of processes."""


def follow(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, drawn: tuple[str, ...] = ()) -> list[str]:
    """Write a page's files into ``folder`` and run its commands in order; each must succeed. Return its tests' files.

    Args:
        drawn: the ends of the commands whose runs have a page: figures take longer than small chains.
    """
    tests = put(name, folder=folder, monkeypatch=monkeypatch)
    commands = re.findall(r"^\$ (.+)$", (HOW_TO / name).read_text(encoding="utf-8"), flags=re.M)
    assert commands, "the page has no command"
    for command in commands:
        program, *words = shlex.split(command)
        with nullcontext() if command.endswith(drawn) else unpaged():
            if program == "python":
                runpy.run_path(words[0], run_name="__main__")
            else:
                more = ONE_AT_A_TIME if words[0] == "run" else ()
                assert program == "raychains" and main([*words, *more]) == 0, command
    return tests


def put(*names: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write the files of pages into ``folder``, from which this process imports now; return those that are tests."""
    tests: list[str] = []
    for name in names:
        files = FILE.findall((HOW_TO / name).read_text(encoding="utf-8"))
        assert files, f"{name} has no file"
        for path, code in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(code, encoding="utf-8")
            sys.modules.pop(Path(path).stem, None)  # of another test's folder
        found = [path for path, _ in files if Path(path).name.startswith("test_")]
        assert found or not name.startswith("add-"), f"{name} has no test"
        tests += found
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return tests


def run_tests(folder: Path, tests: list[str]) -> None:
    """Run the files of a page that are tests; all must pass."""
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    assert pytest.main([*options, *tests]) == pytest.ExitCode.OK
