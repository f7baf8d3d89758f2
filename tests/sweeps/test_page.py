"""The first commands of docs/how-to/sweeps.md, as written; one process makes the chains of the run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from raychains.cli import main
from tests.processes import ROOT
from tests.sweeps.worlds import undrawn

PAGE = (ROOT / "docs" / "how-to" / "sweeps.md").read_text(encoding="utf-8")
[*COMMANDS] = re.findall(r"^\$ raychains (.*)$", PAGE.split("```")[1], re.M)


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_sweep_its_best_point_and_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, run, report = COMMANDS
    with undrawn():
        assert main(shlex.split(sweep)) == 0
    printed = capsys.readouterr().out
    assert "12 points, all combinations, 2 chains each; NLL (nats) on the split val decides" in printed
    folder = tmp_path / "runs" / "sweeps" / "first"
    assert f"raychains run --options {folder}/best.json" in printed
    with undrawn():
        assert main([*shlex.split(run), "--concurrent", "1", "--evaluators", "1"]) == 0
    assert "to run: 6 chains" in capsys.readouterr().out, "the sweep's two chains are there"
    (folder / "report.html").unlink()
    assert main(shlex.split(report)) == 0
    assert (folder / "report.html").stat().st_size > 10_000
