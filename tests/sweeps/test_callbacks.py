"""A sweep's events for listeners that follow chains, and all of them as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raychains import callbacks as told
from raychains.callbacks.event_data import record
from raychains.callbacks.jsonl import JsonLines
from raychains.callbacks.sweep import OfSweep
from raychains.planning.sweep_plan import Point, SweepDone, SweepReady, SweepStopping, SweepTick, TrialEnded, TrialNow
from raychains.store import Storage, SweepStore
from tests.callbacks.events import plan
from tests.callbacks.test_several import Notes


def point() -> Point:
    """The third, with a chain for each of two repeats."""
    specs = tuple(plan().arms[0].chains[0])
    return Point(number=2, values={"lr": 0.1}, sampler="csghmc", specs=specs, length=8)


def now(repeat: int, step: int) -> TrialNow:
    return TrialNow(point=point(), repeat=repeat, step=step, steps=80, cycle=1, cycles=2, value=None)


def ended(repeat: int, status: Any, **metrics: float) -> TrialEnded:
    report = {"cycle": 1, "epoch": 8.0, "gradients": 4000, "samples": 2, "metrics": metrics} if metrics else None
    return TrialEnded(point=point(), repeat=repeat, status=status, reason="why" * (status == "failed"), report=report)


def test_trials_are_chains_and_points_are_arms() -> None:
    notes = Notes()
    of = OfSweep(notes)
    one, two = (spec.digest for spec in point().specs)
    of.on(SweepReady(slots=2, slot="1 CPU"))
    of.on(SweepTick(running=[now(0, 40)], ended=0, total=4, best=None))
    of.on(ended(0, "finished", nll=0.5, error=0.25))
    of.on(ended(1, "failed"))
    of.on(SweepTick(running=[], ended=2, total=4, best=None))
    of.on(SweepStopping(reason="full"))
    of.on(told.RunEnded(outcome="stopped"))
    of.close()
    ready, tick, finished, view, failed, last, stopping, over = notes.heard
    assert ready == told.Ready(slots=2, slot="1 CPU") and notes.closed == 1
    [status] = tick.running
    assert (status.digest, status.step, status.gradients, tick.chains) == (one, 40, 2000, 4)
    assert finished.digest == one and failed == told.ChainFailed(digest=two, reason="why")
    assert (view.arm, view.metrics) == ("point-2", [{"nll": 0.5, "error": 0.25}])
    assert (last.finished, last.failed) == (1, 1) and stopping.reason == "full" and isinstance(over, told.RunEnded)


def test_a_sweeps_own_events_are_json_too(tmp_path: Path) -> None:
    lines: list[str] = []
    listener = JsonLines(lines.append, "sweep", lambda: 0.0)
    for step in (10, 20):
        listener.on(SweepTick(running=[now(0, step)], ended=0, total=4, best=(point(), float("nan"))))  # type: ignore[arg-type]
    listener.on(told.RunEnded(outcome="finished"))
    first, last, over = map(json.loads, lines)
    assert [f["running"][0]["step"] for f in (first, last)] == [10, 20] and over["event"] == "over"
    assert first["event"] == "sweep-tick" and first["best"][1] is None
    assert first["running"][0]["point"]["specs"] == [spec.digest for spec in point().specs]
    assert record(ended(0, "finished", nll=0.5))["report"]["metrics"] == {"nll": 0.5}
    folder = SweepStore(Storage(tmp_path), "first")
    assert record(SweepDone(folder=folder))["folder"] == folder.location()
