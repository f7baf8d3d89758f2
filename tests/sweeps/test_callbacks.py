"""A sweep's events as JSON, and what a terminal says of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raychains import callbacks
from raychains.api import plans
from raychains.callbacks.event_data import Points, record
from raychains.callbacks.jsonl import JsonLines
from raychains.core.config import Sweep
from raychains.core.errors import RayLost, StorageAway, StorageRefused, UserError
from raychains.orchestration.cluster import ray_watch
from raychains.orchestration.tune.sweep_experiment import InterruptStopper, SweepCallback
from raychains.report.terminal import Terminal
from raychains.store import Storage, SweepStore


def planned(folder: Path) -> callbacks.SweepPlanned:
    """Two points of two repeats."""
    plan = plans.sweep(Sweep(epochs=40, repeats=2, exploration=0.5, grid=("cycles=2,4",), asha=True)).plan
    return callbacks.SweepPlanned(plan=plan, folder=SweepStore(Storage(folder), "first"), there=1)


def view(number: int, repeat: int, nll: float) -> callbacks.ViewDone:
    return callbacks.ViewDone(
        arm=f"point-{number}", group=repeat, metrics=[{"nll": nll, "error": 0.5}], chain_seconds=1.0
    )


def test_a_sweeps_own_events_are_json_too(tmp_path: Path) -> None:
    lines: list[str] = []
    listener = JsonLines(lines.append, "sweep", lambda: 0.0)
    event = planned(tmp_path)
    [point, other] = event.plan.points
    for one in (
        event,
        callbacks.PointChosen(point=point),
        callbacks.ChainReported(digest="d", gradients=9, metrics={"nll": float("nan")}),
    ):
        listener.on(one)
    first, chosen, reported = map(json.loads, lines)
    assert (first["event"], first["folder"], first["plan"]["metric"]["name"]) == (
        "sweep-planned",
        str(tmp_path / "sweeps" / "first"),
        "nll",
    )
    assert [p["specs"] for p in first["plan"]["points"]] == [[s.digest for s in p.specs] for p in (point, other)]
    assert chosen["point"]["values"] == {"cycles": 2} and reported["metrics"] == {"nll": None}
    assert record(callbacks.ChainStopped(digest="d", reason="why")) == {
        "event": "chain-stopped",
        "digest": "d",
        "reason": "why",
    }


def test_trackers_draw_each_report_over_its_chains_gradients() -> None:
    points = Points()
    for gradients, nll in ((40, 0.5), (80, float("nan"))):
        event = callbacks.ChainReported(digest="d" * 64, gradients=gradients, metrics={"nll": nll, "error": 0.25})
        [point] = points.of(event)
        drawn = {"error": 0.25} | ({"nll": nll} if gradients == 40 else {})
        assert (point.chain, point.gradients, point.values) == ("d" * 12, gradients, drawn)


def test_a_terminal_names_points_and_their_repeats(tmp_path: Path) -> None:
    out = io.StringIO()
    event = planned(tmp_path)
    [point, other] = event.plan.points
    with Terminal(Console(file=out, width=200)) as terminal:
        for one in (
            event,
            callbacks.ChainReported(digest=other.specs[1].digest, gradients=9, metrics={"nll": 0.75}),
            callbacks.ChainStopped(digest=other.specs[1].digest, reason="stopped by ASHA after 10 of 40 epochs"),
            callbacks.ChainFailed(digest=other.specs[0].digest, reason="Traceback\nValueError: no"),
            callbacks.WorkerLost(slot=0, reason="its process died", digest=point.specs[0].digest),
            view(0, 0, 0.25),
            view(0, 1, 0.35),
        ):
            terminal.on(one)
        terminal.table()
    said = out.getvalue()
    assert "2 points, all combinations, 2 chains each; NLL (nats) on the split val decides" in said
    assert "1 chains are in the store already" in said and "ASHA: from 25% of the epochs on, 1 in 3 goes on" in said
    assert "point 1 (cycles=4, repeat 1) stopped by ASHA after 10 of 40 epochs: NLL (nats) 0.7500" in said
    assert "point 1 (cycles=4, repeat 0) failed: ValueError: no" in said
    assert "slot 0 is gone (its process died); point 0 (cycles=2, repeat 0) resumes in another" in said
    assert "point 0 (cycles=2), 1 of 2 repeats: NLL (nats) 0.2500" in said
    assert "point 0 (cycles=2), 2 of 2 repeats: NLL (nats) 0.3000 ± 0.0500" in said


@pytest.mark.parametrize("error", [StorageRefused("the disk is full"), StorageAway("no answer")])
def test_a_store_that_fails_in_tunes_callbacks_ends_the_sweep_by_its_own_error(error: UserError) -> None:
    stopper = InterruptStopper(SimpleNamespace(lost=""), callbacks.NullCallback())  # type: ignore[arg-type]
    callback: Any = object.__new__(SweepCallback)
    callback.stopper = stopper

    def fails(*args: Any) -> None:
        raise error

    callback._chain = fails
    callback.on_trial_error(0, [], None)
    assert stopper.fatal is error and stopper.stop_all()
    stopper.fatal, stopper.interrupt.asked = None, True
    callback.on_trial_error(0, [], None)
    assert stopper.fatal is (error if isinstance(error, StorageRefused) else None), "the user wanted it to stop"


def test_a_ray_that_goes_ends_tunes_loop_by_no_exception_after_which_tune_would_ask_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone() -> None:
        raise RayLost("the cluster does not answer")

    monkeypatch.setattr(ray_watch, "check", gone)
    with pytest.raises(BaseException) as caught:
        object.__new__(SweepCallback).on_step_end(0, [])
    assert not isinstance(caught.value, Exception)
