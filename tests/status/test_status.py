"""What `raychains status` says of stores in every state, and how little it asks of the storage for it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from raychains.cli import main
from raychains.core import duration
from raychains.report.console import standard_output
from raychains.status import Reader, RunState, StoreState, status_of
from raychains.status.command import display
from raychains.store import Storage
from raychains.store.leases import STALE_AFTER, Leases
from tests.report import runs
from tests.status.worlds import OURS, THEIRS, Calls, advance, aged, begin, comparison, enter, finish, planned


def run_state(path: str | Path) -> RunState:
    found = status_of(str(path))
    assert isinstance(found, RunState)
    return found


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["status", *argv]) == 0
    return capsys.readouterr().out


def test_a_run_in_the_middle_tells_each_chains_place(middle: Path) -> None:
    found = run_state(middle)
    done, lost, never, old, given_up, _ = found.chains
    assert [c.state for c in found.chains] == ["finished", "running", "waiting", "stopped", "failed", "waiting"]
    assert (done.step, done.samples, done.expected, done.gradients) == (60, 4, 4, done.to_spend)
    assert (lost.step, lost.attempts, lost.restarts, lost.hosts) == (40, 2, 1, ("node-1", "node-2"))
    assert lost.host == "node-2" and lost.checkpoint_step == 40 and lost.seconds == 2.0 and lost.loss is not None
    assert (lost.cycle, lost.cycles, lost.stage, lost.steps_per_second) == (1, 2, "exploration", pytest.approx(20))
    assert (never.step, never.host, never.age, never.checkpoint_step) == (0, None, None, None)
    assert old.step == 20 and given_up.reason is not None and "step 20" in given_up.reason
    assert found.state == "running" and [d.driver_id for d in found.drivers] == [OURS]
    assert found.gradients == sum(c.gradients for c in found.chains) == (60 + 40 + 20) * 50
    assert found.to_spend == 6 * 60 * 50 and found.bytes > sum(c.bytes for c in found.chains) > 0
    assert found.remaining_seconds == pytest.approx((20 + 60 + 40 + 60) / 20)  # on one slot: only one chain runs
    assert found.age is not None and found.age < STALE_AFTER


def test_the_same_as_lines_as_a_table_and_as_json(middle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.stat().st_mtime_ns for p in middle.parents[1].rglob("*")}
    out = said(capsys, str(middle)).splitlines()
    assert out[0] == "run small: running" and f"by pid {os.getpid()} on " in out[1]
    assert "6 chains of digits: 1 failed, 1 running, 1 stopped, 2 waiting, 1 finished" in out[2]
    assert "6,000 of 18,000 gradient evaluations spent (33 %)" in out[3]
    first = next(line for line in out if line.startswith("chain"))
    assert " failed " in first and "step 20" in first  # what people look for comes first
    [running] = [line for line in out if " running  " in line]
    parts = (
        "step 40/60",
        "cycle 2/2, exploration",
        "2/4 samples",
        "checkpoint at 40, ",
        "on node-2 (before: node-1), 1 restart",
    )
    assert [part for part in parts if part not in running] == []
    console = Console(width=200, force_terminal=True, file=open("/dev/null", "w"), record=True)  # noqa: SIM115
    display(console, status_of(str(middle)), 2)
    text = console.export_text()
    assert "40/60" in text and "… and 4 more" in text and text.count("waiting") == 1
    found = json.loads(said(capsys, str(middle), "--json"))
    assert found["kind"] == "run" and found["state"] == "running" and found["gradients"] == 6000
    assert [c["state"] for c in found["chains"]].count("waiting") == 2
    assert found["chains"][1]["hosts"] == ["node-1", "node-2"]
    assert [(arm["gradients"], arm["to_spend"]) for arm in found["arms"]] == [(6000, 18000)]
    assert {p: p.stat().st_mtime_ns for p in middle.parents[1].rglob("*")} == before, "it only reads"


@pytest.mark.parametrize(("width", "left_out"), [(80, ("chain s", "steps/s", "checkpoint")), (120, ())])
def test_a_terminal_shows_no_line_wider_than_itself(middle: Path, width: int, left_out: tuple[str, ...]) -> None:
    """What a chain does, and why one failed, is there at any width."""
    for path in (middle, middle.parents[1]):
        console = Console(width=width, force_terminal=True, file=io.StringIO(), record=True)
        display(console, status_of(str(path)), 6)
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= width
        if path == middle:
            assert "40/60" in text and "step 20" in " ".join(text.split())
            assert all(digest[:12] in text for digest in comparison(6).chains())
            heads = next(line for line in text.splitlines() if "worker" in line)
            names = ("loss", "chain s", "steps/s", "samples", "checkpoint", "worker")
            assert tuple(name for name in names if name not in heads) == left_out


def test_preemptions_are_those_of_all_drivers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, plan = Storage(tmp_path), comparison(1)
    [spec] = plan.chains().values()
    planned(root, plan)
    enter(root)
    begin(root, spec, 1, driver=THEIRS)
    begin(root, spec, 2, driver=THEIRS, preemptions=1)
    begin(root, spec, 3, driver=THEIRS, preemptions=2)
    begin(root, spec, 4)
    begin(root, spec, 5, preemptions=1)
    [chain] = run_state(tmp_path / "runs" / "small").chains
    assert (chain.restarts, chain.preemptions) == (4, 3)
    assert "on here, 4 restarts, 3 of them since a node was draining" in said(capsys, f"{tmp_path}/runs/small")


def test_texts_of_the_store_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, plan = Storage(tmp_path), comparison(1)
    folder = planned(root, plan)
    enter(root)
    begin(root, *plan.chains().values(), 1, host="elsewhere\x1b[2J")
    assert "on elsewhere" in (out := said(capsys, folder.location())) and "\x1b" not in out


def test_chains_that_stall_are_those_that_run_and_whose_driver_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, plan = Storage(tmp_path), comparison(3)
    planned(root, plan)
    one, two, _ = plan.chains().values()
    enter(root, stalled=[one.digest])
    enter(root, run="other", driver=THEIRS, stalled=[two.digest])
    begin(root, one, 1)
    assert [chain.stalled for chain in run_state(tmp_path / "runs" / "small").chains] == [True, False, False]
    begin(root, two, 1, driver=THEIRS)
    assert [chain.stalled for chain in run_state(tmp_path / "runs" / "small").chains] == [True, True, False]
    text = said(capsys, f"{tmp_path}/runs/small")
    assert "2 chains stalled: silent for longer than their pace explains" in text and "stalled, on here" in text
    Leases(root).remove(OURS)
    assert [chain.stalled for chain in run_state(tmp_path / "runs" / "small").chains] == [False, True, False]


def test_the_run_ends_as_its_driver_does(tmp_path: Path) -> None:
    root, plan = Storage(tmp_path), comparison(2)
    planned(root, plan)
    path = tmp_path / "runs" / "small"
    one, two = plan.chains().values()
    begin(root, one, 1)
    assert run_state(path).state == "stopped"  # nobody is entered
    enter(root)
    assert run_state(path).state == "running" and run_state(path).chains[0].state == "running"
    aged(tmp_path / "drivers" / f"{OURS}.json", STALE_AFTER + 5)
    found = run_state(path)
    assert found.state == "lost" and found.chains[0].state == "stopped" and found.drivers[0].age > STALE_AFTER
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    enter(root, pid=gone.pid, process="another")
    assert run_state(path).state == "lost"  # heard of just now, but its process is gone
    Leases(root).remove(OURS)
    found = run_state(path)
    assert found.state == "stopped" and not found.drivers and found.remaining_seconds is None
    finish(root, [one, two])
    assert run_state(path).state == "stopped" and run_state(path).count("finished") == 2  # not evaluated yet


def test_a_finished_run_says_what_was_evaluated_and_where_its_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs.store_run(tmp_path, comparison(2))
    assert run_state(folder.location()).state == "finished", "as runs of reproduce, which have no page"
    folder.write_file("report.html", b"<html>")
    found = run_state(folder.location())
    assert found.state == "finished" and [(a.evaluated, a.repeats) for a in found.arms] == [(1, 1)]
    assert found.report == folder.location("report.html") and found.gradients == found.to_spend
    assert "run small: finished" in said(capsys, folder.location(), "--watch", "60s")  # nothing to wait for
    # Started anew after a failure, the old reason is history.
    folder.write_table("failed", [{"digest": d, "reason": "Traceback\nOSError: it"} for d in comparison(3).chains()])
    assert {c.state for c in run_state(folder.location()).chains} == {"finished"}


def test_a_run_of_which_only_a_part_was_evaluated_is_not_finished(tmp_path: Path) -> None:
    def states() -> list[str]:
        found = status_of(str(tmp_path))
        assert isinstance(found, StoreState)
        return [run_state(folder.location()).state, *(line.state for line in found.lines)]

    folder = runs.store_run(tmp_path, runs.single(repeats=2))
    assert states() == ["finished", "finished"]
    table = folder.table("results")
    assert table is not None
    folder.write_table("results", table.to_pylist()[:1])  # evaluated before the second repeat's chains were there
    assert states() == ["stopped", "stopped"]


def test_failed_chains_have_the_reasons_of_the_last_end_until_a_worker_takes_them_on_again(tmp_path: Path) -> None:
    root, plan = Storage(tmp_path), comparison(2)
    folder = planned(root, plan)
    one, two = plan.chains().values()
    begin(root, one, 1)
    folder.write_table("failed", [{"digest": one.digest, "reason": "Traceback\nOSError: it"}])
    folder.write_file("report.html", b"<html>")
    finish(root, [two])
    found = run_state(folder.location())
    assert (
        found.state == "finished" and found.chains[0].reason == "Traceback\nOSError: it" and found.count("failed") == 1
    )
    aged(Path(folder.location("failed.parquet")), 100)
    begin(root, one, 2)
    assert run_state(folder.location()).chains[0].state == "stopped"


def test_a_store_lists_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, plan = Storage(tmp_path), comparison(2)
    for name in ("done", "now", "gone", "idle"):
        planned(root, plan, name)
    runs.store_run(tmp_path, plan, name="done")
    enter(root, "now", OURS)
    enter(root, "gone", THEIRS)
    aged(tmp_path / "drivers" / f"{THEIRS}.json", STALE_AFTER + 5)
    (tmp_path / "runs" / "not a run").mkdir()
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "plan.json").write_text("{")
    found = status_of(str(tmp_path))
    assert isinstance(found, StoreState)
    states = {line.name: (line.state, line.chains) for line in found.lines}
    assert states["done"] == ("finished", 2) and states["now"] == ("running", 2)
    assert states["gone"] == ("lost", 2) and states["idle"] == ("stopped", 2) and "damaged" in states
    out = said(capsys, str(tmp_path / "runs"))
    assert "run  now  running  digits  2 chains  by pid" in out and "not a run" not in out


def test_a_status_costs_one_listing_and_two_small_reads_a_chain_and_finished_ones_are_not_read_again(
    middle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    reader = Reader(str(middle))
    reader.read()
    assert not [name for name in calls.read if "/samples" in name or "/checkpoints/" in name]
    assert calls.count["list"] <= 6 + 6 and calls.count["read"] <= 2 * 6 + 5
    before = calls.count["list"], calls.count["read"]
    reader.read()
    assert calls.count["list"] - before[0] <= 5 + 4 and calls.count["read"] - before[1] <= 2 * 5 + 3
    [done] = [c.digest for c in run_state(middle).chains if c.state == "finished"]
    assert sum(f"chains/{done}/" in name for name in calls.read) == 2 * 2  # once by the reader, once just now


def test_watching_goes_on_until_nobody_works_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from raychains.core.config import Status
    from raychains.status.command import show

    root, plan = Storage(tmp_path), comparison(1)
    planned(root, plan)
    [spec] = plan.chains().values()
    begin(root, spec, 1)
    enter(root)
    steps = iter([lambda: advance(root, spec, 1, to=20), lambda: Leases(root).remove(OURS)])
    show(Status(path=str(tmp_path / "runs" / "small"), watch=1.0), standard_output(), sleep=lambda _: next(steps)())
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("run ")] == [
        "run small: running", "run small: running", "run small: stopped",
    ]  # fmt: skip
    assert "step 0/60" in out and "step 20/60" in out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("progress/0000000040-2.jsonl", b'{"step": 40, "seco'),
        ("progress/0000000040-2.jsonl", b"[1]\n{}\n\xff\n"),
        ("incarnations/2.json", b"{"),
        ("incarnations/2.json", b"[]"),
    ],
    ids=["torn progress", "other progress", "torn record", "other record"],
)
def test_torn_files_cost_what_they_said_and_nothing_else(middle: Path, name: str, content: bytes) -> None:
    lost = list(comparison(6).chains())[1]
    (middle.parents[1] / "chains" / lost / name).write_bytes(content)
    chain = run_state(middle).chains[1]
    assert chain.state in ("running", "stopped") and 30 <= chain.step <= 45 and chain.attempts == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (600, "10 min"), (7200, "2.0 h"), (259200, "3.0 d")]
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration.text(seconds) == text


def test_a_near_miss_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Storage(tmp_path / "runs")
    planned(root, comparison(1), "digits-1a2b")
    for path, line in (
        (f"{tmp_path}", f"did you mean '{tmp_path}/runs'?"),
        (
            f"{tmp_path}/runs/runs/digits-1a2c",
            f"PATH must be one of the runs in {tmp_path}/runs: digits-1a2b, got '{tmp_path}/runs/runs/digits-1a2c'; "
            "did you mean 'digits-1a2b'?",
        ),
    ):
        assert main(["status", path]) == 2
        err = capsys.readouterr().err
        assert line in err and err.count("\n") == 1
