"""A page of docs/how-to, done as it says: its files written to a folder outside the project, its tests and scripts run there."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from raychains.cli import main

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r"^\*\*`([\w/.]+)`\*\*\n\n```python\n(.*?)```", flags=re.M | re.S)


def follow(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a page's files into ``folder``, run its tests, then its commands in order; each must succeed."""
    page = (HOW_TO / name).read_text(encoding="utf-8")
    files = FILE.findall(page)
    assert files, "the page has no file"
    for path, code in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(code, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    tests = [path for path, _ in files if Path(path).name.startswith("test_")]
    assert tests, "the page has no test"
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    assert pytest.main([*options, *tests]) == pytest.ExitCode.OK
    commands = re.findall(r"^\$ (.+)$", page, flags=re.M)
    assert commands, "the page has no command"
    for command in commands:
        program, *words = shlex.split(command)
        if program == "python":
            runpy.run_path(words[0], run_name="__main__")
        else:
            assert program == "raychains" and main(words) == 0, command
