"""A measure is registered by its file alone: its name, its figures and the help text follow from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raychains import measures
from raychains.cli import parse
from raychains.core import registry
from raychains.inference.run_data import RunData
from raychains.measures.weights import WEIGHTINGS
from raychains.planning.views import KINDS
from raychains.report.figures import BUILT_IN, FIGURES
from tests.checks import refused
from tests.measures import predicted
from tests.measures.predicted import Predicted


def test_measures_are_the_modules_that_define_one_under_their_own_names() -> None:
    for name in measures.NAMES:
        measure = measures.named(name)
        assert measure.name == name and measure.about and measure.figures and measure.section in BUILT_IN
        assert all(FIGURES[figure] is draw for figure, draw in measure.figures.items())
    with refused("measures", "diversty", "diversity"):
        measures.named("diversty")


@pytest.fixture
def plain(tmp_path: Path) -> Predicted:
    return Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 9)})


def test_no_figure_is_drawn_without_its_table(plain: Predicted) -> None:
    empty = RunData(plain.store, plain.comparison)
    assert not [f for name in measures.NAMES for f, draw in measures.named(name).figures.items() if draw(empty)]


@pytest.mark.parametrize("name", ["agreement", "calibration", "ood"])
def test_measures_of_classes_are_refused_without_any(name: str, plain: Predicted) -> None:
    plain.task.predicts = "gaussian"
    assert "small is no classification" in str(measures.named(name).why_not(plain.context()))


def test_another_file_is_another_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "measures"
    folder.mkdir()
    (folder / "measure.py").write_text("class Measure: ...\n")
    (folder / "sharpness.py").write_text('"""Sharpness."""\n\nMEASURE = Measure(name="sharpness")\n')
    monkeypatch.setattr(registry, "files", lambda package: tmp_path)
    assert registry.modules_defining("measures", "MEASURE") == ("sharpness",)


def test_the_help_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    parse("evaluate", ["--help-all"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in measures.NAMES)


# docs/reference/measures.md


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "measures.md").read_text(encoding="utf-8")
UNNAMED = {"spread"}
"""Figures that need no words."""


def test_its_code_shows_the_plain_harmonic_mean_failing_as_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(compile(code, "measures.md", "exec"), names)
    assert capsys.readouterr().out == printed
    found = {line[:31].strip(): float(line[31:35]) for line in printed.splitlines()[:3]}
    assert found["true share of the narrow mode"] == 0.7
    assert found["plain harmonic mean"] == pytest.approx(0.9, abs=0.03)  # (.70/.3²)/(.70/.3² + .30/.6²)
    assert found["truncated"] == pytest.approx(0.7, abs=0.03)


def test_it_names_every_view_weighting_measure_and_figure() -> None:
    for name in (*KINDS, *WEIGHTINGS, *(set(FIGURES) - UNNAMED)):
        assert f"`{name}`" in PAGE, name
    for name in measures.NAMES:
        assert re.search(rf"--measures (\w+ )*{name}\b", PAGE), name
