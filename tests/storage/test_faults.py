"""Disks that are full, stumble or list late, met through an injected filesystem: nothing half is taken for whole."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from raychains.core.errors import StorageAway, StorageRefused
from raychains.core.retry import Patience
from raychains.store import ChainStore, Storage, codec
from tests.checks import refused
from tests.storage.faults import Faulty, faulty
from tests.storage.test_outages import SPEC, sample

QUICK = Patience(first=0.001, cap=0.01, total=600.0)
OPERATIONS = ["info", "list", "read", "open", "write", "mkdir", "delete"]


@pytest.fixture
def shaky(tmp_path: Path) -> tuple[Faulty, Storage]:
    handler, filesystem = faulty()
    return handler, Storage(tmp_path / "store", filesystem, patience=QUICK)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT], ids=errno.errorcode.get)
def test_a_chains_whole_life_outlasts_a_device_that_stumbles_everywhere(
    shaky: tuple[Faulty, Storage], number: int, caplog: pytest.LogCaptureFixture
) -> None:
    handler, root = shaky
    handler.error = number
    store = ChainStore(root, SPEC.digest)

    def again() -> None:
        handler.stumbles = dict.fromkeys(OPERATIONS, 2)

    again()
    store.begin(SPEC, 1, {"from_step": 0})
    for step in range(1, 6):
        again()
        store.publish_checkpoint({"step": step, "w": torch.full((1000,), float(step))}, step, 1)
    handler.stumbles = {}
    store.publish_checkpoint({"step": 6, "w": torch.zeros(3)}, 6, 1)
    for index in range(3):
        again()
        store.publish_sample(sample(index), 1, {})
        store.publish_progress([{"step": index, "seconds": 1.0}], index, 1)
    again()
    assert store.newest_checkpoint()["step"] == 6
    again()
    assert store.finished(3) and [r.meta.index for r in store.records()] == [0, 1, 2]
    again()
    store.finish()
    again()
    assert [len(codec.decode(store.read_sample(r.file))[0]["w"]) for r in store.records()] == [50_000] * 3
    again()
    root.delete("chains/nothing")
    assert set(handler.calls) >= set(OPERATIONS)
    assert any("away" in r.message for r in caplog.records if r.levelno == logging.WARNING)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS], ids=errno.errorcode.get)
def test_what_will_not_pass_is_not_tried_again(shaky: tuple[Faulty, Storage], number: int) -> None:
    handler, root = shaky
    handler.error, handler.stumbles = number, {"open": 1}
    with pytest.raises(OSError if number == errno.EINVAL else StorageRefused) as caught:
        root.retrying(lambda reason: pytest.fail(reason)).publish("a/x", b"data")
    assert getattr(caught.value.__cause__ or caught.value, "errno", None) == number
    assert handler.calls.count("open") == 1 and not root.exists("a/x")


@pytest.mark.parametrize("room", [0, 1, 100, 100_000])
def test_a_full_disk_is_said_at_once_and_what_was_written_is_intact(shaky: tuple[Faulty, Storage], room: int) -> None:
    handler, root = shaky
    store = ChainStore(root, SPEC.digest)
    store.publish_sample(sample(0), 1, {})
    store.publish_checkpoint({"step": 5}, 5, 1)
    handler.room = room
    with pytest.raises(StorageRefused) as caught:
        store.retrying(lambda reason: pytest.fail(reason)).publish_sample(sample(1), 1, {})
    message = str(caught.value)
    assert caught.value.exit_status == 2 and "\n" not in message
    assert all(word in message for word in ("full", "000001-theta-1", "intact", "`resume=True`"))
    assert [r.meta.index for r in store.records()] == [0] and store.newest_checkpoint()["step"] == 5
    assert root.names(f"chains/{SPEC.digest}/samples") == ["000000-theta-1.safetensors"], "the part is taken away"
    handler.room = None
    store.publish_sample(sample(1), 1, {})
    assert [r.meta.index for r in store.records()] == [0, 1]


@pytest.mark.parametrize("room", [0, 500, 5_000])
def test_a_part_that_cannot_be_taken_away_is_no_sample_and_no_checkpoint(
    shaky: tuple[Faulty, Storage], room: int
) -> None:
    handler, root = shaky
    store = ChainStore(root, SPEC.digest)
    store.publish_checkpoint({"step": 5, "w": torch.zeros(5000)}, 5, 1)
    warned: list[tuple[str, str]] = []
    for publish in (
        lambda: store.publish_sample(sample(1), 1, {}),
        lambda: store.publish_checkpoint({"step": 6, "w": torch.zeros(5000)}, 6, 1),
    ):
        handler.room, handler.stumbles = room, {"delete": 100}
        with pytest.raises(StorageRefused):
            publish()
    handler.stumbles = {}
    assert root.names(f"chains/{SPEC.digest}/samples") == ["000001-theta-1.safetensors"]
    assert store.records() == [] and not store.finished(1)
    assert store.newest_checkpoint(warn=lambda *told: warned.append(told))["step"] == 5
    assert [Path(file).name for file, _ in warned] == ["0000000006-1.safetensors"] and warned[0][1]


def test_an_upload_that_fails_for_good_leaves_the_version_before(shaky: tuple[Faulty, Storage]) -> None:
    handler, root = shaky
    root.publish("a/x", b"the version before")
    handler.stumbles = {"open": 100}
    with pytest.raises(StorageAway):
        root.retrying(lambda _: len(handler.calls) < 40).publish("a/x", b"new")
    assert root.read("a/x") == b"the version before"


def test_retention_that_fails_does_not_fail_the_checkpoint(shaky: tuple[Faulty, Storage]) -> None:
    handler, root = shaky
    store = ChainStore(root, SPEC.digest)
    handler.stumbles = {"delete": 3}
    for step in (1, 2, 3, 4):
        store.publish_checkpoint({"step": step}, step, 1)
    assert len(root.names(f"chains/{SPEC.digest}/checkpoints")) == 4 and store.newest_checkpoint()["step"] == 4
    handler.stumbles = {}
    store.publish_checkpoint({"step": 5}, 5, 1)
    assert len(root.names(f"chains/{SPEC.digest}/checkpoints")) == 2, "the next one makes up for it"


def late(folder: Path) -> tuple[Faulty, ChainStore, list[float]]:
    """A chain's store that lists files by a clock, which is the last."""
    now = [0.0]
    handler, filesystem = faulty(lambda: now[0])
    return handler, ChainStore(Storage(folder / "store", filesystem, patience=QUICK), SPEC.digest), now


