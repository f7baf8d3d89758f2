"""Kept predictions: the blocks that were written or none, whatever became of the file."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raychains.core.errors import StorageAway, StorageRefused
from raychains.core.spec import TaskSpec
from raychains.inference.predictive import select
from raychains.store import Storage, codec
from raychains.store.caches import AUTO_BYTES, FORMAT, Predictions, keeps, predictions
from tests.report import runs

TASK = TaskSpec(kind="somewhere:Task", revision=1, settings={"width": 3}, fingerprint="data")
SAMPLE = "5" * 64


def kept(root: Storage, **change: Any) -> Predictions:
    return Predictions(root, **{"task": TASK, "fingerprint": "split", "shards": 2, **change})


def blocks(dtype: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, 5)).astype(dtype) for n in (7, 3)]


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "store")


def file(tmp_path: Path) -> Path:
    """The only kept prediction."""
    [found] = (tmp_path / "store" / "predictions").glob("*/*")
    return found


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_blocks_come_back_as_they_were(root: Storage, tmp_path: Path, dtype: Any) -> None:
    given = blocks(dtype)
    assert kept(root).read(SAMPLE) is None
    kept(root).write(SAMPLE, given)
    found = kept(root).read(SAMPLE)
    assert found is not None and [b.dtype for b in found] == [dtype] * 2
    assert [b.tobytes() for b in found] == [b.tobytes() for b in given] and [b.shape for b in found] == [(7, 5), (3, 5)]
    assert file(tmp_path).name == f"{SAMPLE}.safetensors" and len(file(tmp_path).parent.name) >= 16


def test_rows_of_one_number_an_example_and_strided_blocks_are_kept_too(root: Storage) -> None:
    given = [np.arange(14.0).reshape(7, 2)[:, 1], np.arange(3.0)]
    kept(root).write(SAMPLE, given)
    found = kept(root).read(SAMPLE)
    assert found is not None and all((a == b).all() for a, b in zip(found, given, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "another split"},
        {"task": replace(TASK, settings={"width": 4})},
        {"task": replace(TASK, revision=2)},
        {"shards": 1},
        {"shards": 3},
    ],
    ids=str,
)
def test_what_others_predicted_is_none_of_ours(root: Storage, other: dict[str, Any]) -> None:
    kept(root).write(SAMPLE, blocks(np.float32))
    assert kept(root, **other).read(SAMPLE) is None and kept(root).read(SAMPLE) is not None


def test_a_sample_that_starts_elsewhere_is_another_one(root: Storage) -> None:
    kept(root).write(SAMPLE, blocks(np.float32), start="a" * 64)
    assert kept(root).read(SAMPLE) is None and kept(root).read(SAMPLE, "b" * 64) is None
    assert kept(root).read(SAMPLE, "a" * 64) is not None


def damage(data: bytes) -> dict[str, bytes]:
    """What may become of a file."""
    middle = len(data) - 20
    return {
        "empty": b"",
        "torn in its header": data[:50],
        "torn in its tensors": data[:-4],
        "longer": data + b"more",
        "a bit is off": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "something else": b"\x80\x04\x95pickle",
        "a sample": codec.encode({"weight": torch.zeros(3)}, {}),
    }


@pytest.mark.parametrize("how", list(damage(bytes(100))))
def test_a_damaged_file_is_none_is_told_and_written_again(
    root: Storage, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept(root).write(SAMPLE, blocks(np.float32))
    whole = file(tmp_path).read_bytes()
    file(tmp_path).write_bytes(damage(whole)[how])
    with caplog.at_level(logging.WARNING):
        assert kept(root).read(SAMPLE) is None
    assert str(file(tmp_path)) in caplog.text
    kept(root).write(SAMPLE, blocks(np.float32))
    assert file(tmp_path).read_bytes() == whole


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_is_cut_or_flipped_the_blocks_are_those_that_were_kept_or_none(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    ours = kept(Storage(folder / "store"))
    given_blocks = blocks(np.float32)
    ours.write(SAMPLE, given_blocks)
    changed = bytearray(file(folder).read_bytes())
    for bit in data.draw(st.lists(st.integers(0, 8 * len(changed) - 1), max_size=3)):
        changed[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(changed)) | st.just(len(changed)))
    file(folder).write_bytes(bytes(changed[:cut]))
    found = ours.read(SAMPLE)
    assert found is None or [b.tobytes() for b in found] == [b.tobytes() for b in given_blocks]


def test_a_file_under_another_samples_name_is_none(root: Storage, tmp_path: Path) -> None:
    kept(root).write(SAMPLE, blocks(np.float32))
    file(tmp_path).rename(file(tmp_path).with_name(f"{'6' * 64}.safetensors"))
    assert kept(root).read("6" * 64) is None


@pytest.mark.parametrize("newer", [{"predictions": FORMAT + 1}, {"format": codec.FORMAT + 1}], ids=str)
def test_a_newer_format_is_told_of_and_left_alone(
    root: Storage, tmp_path: Path, newer: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    kept(root).write(SAMPLE, blocks(np.float32))
    tensors, own = codec.decode(file(tmp_path).read_bytes())
    theirs = codec.encode(tensors, {**own, **newer})
    file(tmp_path).write_bytes(theirs)
    with caplog.at_level(logging.WARNING):
        assert kept(root).read(SAMPLE) is None
    assert "newer" in caplog.text
    kept(root).write(SAMPLE, blocks(np.float32))
    assert file(tmp_path).read_bytes() == theirs


# Storage that refuses


@pytest.mark.parametrize(
    "error", [StorageAway("away"), PermissionError(errno.EACCES, "no"), OSError(errno.EROFS, "read-only")], ids=str
)
def test_storage_that_refuses_is_told_and_fails_nothing(
    root: Storage, monkeypatch: pytest.MonkeyPatch, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    ours = kept(root)
    monkeypatch.setattr(Storage, "publish", refuse)
    with caplog.at_level(logging.WARNING):
        ours.write(SAMPLE, blocks(np.float32))
    assert "not kept" in caplog.text
    monkeypatch.undo()
    ours.write(SAMPLE, blocks(np.float32))
    assert ours.read(SAMPLE) is not None
    monkeypatch.setattr(Storage, "read", refuse)
    assert ours.read(SAMPLE) is None


def test_full_storage_is_told_once_and_not_tried_again(
    root: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def full(_: Storage, name: str, *__: Any, **___: Any) -> None:
        tried.append(name)
        raise StorageRefused("no room")

    ours = kept(root)
    monkeypatch.setattr(Storage, "publish", full)
    with caplog.at_level(logging.WARNING):
        ours.write(SAMPLE, blocks(np.float32))
        ours.write("6" * 64, blocks(np.float32))
    assert tried == [ours.name(SAMPLE)] and len(caplog.records) == 1 and "no room" in caplog.text


def test_blocks_that_no_tensor_holds_are_told_and_not_kept(root: Storage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kept(root).write(SAMPLE, [np.array(["a"]), np.array(["b"])])
    assert "not kept" in caplog.text and kept(root).read(SAMPLE) is None


# Policy


@pytest.mark.parametrize(
    ("policy", "samples", "each", "expected"),
    [
        ("auto", 1000, AUTO_BYTES // 1000, True),
        ("auto", 1000, AUTO_BYTES // 1000 + 1, False),
        ("auto", 1, AUTO_BYTES, True),
        ("all", 10**6, AUTO_BYTES, True),
        ("none", 1, 1, False),
    ],
)
def test_what_is_kept(policy: str, samples: int, each: int, expected: bool) -> None:
    assert keeps(policy, samples, each) is expected


# Reading them back


def test_predictions_are_read_where_they_are_kept_and_made_where_they_are_not(tmp_path: Path) -> None:
    comparison = runs.single(epochs=4, chains=2, cycles=1, exploration=0.0, samples_per_cycle=2)
    runs.store_run(tmp_path / "store", comparison)
    root = Storage(tmp_path / "store")
    selection = select(root, comparison)
    evaluation = selection.task.splits()["test"]
    shards = range(evaluation.shards)
    made = [np.concatenate([evaluation.predict(t, s) for s in shards]) for t in selection.completed()]
    assert made[0].shape[1] == 10 and len(made) == 4
    found = list(predictions(root, evaluation, selection.records))
    assert [f.tobytes() for f in found] == [m.tobytes() for m in made]
    assert not (tmp_path / "store" / "predictions").exists(), "reading writes nothing"
    spec, record = selection.records[1]
    known = [np.full_like(evaluation.predict(next(selection.completed()), s), -1.0) for s in shards]
    Predictions(root, spec.task, evaluation.fingerprint, evaluation.shards).write(record.sha256, known)
    (tmp_path / "store" / "chains" / spec.digest / record.file).unlink()  # nobody needs it
    again = list(predictions(root, evaluation, selection.records))
    assert (again[1] == -1).all() and [a.tobytes() for a in again[2:]] == [m.tobytes() for m in made[2:]]
