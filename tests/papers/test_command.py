"""The command: what it prints, what it leaves out and why, its exit status, and going on where it was."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import raychains as rc
from raychains.cli import main
from raychains.core.config import Reproduce
from raychains.core.errors import ChainsFailed, Interrupted, RaychainsError, UserError
from raychains.data import tabular
from raychains.papers import SCALES, contents, plan_status, reproduce
from raychains.papers.csgmcmc import fig1
from raychains.planning.events import RunEvent, Tick
from tests.papers.one_pool import one_pool
from tests.papers.planned import every


def about(store: Path, name: str, scale: str = "smoke") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store / "reproduce" / scale / name / "about.json").read_text())
    return found


def test_a_dry_run_and_a_list_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table4", "fig5", "--scale", "cpu", "--store", str(tmp_path / "store")]
    assert main([*command, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    saved = "8 unique chains, 40,000,000 gradient evaluations; sharing chains between experiments saves 40,000,000"
    assert saved in said
    assert main([*command, "--list"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{scale}: {SCALES[scale]}; estimated hours" in said for scale in ("cpu", "gpu", "paper"))
    assert "table4" in said and "table5" not in said and rc.reproduce(names="fig5", list=True) == []
    assert rc.reproduce(names="fig5", dry_run=True, store=str(tmp_path / "store")) == []
    assert not (tmp_path / "store").exists()


def test_a_list_fits_into_80_columns_and_says_that_its_numbers_are_hours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and all(any(line.split()[:1] == [name] for line in lines) for name in every())
    heads = next(i for i, line in enumerate(lines) if line.split()[:1] == ["name"])
    assert lines[heads - 1].split() == ["hours,"] * 3 and lines[heads].split()[-3:] == ["cpu", "gpu", "paper"]


def test_missing_data_are_said_and_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    store = tmp_path / "store"
    command = ["reproduce", "table1", "--scale", "cpu", "--store", str(store), "--data-root", str(tmp_path / "data")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "cifar10: not run: CIFAR-10 is not in the data root" in said and "cifar100: not run: CIFAR-100" in said
    assert {p["status"] for p in about(store, "table1", "cpu")["parts"].values()} == {"not run"}
    assert "not run: CIFAR-10 is not in the data root" in (store / "reproduce/cpu/table1/table.md").read_text()


class Stop:
    """Presses Ctrl-C once a chain runs."""

    pressed = False

    def on(self, event: RunEvent) -> None:
        if isinstance(event, Tick) and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_time_that_is_over_and_a_stop_leave_the_rest_to_the_next_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "fig1", "fig5", "--scale", "smoke", "--store", str(tmp_path)]
    with one_pool():
        stopped_and_gone_on(command, tmp_path, capsys)


def stopped_and_gone_on(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without time, stopped, to the end, and without time again."""
    assert main([*command, "--max-hours", "1e-9"]) == 0
    assert "unfinished: the time given by max_hours was over" in capsys.readouterr().out
    assert about(tmp_path, "fig5")["parts"]["mixture"]["status"] == "unfinished"
    assert hours(tmp_path) == {}
    options = Reproduce(names=("fig1", "fig5"), scale="smoke", store=str(tmp_path))
    with pytest.raises(Interrupted, match=r"^stopped in fig5 \(mixture\); .* To go on: the same command$"):
        reproduce.reproduce(options, callback=Stop())
    assert "fig1" in (tmp_path / "reproduce/smoke/index.html").read_text()  # what was done is shown
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "SMOKE" in said and "One SGLD chain" not in said and "index: " in said
    part = about(tmp_path, "fig5")["parts"]["mixture"]
    assert part["status"] == "done"
    assert hours(tmp_path)["fig5"] == max(part["chain_seconds"] / 2, part["seconds"]) / 3600
    assert main([*command, "--max-hours", "1e-9"]) == 0  # no time to style again costs nothing that is there
    said = capsys.readouterr().out
    assert "this time unfinished" in said and "the result of before is left as it is" in said
    assert about(tmp_path, "fig5")["parts"]["mixture"]["status"] == "done"
    (run,) = (tmp_path / "runs").glob("smoke-fig5-mixture-*")
    assert not (run / "report.html").exists()


def hours(store: Path) -> Mapping[str, float]:
    """Measured ones, as a dry run prints them."""
    return reproduce.plan(Reproduce(names=("fig1", "fig5"), scale="smoke", store=str(store))).measured


