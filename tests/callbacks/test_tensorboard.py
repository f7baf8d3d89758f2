"""TensorBoard's files, read back record by record: what they say is what the events said."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import pytest
from tensorboardX.proto import event_pb2

from raychains import callbacks
from raychains.callbacks import CallbackList, event_data, tensorboard
from raychains.callbacks.event_data import EVERY, Points
from raychains.callbacks.tensorboard import TensorBoard
from raychains.core.errors import UserError
from tests.callbacks.events import Clock, digests, status, tick

Series = dict[str, list[tuple[int, float | str]]]


def written(folder: Path) -> Series:
    """(step, value) by tag of all event files in a folder, in their order."""
    found: Series = defaultdict(list)
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length  # length, its checksum, the record, its checksum
            for value in event.summary.value:
                text = value.tensor.string_val
                found[value.tag].append((event.step, text[0].decode() if text else value.simple_value))
    return found


def test_chains_have_curves_over_gradient_evaluations_and_arms_metrics_over_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (event_data, tensorboard):
        monkeypatch.setattr(module, "EVERY", 1e9)  # everything comes within that
    one, two = digests()
    writer = TensorBoard(tmp_path)
    with CallbackList(writer) as several:
        several.on(tick(status(one, 0, stage="")))
        several.on(tick(status(one, 10, stage="exploration", kinetic_temperature=0.5), status(two, 5, loss=None)))
        several.on(tick(status(one, 20), status(two, 10)))  # too soon: the last of a chain comes with its end
        several.on(callbacks.ChainFinished(digest=one, seconds=2.0))
        several.on(
            callbacks.ViewDone(
                arm="arm", group=0, metrics=[{"nll": 0.5}, {"nll": float("nan"), "error": 0.25}], chain_seconds=1
            )
        )
        several.on(callbacks.ViewDone(arm="arm", group=1, metrics=[{"nll": 0.75}], chain_seconds=1))
        several.on(callbacks.ChainFailed(digest=two, reason="too steep"))
    found = written(tmp_path)
    a, b = one[:12], two[:12]
    assert found[f"step/{a}"] == [(500, 10.0), (1000, 20.0)] and found[f"step/{b}"] == [(250, 5.0), (500, 10.0)]
    assert [x for x, _ in found[f"loss/{b}"]] == [500]  # it had none before
    assert found[f"loss/{a}"] == [(500, pytest.approx(1 / 11)), (1000, pytest.approx(1 / 21))]
    assert found[f"kinetic_temperature/{a}"] == [(500, 0.5)]
    assert found[f"stage/{a}/text_summary"] == [(500, "exploration"), (1000, "sampling")]
    assert found["nll/arm"] == [(1, 0.5), (3, 0.75)] and found["error/arm"] == [(2, 0.25)]
    assert found[f"failed/{b}/text_summary"] == [(0, "too steep")]
    assert [x for x, _ in found["run/samples"]] == [0, 1500]  # the first and the last tick


def test_a_resumed_run_writes_beside_the_first_one(tmp_path: Path) -> None:
    for step in (10, 20):
        with CallbackList(TensorBoard(tmp_path)) as several:
            several.on(tick(status(digests()[0], step)))
    found = sorted(written(tmp_path)[f"step/{digests()[0][:12]}"])
    assert found == [(500, 10.0), (1000, 20.0)]


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="tensorboard must be a local folder that can be written") as error:
        TensorBoard(tmp_path / "file" / "below")
    assert "\n" not in str(error.value)


def test_points_come_now_and_then_and_the_last_always() -> None:
    clock, (one, two) = Clock(), digests()
    points = Points(clock)
    drawn = []
    for second in range(10):
        clock.now = float(second)
        drawn += [p.values["step"] for p in points.of(tick(status(one, 1 + second // 3)))]
    assert drawn == [1, 2, 3, 4] and EVERY == 2
    assert not list(points.of(callbacks.ChainFinished(digest=one, seconds=1)))  # its last point is drawn
    list(points.of(tick(status(two, 1))))
    list(points.of(tick(status(two, 2))))
    assert [p.values["step"] for p in points.of(callbacks.RunEnded(outcome="stopped"))] == [2]