def test_listings_that_come_late_hide_samples_for_a_while_and_invent_none(tmp_path: Path) -> None:
    handler, store, now = late(tmp_path)
    handler.unlisted_for = 10.0
    store.begin(SPEC, 1, {"from_step": 0})
    store.publish_sample(sample(0), 1, {})
    store.publish_checkpoint({"step": 5}, 5, 1)
    assert store.records() == [] and not store.finished(1) and store.newest_checkpoint() is None
    now[0] = 5.0
    store.publish_sample(sample(1), 1, {})
    now[0] = 11.0
    assert [r.meta.index for r in store.records()] == [0] and not store.finished(2)
    assert store.newest_checkpoint()["step"] == 5
    now[0] = 16.0
    assert [r.meta.index for r in store.records()] == [0, 1] and store.finished(2)
    store.finish()
    now[0] = 17.0
    assert len(store.records()) == 2


def test_an_index_made_from_a_late_listing_does_not_make_the_chain_finished(tmp_path: Path) -> None:
    handler, store, now = late(tmp_path)
    store.publish_sample(sample(0), 1, {})
    handler.unlisted_for = 10.0
    now[0] = 20.0
    store.publish_sample(sample(1), 1, {})
    store.finish()
    assert not store.finished(2) and len(store.records()) == 1
    now[0] = 40.0
    assert store.finished(2), "its samples are there whatever the index says"
    store.finish()
    assert store.finished(2) and len(store.records()) == 2


def test_an_injected_filesystem_is_the_one_that_is_used(tmp_path: Path) -> None:
    handler, filesystem = faulty()
    for uri in (str(tmp_path / "a"), f"file://{tmp_path}/b"):
        handler.calls.clear()
        root: Any = Storage(uri, filesystem)
        root.publish("x/y", b"1")
        assert "open" in handler.calls and root.read("x/y") == b"1"
    assert (tmp_path / "a/x/y").read_bytes() == (tmp_path / "b/x/y").read_bytes() == b"1"
    with refused("store", "file"):
        Storage(tmp_path / "a/x/y", filesystem)
