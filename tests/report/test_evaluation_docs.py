"""docs/evaluation.md holds: its code prints what it says, its commands parse, and it names every measure there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import raychains
from raychains import analyses
from raychains.analyses.weights import WEIGHTINGS
from raychains.cli import parse
from raychains.planning.views import KINDS, check
from raychains.report.figures import MAKERS

PAGE = (Path(raychains.__file__).parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ raychains (.+)$", PAGE, flags=re.M)
UNNAMED = {"spread"}
"""Figures that need no words."""


def test_its_code_shows_the_plain_harmonic_mean_failing_as_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(compile(code, "evaluation.md", "exec"), names)
    assert capsys.readouterr().out == printed
    found = {line[:31].strip(): float(line[31:35]) for line in printed.splitlines()[:3]}
    assert found["true share of the narrow mode"] == 0.7
    assert found["plain harmonic mean"] == pytest.approx(0.9, abs=0.03)  # (.70/.3²)/(.70/.3² + .30/.6²)
    assert found["truncated"] == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_parse(line: str) -> None:
    command, *arguments = shlex.split(line)
    options = parse(command, arguments)
    if command == "evaluate":
        check(options.views)
        assert set(options.measures) <= set(analyses.MODULES) and set(options.weights) <= set(WEIGHTINGS)
        assert options.views or options.measures or options.split
    else:
        assert options.compare


def test_it_names_every_view_weighting_measure_and_figure() -> None:
    for name in (*KINDS, *WEIGHTINGS, *(set(MAKERS) - UNNAMED)):
        assert f"`{name}`" in PAGE, name
    for name in analyses.MODULES:
        assert re.search(rf"--measures (\w+ )*{name}\b", PAGE), name
