"""A sweep's events for listeners that follow chains, and all of them as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raychains import listeners as told
from raychains.listeners.jsonl import JsonLines
from raychains.listeners.record import record
from raychains.listeners.sweeping import OfSweep
from raychains.planning.sweeping import Point, SweepDone, SweepReady, SweepStopping, SweepTick, TrialEnded, TrialNow
from raychains.store import Root, SweepStore
from tests.listeners.events import plan
from tests.listeners.test_several import Notes


def point() -> Point:
    """The third, with a chain for each of two repeats."""
    specs = tuple(plan().arms[0].chains[0])
    return Point(number=2, values={"lr": 0.1}, sampler="csghmc", specs=specs, length=8)


def now(repeat: int, step: int) -> TrialNow:
    return TrialNow(point=point(), repeat=repeat, step=step, steps=80, cycle=1, cycles=2, loss=0.5, value=None)


def ended(repeat: int, status: Any, **report: Any) -> TrialEnded:
    return TrialEnded(
        point=point(), repeat=repeat, status=status, reason="why" * (status == "failed"), report=report or None
    )


def test_trials_are_chains_and_points_are_arms() -> None:
    notes = Notes()
    of = OfSweep(notes)
    one, two = (spec.digest for spec in point().specs)
    of.on(SweepReady(slots=2, slot="1 CPU"))
    of.on(SweepTick(running=[now(0, 40)], ended=0, total=4, best=None))
    of.on(ended(0, "finished", point=2, lr=0.1, cycle=1, gradients=4000, nll=0.5, error=0.25, sampler="csghmc"))
    of.on(ended(1, "failed"))
    of.on(SweepTick(running=[], ended=2, total=4, best=None))
    of.on(SweepStopping(reason="full"))
    of.on(told.Over(outcome="stopped"))
    of.close()
    ready, tick, finished, view, failed, last, stopping, over = notes.heard
    assert ready == told.Ready(slots=2, slot="1 CPU") and notes.closed == 1
    [status] = tick.running
    assert (status.digest, status.step, status.gradients, tick.chains) == (one, 40, 2000, 4)
    assert finished.digest == one and failed == told.ChainFailed(digest=two, reason="why")
    assert (view.arm, view.metrics) == ("point-2", [{"nll": 0.5, "error": 0.25}])
    assert (last.finished, last.failed) == (1, 1) and stopping.reason == "full" and isinstance(over, told.Over)


def test_a_sweeps_own_events_are_json_too(tmp_path: Path) -> None:
    lines: list[str] = []
    listener = JsonLines(lines.append, "sweep", lambda: 0.0)
    for step in (10, 20):
        listener.on(SweepTick(running=[now(0, step)], ended=0, total=4, best=(point(), float("nan"))))  # type: ignore[arg-type]
    listener.on(told.Over(outcome="finished"))
    first, last, over = map(json.loads, lines)
    assert [f["running"][0]["step"] for f in (first, last)] == [10, 20] and over["event"] == "over"
    assert first["event"] == "sweep-tick" and first["best"][1] is None
    assert first["running"][0]["point"]["specs"] == [spec.digest for spec in point().specs]
    assert record(ended(0, "finished", nll=0.5))["report"] == {"nll": 0.5}
    folder = SweepStore(Root(tmp_path), "first")
    assert record(SweepDone(folder=folder))["folder"] == folder.location()