def test_a_dry_run_prints_measured_hours_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the committed results: fig2 was run, imagenet never."""
    results = Path(__file__).parents[2] / "docs" / "results"
    assert main(["reproduce", "fig2", "table3", "--scale", "gpu", "--dry-run", "--to", str(results)]) == 0
    assert "≈" in capsys.readouterr().out  # another scale's hours are not this one's
    assert main(["reproduce", "fig2", "--scale", "cpu", "--dry-run", "--to", str(results)]) == 0
    said = capsys.readouterr().out.split("hours of two cores:")
    assert "≈" not in said[0] and "≈ estimated" in said[1]


def with_part(monkeypatch: pytest.MonkeyPatch, needs: tuple[str, ...] = (), **changes: Any) -> None:
    """Change the part of Fig. 1, which needs neither chains nor data."""
    experiment = every()["fig1"]
    (part,) = experiment.parts
    changed = dataclasses.replace(experiment, needs=needs, parts=(dataclasses.replace(part, **changes),))
    monkeypatch.setattr(fig1, "STUDY", changed)


def test_results_outlive_calls_that_cannot_make_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call without the data, one that fails, and one that is stopped."""

    def fails(work: Any) -> Any:
        raise RaychainsError("out of luck")

    def stopped(work: Any) -> Any:
        raise KeyboardInterrupt

    (tmp_path / "data").mkdir()
    store = tmp_path / "store"
    command = ["reproduce", "fig1", "--scale", "cpu", "--store", str(store), "--data-root", str(tmp_path / "data")]
    assert main(command) == 0
    before = (store / "reproduce/cpu/fig1/table.md").read_text()
    capsys.readouterr()
    with_part(monkeypatch, needs=("cifar10",))
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "this time not run: CIFAR-10 is not in the data root; the result of before is left as it is" in said
    with_part(monkeypatch, computed=fails)
    assert main(command) == 3
    said, error = capsys.readouterr()
    assert "1 part failed: fig1 (schedules)" in error and "index: " in said
    with_part(monkeypatch, computed=stopped)
    assert main(command) == 130
    assert capsys.readouterr().err.endswith("To go on: the same command\n")
    assert about(store, "fig1", "cpu")["parts"]["schedules"]["status"] == "done"
    assert (store / "reproduce/cpu/fig1/table.md").read_text() == before


def test_a_folder_of_results_has_one_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "fig1", "--store", str(tmp_path / "store"), "--to", str(tmp_path / "to")]
    assert main([*command, "--scale", "cpu"]) == 0
    capsys.readouterr()
    assert main([*command, "--scale", "gpu"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("raychains: --to must be a folder of its own for scale gpu") and said.count("\n") == 1
    assert "holds fig1 at scale cpu" in said


def test_what_is_damaged_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "theorem1", "fig1", "--scale", "smoke", "--store", str(tmp_path)]
    assert main(command) == 0
    folder = tmp_path / "reproduce/smoke"
    before = (folder / "theorem1/table.md").read_text()
    piece = next((folder / "theorem1/pieces").iterdir())
    for file in (folder / "theorem1/about.json", folder / "fig1/claims.parquet", piece):
        file.write_bytes(b"torn")
    assert main(command) == 0
    (folder / "theorem1/cells.parquet").write_bytes(b"torn")
    capsys.readouterr()
    assert main([*command, "--max-hours", "1e-9"]) == 0  # too late to make it again
    assert "unfinished: the time given by max_hours was over" in capsys.readouterr().out
    assert "about.json is damaged and counts as missing: reproduce it again" in caplog.text
    assert about(tmp_path, "theorem1")["parts"]["double-well"]["status"] == "unfinished"
    assert main(command) == 0
    assert (folder / "theorem1/table.md").read_text() == before and piece.read_bytes() != b"torn"


@pytest.mark.parametrize(
    ("status", "chains", "total"),
    [("done", ["a"], 100), ("done", ["b"], 7), ("unfinished", ["a"], 107), ("failed", ["a"], 107)],
)
def test_seconds_are_those_of_all_calls_until_a_part_was_done(status: str, chains: list[str], total: float) -> None:
    earlier = {"status": status, "chains": chains, "seconds": 100.0}
    assert plan_status.spent({"chains": ["a"], "seconds": 7.0}, earlier) == total
    assert plan_status.spent({"chains": ["a"], "seconds": 7.0}, {}) == 7


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ("fig4 --keep-predictions none", "--keep-predictions must be auto or all"),
        (
            "fig5 --on-divergence drop-chain --dry-run",
            "--on-divergence must be stop or restart-cycle, got 'drop-chain': a table needs every chain",
        ),
    ],
)
def test_a_table_needs_every_chain_and_its_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str, refusal: str
) -> None:
    """It is said before anything runs."""
    assert main(["reproduce", *asked.split(), "--scale", "cpu", "--store", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert refusal in said.replace("keep_predictions", "--keep-predictions")
    assert not (tmp_path / "chains").exists()


def test_evaluations_show_no_progress_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment's display is the only one; without progress there is none."""
    shown: list[bool] = []

    def evaluate(path: str, *, progress: bool = True, **more: Any) -> None:
        shown.append(progress)
        raise UserError("this is enough")

    monkeypatch.setattr(reproduce.run_context, "on_ray", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(reproduce.drivers, "worker_pool", lambda options: contextlib.nullcontext())
    monkeypatch.setattr(reproduce.sampling, "execute", lambda *given, **more: SimpleNamespace(path=str(tmp_path)))
    monkeypatch.setattr(reproduce.evaluating, "evaluate", evaluate)
    with pytest.raises(ChainsFailed):
        rc.reproduce(names="true-posterior", scale="smoke", store=str(tmp_path / "store"), progress=False)
    assert shown == [False]


def test_a_folder_without_table_5s_files_lacks_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "yacht.data").touch()
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    assert contents.in_data_root("uci-yacht") and not contents.in_data_root("uci")
    for table in tabular.TABLES.values():
        (tmp_path / "uci" / table.file).touch()
    assert contents.in_data_root("uci")
