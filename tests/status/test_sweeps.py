"""What `raychains status` says of sweeps, whose folders are written as sweeps write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raychains.cli import main
from raychains.status import StoreState, SweepState, status_of
from raychains.store import Storage, SweepStore
from tests.status.worlds import OURS, enter

PLAN = {
    "command": "sweep", "task": "digits", "metric": "nll", "count": 3, "repeats": 2, "gradients": 4000,
    "swept": {"exploration": [0.0, 0.25, 0.5]}, "options": {},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> SweepStore:
    """A sweep in the middle: two chains reported, one was stopped."""
    folder = SweepStore(Storage(tmp_path), "first")
    folder.write_plan(PLAN)
    for digest, cycles in (("a" * 64, 2), ("b" * 64, 1)):
        for cycle in range(cycles):
            folder.publish_report(digest, {"cycle": cycle, "nll": 0.5})
    folder.publish_stopped_at("b" * 64, {"cycle": 0})
    enter(folder.root, "sweep:first")
    return folder


def sweep_state(folder: SweepStore) -> SweepState:
    found = status_of(folder.location())
    assert isinstance(found, SweepState)
    return found


def test_a_sweep_in_the_middle(folder: SweepStore, capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep_state(folder)
    assert (found.state, found.reports, found.reported, found.stopped) == ("running", 3, 2, 1)
    assert (found.points, found.chains, found.to_spend) == (3, 6, 24_000) and found.drivers[0].driver_id == OURS
    assert found.best is None and not found.trials and found.age is not None and found.age < 60
    assert main(["status", folder.location()]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sweep first: running\n  by pid ") and "3 reports by 2 chains" in out
    assert "3 points of digits, 6 chains, judged by nll; 24,000 gradient evaluations" in out
    assert "over exploration: [0.0, 0.25, 0.5]" in out
    store = status_of(folder.root.location())
    assert isinstance(store, StoreState) and [(x.kind, x.name, x.state, x.task) for x in store.lines] == [
        ("sweep", "first", "running", "digits")
    ]


def test_a_stopped_sweep_is_not_finished(folder: SweepStore) -> None:
    """It has a table, too, with chains that wait."""
    folder.root.delete(f"drivers/{OURS}.json")
    folder.write_table("results", [{"point": n, "status": s} for n, s in enumerate(["finished", "waiting"])])
    store = status_of(folder.root.location())
    assert isinstance(store, StoreState)
    assert sweep_state(folder).state == "stopped" and [x.state for x in store.lines] == ["stopped"]


def test_a_sweep_at_its_end(folder: SweepStore, capsys: pytest.CaptureFixture[str]) -> None:
    folder.root.delete(f"drivers/{OURS}.json")
    assert sweep_state(folder).state == "stopped"
    folder.write_table(
        "results", [{"point": n, "status": s} for n, s in enumerate(["finished", "finished", "stopped"])]
    )
    folder.write_best({"task": "digits", "exploration": 0.25})
    folder.write_file("report.html", b"<html>")
    found = sweep_state(folder)
    assert found.state == "finished" and found.trials == {"finished": 2, "stopped": 1}
    assert main(["status", folder.location()]) == 0
    out = capsys.readouterr().out
    assert 'best: {"exploration": 0.25}' in out and "trials: 2 finished, 1 stopped" in out
    assert main(["status", folder.location(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "sweep" and told["best"]["exploration"] == 0.25


def test_a_sweep_with_a_damaged_table_is_in_the_stores_list(folder: SweepStore) -> None:
    folder.root.delete(f"drivers/{OURS}.json")
    folder.root.publish("sweeps/first/results.parquet", b"PAR1")
    store = status_of(folder.root.location())
    assert isinstance(store, StoreState) and [(x.name, x.state) for x in store.lines] == [("first", "stopped")]
