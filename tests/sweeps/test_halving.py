"""A sweep over β and M with ASHA: complete, cheaper where it was stopped, and its best point runs from best.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains.api.sweep import SweepResult
from raychains.cli import main
from raychains.orchestration.tune import sweep_experiment
from raychains.planning import events
from raychains.store import ChainStore, SweepStore
from tests.sweeps.worlds import Diary, attempts_of, undrawn

pytestmark = pytest.mark.usefixtures("ray_session")

EPOCHS = 32
ASKED: dict[str, Any] = {
    "task": "digits", "epochs": EPOCHS, "samples_per_cycle": 2, "thinning": 5, "asha": True,
    "grid": {"exploration": [0.0, 0.5], "cycles": [2, 4, 8]},
}  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> tuple[SweepResult, Diary]:
    """2 × 3 points on digits, one after another."""
    diary = Diary()
    store = str(tmp_path_factory.mktemp("halving"))
    publish = SweepStore.publish_stopped_at

    def stop(folder: SweepStore, digest: str, about: Mapping[str, Any]) -> None:
        cycles = [report["cycle"] for report in folder.reports(digest)]
        assert about["cycle"] in cycles, "a driver that is killed now would lose the report that the stop is based on"
        publish(folder, digest, about)

    with undrawn(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepStore, "publish_stopped_at", stop)
        patch.setattr(sweep_experiment, "TICK_EVERY", 0.0)  # a chain here is shorter than the time between two ticks
        result = rc.sweep(**ASKED, store=store, concurrent=1, callback=diary)
    return result, diary


def test_every_point_has_its_row_and_its_reports(swept: tuple[SweepResult, Diary]) -> None:
    result, _ = swept
    table, reports = result.table(full=True), result.reports()
    assert {*zip(table["exploration"], table["cycles"], strict=True)} == {(b, m) for b in (0, 0.5) for m in (2, 4, 8)}
    assert set(table["status"]) == {"finished", "stopped"} and len(table) == 6
    for row in table.itertuples():
        mine = reports[reports["digest"] == row.digest]
        assert list(mine["cycle"]) == list(range(row.cycle + 1)) and mine["nll"].iloc[-1] == row.nll
        assert list(mine["samples"]) == [2 * (c + 1) for c in mine["cycle"]]


def test_callbacks_get_the_events_of_a_run(swept: tuple[SweepResult, Diary]) -> None:
    result, diary = swept
    table = result.table(full=True)
    by = {status: rows for status, rows in table.groupby("status")}
    assert len(diary.of(events.Ready)) == 1 and diary.told[-1] == events.RunEnded(outcome="finished")
    assert {event.digest for event in diary.of(events.ChainFinished)} == set(by["finished"]["digest"])
    stopped = {(event.digest, event.reason) for event in diary.of(events.ChainStopped)}
    assert stopped == {(row.digest, row.reason) for row in by["stopped"].itertuples()}
    values = {view.arm: view.metrics[0]["nll"] for view in diary.of(events.ViewDone)}
    assert values == {f"point-{row.point}": row.nll for row in by["finished"].itertuples()}
    reported = {(event.digest, event.metrics["nll"]) for event in diary.of(events.ChainReported)}
    assert reported == {(row.digest, row.nll) for row in result.reports().itertuples()}
    ticks = diary.of(events.Tick)
    assert {(tick.chains, tick.to_spend) for tick in ticks} == {(6, 6 * result.store.plan()["gradients"])}
    assert max(len(tick.running) for tick in ticks) == 1, "concurrent=1"
    assert all(0 <= chain.step <= chain.steps for tick in ticks for chain in tick.running)
    assert any(chain.step and chain.gradients for tick in ticks for chain in tick.running)


def test_finished_points_cost_the_same_and_stopped_ones_really_less(swept: tuple[SweepResult, Diary]) -> None:
    result, _ = swept
    plan = result.store.plan()
    for row in result.table(full=True).itertuples():
        chain = ChainStore(result.store.root, row.digest)
        steps = chain.spec().steps
        made = max(p["step"] for p in chain.progress())
        if row.status == "finished":
            assert row.gradients == plan["gradients"] and row.epoch == EPOCHS and made == steps
            continue
        # The chain waited at the cycle's end for the decision: no step was made in vain.
        assert row.gradients < plan["gradients"] and row.gradients == plan["gradients"] * (row.cycle + 1) // row.cycles
        assert chain.newest_checkpoint()["chain"]["step"] == steps * (row.cycle + 1) // row.cycles
        assert made <= steps * (row.cycle + 1) // row.cycles and len(chain.records()) == row.samples
        assert row.reason == f"stopped by ASHA after {row.epoch:g} of {EPOCHS} epochs"


def test_the_best_point_runs_from_its_file_and_its_chain_is_there_already(
    swept: tuple[SweepResult, Diary], capsys: pytest.CaptureFixture[str]
) -> None:
    result, _ = swept
    finished = result.table(full=True).query("status == 'finished'")
    best = finished.loc[finished["nll"].idxmin()]
    assert result.best["exploration"] == best["exploration"] and result.best["cycles"] == best["cycles"]
    store = str(result.store.root.uri)
    before = attempts_of(store, best["digest"])
    more = ["--chains", "1", "--repeats", "1", "--evaluators", "1", "--store", store, "--name", "best"]
    with undrawn():
        assert main(["run", "--options", result.store.location("best.json"), *more]) == 0
    assert "to run: 0 chains" in capsys.readouterr().out
    assert attempts_of(store, best["digest"]) == before
    [arm] = rc.load(f"{store}/runs/best").comparison.arms
    assert [[spec.digest for spec in group] for group in arm.chains] == [[best["digest"]]]


def test_a_sweep_that_is_through_runs_nothing_again_and_its_page_is_drawn_again(
    swept: tuple[SweepResult, Diary], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same call in Python, and by the commands."""
    result, _ = swept
    store, table, diary = str(result.store.root.uri), result.table(full=True), Diary()
    before = {digest: attempts_of(store, digest) for digest in table["digest"]}
    words = f"sweep --task digits --epochs {EPOCHS} --samples-per-cycle 2 --thinning 5 --asha --resume --store {store}"
    with undrawn():
        again = rc.sweep(**ASKED, store=store, resume=True, callback=diary)
        assert main([*words.split(), "--grid", "exploration=0,.5", "cycles=2,4,8"]) == 0
    assert not diary.of(events.ChainFinished)
    finished = len(table.query("status == 'finished'"))
    assert diary.of(events.SweepPlanned)[0].there == len(diary.of(events.ViewDone)) == finished
    assert {digest: attempts_of(store, digest) for digest in before} == before and again.table(full=True).equals(table)
    printed = capsys.readouterr().out
    assert "6 points, all combinations; NLL (nats) on the split val decides" in printed
    assert f"in all; {finished} chains are in the store already\n" in printed
    assert f"raychains run --options {result.store.location('best.json')}" in printed
    figures = Path(result.path, "figures")
    Path(result.report).unlink()
    (figures / "map.parquet").unlink()
    assert main(["report", result.path]) == 0
    assert Path(result.report).stat().st_size > 10_000
    assert (figures / "map.svg").stat().st_size > 1_000 and (figures / "map.parquet").is_file()
    with pytest.raises(rc.UserError, match=r"run must be a run or a sweep with results, got '.*/sweeps/frist'"):
        rc.draw_report(f"{store}/sweeps/frist")


def test_a_path_of_a_run_in_a_folder_of_that_name_is_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rc.UserError, match=r"^run must be one of the runs in .*there are none yet") as refused:
        rc.draw_report("sweeps/store/runs/none")
    assert "or a sweep with results" not in str(refused.value)
