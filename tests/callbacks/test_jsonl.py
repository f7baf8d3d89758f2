"""Events as JSON lines: every event there is, ticks now and then, a file that grows and parts in a store."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains import callbacks
from raychains.callbacks import CallbackList
from raychains.callbacks.event_data import record
from raychains.callbacks.jsonl import PER_CHAIN, TICK_EVERY, JsonLines, JsonLinesFile, JsonLinesParts
from raychains.planning.events import RunEvent
from raychains.store import RunStore, Storage
from tests.callbacks.events import Clock, digests, plan, planned, status, tick


def strict(line: str) -> dict[str, Any]:
    """JSON without NaN and its like."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(line, parse_constant=refuse)
    assert isinstance(found, dict) and line.endswith("\n") and line.count("\n") == 1
    return found


@pytest.mark.parametrize("kind", typing.get_args(RunEvent), ids=lambda kind: kind.event)
def test_every_kind_of_event_becomes_one_object_with_its_fields(kind: Any) -> None:
    made: dict[str, Any] = {
        "comparison": plan(),
        "budget": planned().budget,
        "notes": ["µ\nline"],
        "running": [status("d" * 64, 3)],
    }
    values = {f.name: made.get(f.name, "text") for f in dataclasses.fields(kind)}
    found = strict(json.dumps(record(kind(**values)), allow_nan=False) + "\n")
    assert found["event"] == kind.event
    assert set(found) >= {*values, "event"} - {"comparison"}
    if "comparison" in values:
        assert found["plan"] == plan().digest and found["arms"][0]["chains"] == [digests()]


def test_what_is_no_number_is_null_and_numpy_is_plain() -> None:
    metrics = [{"nll": float("nan"), "error": np.float32(0.5), "n": np.int64(3)}]  # type: ignore[dict-item]
    found = record(callbacks.ViewDone(arm="a", group=0, metrics=metrics, chain_seconds=float("inf")))
    assert found["metrics"] == [{"nll": None, "error": 0.5, "n": 3}] and found["chain_seconds"] is None


def test_ticks_are_thinned_out_and_the_last_one_is_kept() -> None:
    clock, lines = Clock(), list[str]()
    callback = JsonLines(lines.append, "run", clock)
    for second in range(31):
        clock.now = float(second)
        callback.on(tick(status(digests()[0], second)))
    callback.on(callbacks.RunEnded(outcome="stopped", reason="why"))
    found = [strict(line) for line in lines]
    steps = [f["running"][0]["step"] for f in found if f["event"] == "tick"]
    assert steps == [0, 10, 20, 30] and TICK_EVERY == 10
    assert found[-1]["event"] == "over" and found[-1]["reason"] == "why"
    clock.now = 41.0
    callback.on(tick(*[status(d * 64, 5) for d in "0123456789abcdef" * 10], finished=1))
    assert len(lines) == 5 and PER_CHAIN * 160 > 11  # a tick that holds 160 chains waits for longer
    callback.on(callbacks.RunEnded(outcome="finished"))
    assert strict(lines[-2])["finished"] == 1


def test_a_file_grows_by_whole_lines_and_a_second_run_appends(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for name in ("one", "two"):
        with CallbackList(JsonLinesFile(file, name)) as several:
            several.on(planned())
            assert strict(file.read_text().splitlines(keepends=True)[-1])["event"] == "planned"  # there at once
    found = [strict(line) for line in file.read_text().splitlines(keepends=True)]
    assert [(f["run"], f["event"]) for f in found] == [(r, e) for r in ("one", "two") for e in ("planned", "over")]
    assert all(f["time"].endswith("+00:00") for f in found)


def test_parts_in_the_store_are_all_lines_in_order_whatever_the_storage_refuses(tmp_path: Path) -> None:
    root = Storage(tmp_path)
    refused = iter([True, False, True, False])

    class Shaky(Storage):
        def publish(self, name: str, data: bytes, **how: Any) -> None:
            if next(refused, False):
                raise OSError("not now")
            super().publish(name, data, **how)

    callback = JsonLinesParts(RunStore(Shaky(tmp_path), "small"), "0" * 32, every=0.02)
    for step in range(20):
        callback.on(callbacks.Message(text=str(step)))
    while not root.names("runs/small/events"):
        pass
    with CallbackList(callback):
        callback.on(callbacks.Message(text="20"))
    names = root.names("runs/small/events")
    assert len(names) >= 2 and names[0] == f"{'0' * 32}-000000.jsonl"
    lines = "".join(root.read(f"runs/small/events/{name}").decode() for name in names).splitlines(keepends=True)
    assert [strict(line).get("text") for line in lines] == [*map(str, range(21)), None]
