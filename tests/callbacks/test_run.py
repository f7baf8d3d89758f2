"""One real run with listeners: its events in order, its JSON, its TensorBoard curves, and its status meanwhile."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

import raychains as rc
from raychains import callbacks
from raychains.status import RunState, status_of
from tests.callbacks.tasks import Slowing
from tests.callbacks.test_several import Bad, Notes
from tests.callbacks.test_tensorboard import written
from tests.pool import unpaged

pytestmark = pytest.mark.usefixtures("ray_session")


class Watching(Notes):
    """Looks at the run's status from aside, once a chain runs and has a sample; chains are slow until it has and their
    speed is known."""

    def __init__(self, path: Path, go: Path) -> None:
        super().__init__()
        self._path, self._go = path, go
        self.states: list[RunState] = []

    def on(self, event: callbacks.RunEvent) -> None:
        super().on(event)
        if isinstance(event, callbacks.Tick) and any(c.samples for c in event.running) and not self._go.exists():
            found = status_of(str(self._path))
            assert isinstance(found, RunState)
            self.states.append(found)
            if any(c.steps_per_second for c in event.running):
                self._go.touch()


def test_a_run_tells_everything_in_order_and_a_listener_that_raises_does_not_hurt_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, log = tmp_path / "store" / "runs" / "told", tmp_path / "log.jsonl"
    go = tmp_path / "go"
    watching, bad = Watching(path, go), Bad()
    listening = [bad, watching, "jsonl", "tensorboard", "ray-metrics"]
    with unpaged():
        result = rc.run(
            task=Slowing(str(go), at=300),
            sampler="csghmc",
            epochs=60,
            batch_size=50,
            chains=2,
            cycles=6,
            samples_per_cycle=2,
            repeats=1,
            name="told",
            store=str(tmp_path / "store"),
            checkpoint_every=0.2,
            callback=listening,
            log=str(log),
        )
    assert len(result.results()) == 1
    heard = watching.heard
    assert watching.closed == bad.closed == 1 and bad.heard == heard
    assert next(r.getMessage() for r in caplog.records if "callback" in r.getMessage()).startswith(
        "callback Bad raised at Planned"
    )

    # In order
    kinds = [type(h) for h in heard]
    assert (
        kinds[:2] == [callbacks.Planned, callbacks.Ready]
        and kinds[-1] is callbacks.RunEnded
        and kinds.count(callbacks.Planned) == 1
    )
    chains = list(result.comparison.chains())
    for digest in chains:
        about = [h for h in heard if getattr(h, "digest", None) == digest]
        assert [type(h) for h in about] == [callbacks.ChainBegan, callbacks.ChainFinished]
        first, last = heard.index(about[0]), heard.index(about[1])
        running = [
            i
            for i, h in enumerate(heard)
            if isinstance(h, callbacks.Tick) and any(c.digest == digest for c in h.running)
        ]
        assert all(i < last for i in running)
        assert all(c.step == 0 for i in running if i < first for c in heard[i].running if c.digest == digest)
    assert kinds.index(callbacks.ViewDone) > max(i for i, k in enumerate(kinds) if k is callbacks.ChainBegan)
    ticks = [h for h in heard if isinstance(h, callbacks.Tick)]
    assert [t.gradients for t in ticks] == sorted(t.gradients for t in ticks)
    assert ticks[-1].finished == ticks[-1].chains == 2 and ticks[-1].gradients == ticks[-1].to_spend == 2 * 60 * 500
    assert ticks[-1].samples == ticks[-1].evaluated == 2 * 12
    seen = [c for t in ticks for c in t.running if c.step]
    assert seen and all(c.lr is not None and c.gradients == c.step * 50 for c in seen)
    assert any(c.steps_per_second for c in seen)

    # As JSON, in the file and in the store
    told_lines = [json.loads(line) for line in log.read_text().splitlines()]
    parts = sorted((path / "events").iterdir())
    stored = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    without_times = [
        [{**line, "time": ""} for line in lines if line["event"] != "tick"] for lines in (told_lines, stored)
    ]
    assert without_times[0] == without_times[1]
    assert [line["event"] for line in without_times[0]] == [
        _name(h) for h in heard if not isinstance(h, callbacks.Tick)
    ] and all(line["run"] == "told" for line in told_lines)
    assert [line for line in told_lines if line["event"] == "tick"][-1]["finished"] == 2
    assert all(
        line["time"] <= after["time"] for line, after in pairwise(told_lines[:-2])
    )  # the last tick was held back

    # As TensorBoard shows them: every point is a tick's
    curves = written(path / "tensorboard")
    by_chain = {
        d[:12]: {(c.gradients, float(c.step)) for t in ticks for c in t.running if c.digest == d} for d in chains
    }
    for name, points in by_chain.items():
        drawn = curves.get(f"step/{name}", [])
        assert set(drawn) <= points and (bool(drawn) or not any(step for _, step in points))
    [view] = [h for h in heard if isinstance(h, callbacks.ViewDone)]
    assert curves[f"nll/{view.arm}"] == [(1, pytest.approx(view.metrics[0]["nll"], rel=1e-6))]

    # From aside
    assert watching.states
    state = watching.states[-1]
    assert state.state == "running" and state.drivers[0].pid == os.getpid()
    assert {c.state for c in state.chains} & {"running", "finished"} and state.samples > 0
    found = status_of(str(path))
    assert isinstance(found, RunState) and found.state == "finished" and found.gradients == found.to_spend
    assert [(a.evaluated, a.repeats) for a in found.arms] == [(1, 1)]


def _name(event: callbacks.RunEvent) -> str:
    return event.event
