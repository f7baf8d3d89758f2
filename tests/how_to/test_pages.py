"""The pages of docs/how-to that add something, followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import raychains as rc
from tests.how_to.page import follow

pytestmark = pytest.mark.usefixtures("ray_session")


def test_add_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    follow("add-a-callback.md", tmp_path, monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    evaluated = [line for line in printed if re.fullmatch(r"[\w-]+: NLL \d\.\d{3}", line)]
    assert len(evaluated) == 2 and evaluated[0] == evaluated[1], "by the script and by the command"
    assert sum(line.startswith("finished; last losses [") for line in printed) == 2
    for path in ("losses:missing", "losses:rc", "nowhere:Losses"):
        with pytest.raises(rc.UserError, match=r"callback must .*, got"):
            rc.run(task="digits", epochs=2, callback=path)


def test_add_a_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-measure.md", tmp_path, monkeypatch)
    run = tmp_path / "runs" / "runs" / "first"
    (row,) = pq.read_table(run / "margins.parquet").to_pylist()
    assert 0 < row["mean"] < 1 and 0 <= row["share_below_half"] <= 1
    assert (run / "figures" / "margins.svg").is_file() and "Mean gap between" in (run / "report.html").read_text()
    assert rc.evaluate(str(run), measures=["margins:MEASURE"]).figures["margins"].axes
    with pytest.raises(rc.UserError, match=r"measures must name a raychains\.measures\.Measure, got 'margins:margin'"):
        rc.evaluate(str(run), measures=["margins:margin"])
    with pytest.raises(rc.UserError, match="measures must be an import path 'module:name', got 'nowhere:MEASURE'"):
        rc.evaluate(str(run), measures=["nowhere:MEASURE"])


def test_add_a_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-sampler.md", tmp_path, monkeypatch)
    result = rc.load("runs/runs/lm")
    (arm,) = result.comparison.arms
    assert {spec.sampler.kind for group in arm.chains for spec in group} == {"lm:LM"} and arm.label == "LM, 2 chains"
    assert (
        result.table(full=True)["variance_error"].iloc[0] < 0.5 and result.table(full=True)["mean_error"].iloc[0] < 0.5
    )
    with pytest.raises(rc.UserError, match="lr must be given for sampler lm:LM: task digits has no step size for it"):
        rc.run(task="digits", sampler="lm:LM")
    with pytest.raises(rc.UserError, match=r"sampler must name a subclass of raychains\.Sampler, got 'lm:math'"):
        rc.run(task="digits", sampler="lm:math", lr=0.1)
    with pytest.raises(rc.UserError, match=r"sampler must be an import path 'module:name', got 'nowhere:LM'"):
        rc.run(task="digits", sampler="nowhere:LM", lr=0.1)


def test_add_a_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-schedule.md", tmp_path, monkeypatch)
    result = rc.load("runs/runs/warmup")
    (arm,) = result.comparison.arms
    (spec, _), *_ = arm.chains
    assert spec.schedule.kind == "warmup:Warmup" and spec.schedule.settings["warmup"] == 0.2
    assert spec.schedule.settings["floor"] == 0.01 and arm.label == "SGLD Warmup, 2 chains"
    assert result.table(full=True)["variance_error"].iloc[0] < 1
    with pytest.raises(rc.UserError, match=r"schedule must name a subclass of raychains\.Schedule, got 'warmup:math'"):
        rc.run(task="gaussian", sampler="sgld", schedule="warmup:math")
    with pytest.raises(rc.UserError, match=r"schedule_settings must be one of .*warmup, got 'warm'"):
        rc.run(task="gaussian", sampler="sgld", schedule="warmup:Warmup", schedule_settings=("warm=.1",))


def test_the_page_on_tasks_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-task.md", tmp_path, monkeypatch)
    result = rc.load("runs/runs/moons")
    spec = result.comparison.task_spec
    assert spec.kind == "moons:Moons" and spec.settings == {"width": 8, "train": 200, "jitter": 0.05}
    assert result.table(full=True)["error"].iloc[0] < 0.35


def test_the_page_on_densities_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("own-density.md", tmp_path, monkeypatch)
    result = rc.load("runs/runs/banana")
    assert result.comparison.task_spec.settings == {"bend": 0.3} and result.table(full=True)["sd_ratio"].iloc[0] < 1.5
