"""Batches are the same whoever decodes them, however slowly, and wherever an epoch is cut."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.data.prepared import worker
from raychains.data.prepared.feed import Cutting, DecoderGone, DecodingFailed, Feed
from raychains.data.prepared.manifest import Manifest, Rows
from raychains.data.prepared.order import ShardedOrder
from raychains.data.prepared.pictures import augmented
from raychains.data.prepared.worker import Decoder
from tests.data.prepared.made import folder_of_classes, prepared

SIZE, BATCH, WINDOW = 16, 8, 3
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Manifest]:
    folder = tmp_path_factory.mktemp("set")
    return str(folder / "out"), prepared(folder_of_classes(folder / "in"), folder / "out")


@pytest.fixture(scope="module")
def rows(small: tuple[str, Manifest]) -> Rows:
    return Rows(*small, "train")


def plainly(rows: Rows, seed: int) -> tuple[Array, Array]:
    """Pixels and labels of an epoch by no process and no decoder: picture after picture."""
    jpegs = [j for g in range(len(rows.counts)) for j in rows.read(g)]
    indices = ShardedOrder(rows.split.rows, BATCH, seed, WINDOW).epoch.indices
    return np.stack([augmented(jpegs[i], SIZE, seed, int(i)) for i in indices]), rows.labels[indices]


def fed(uri: str, rows: Rows, seeds: list[int], start: int = 0, **more: Any) -> list[tuple[Array, Array]]:
    """By processes; of the first epoch from the ``start``-th batch on."""
    decoders = more.pop("decoders", 1)
    cutting = Cutting(uri=uri, split="train", size=SIZE, batch_size=BATCH, window=WINDOW, **more)
    with closing(Feed(cutting, rows, decoders=decoders)) as feed:
        return [(p.copy(), t.copy()) for i, seed in enumerate(seeds) for p, t in feed.epoch(seed, 0 if i else start)]


def joined(batches: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([p for p, _ in batches]), np.concatenate([t for _, t in batches])


@pytest.mark.parametrize(("decoders", "slots"), [(1, 2), (3, 5)])
def test_two_epochs_are_the_plain_ones(small: tuple[str, Manifest], rows: Rows, decoders: int, slots: int) -> None:
    pixels, labels = joined(fed(small[0], rows, [5, 6], decoders=decoders, slots=slots))
    for epoch, seed in enumerate((5, 6)):
        expected, expected_labels = plainly(rows, seed)
        assert (pixels[60 * epoch : 60 * (epoch + 1)] == expected).all()
        assert (labels[60 * epoch : 60 * (epoch + 1)] == expected_labels).all()


def test_an_epoch_that_is_cut_goes_on_with_the_same_bytes(small: tuple[str, Manifest], rows: Rows) -> None:
    expected, _ = plainly(rows, 5)
    pixels, _ = joined(fed(small[0], rows, [5], start=3, decoders=2))
    assert (pixels == expected[3 * BATCH :]).all()


def test_an_epoch_that_is_left_early_does_not_disturb_the_next(small: tuple[str, Manifest], rows: Rows) -> None:
    cutting = Cutting(uri=small[0], split="train", size=SIZE, batch_size=BATCH, window=WINDOW)
    with closing(Feed(cutting, rows, decoders=2)) as feed:
        epoch = feed.epoch(4)
        next(epoch)
        epoch.close()  # type: ignore[attr-defined]
        pixels = np.concatenate([p.copy() for p, _ in feed.epoch(5)])
    assert (pixels == plainly(rows, 5)[0]).all()


def test_ranks_get_their_slices_of_every_batch(small: tuple[str, Manifest], rows: Rows) -> None:
    expected, _ = plainly(rows, 7)
    by_rank = [fed(small[0], rows, [7], first=a, last=b, parts=6) for a, b in ((0, 1), (1, 3), (3, 4), (4, 6))]
    whole = [np.concatenate([part[step][0] for part in by_rank]) for step in range(len(by_rank[0]))]
    assert (np.concatenate(whole) == expected).all()


@pytest.mark.parametrize("decoders", [1, 2, 5])
def test_each_row_group_is_read_once_and_slow_decoders_change_nothing(
    rows: Rows, decoders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)

    def slowly(jpeg: Any, size: int, seed: int, index: int) -> Array:
        time.sleep(rng.random() * 0.002)
        return augmented(jpeg, size, seed, index)

    order = ShardedOrder(rows.split.rows, BATCH, 9, WINDOW)
    out = np.zeros((len(rows), SIZE, SIZE, 3), dtype=np.uint8)
    monkeypatch.setattr(worker, "augmented", slowly)
    all_of_them = [Decoder(rows) for _ in range(decoders)]
    for share in rng.sample(range(decoders), decoders):
        for part in order:
            place = out[part.step * BATCH : part.step * BATCH + len(part)]
            all_of_them[share].fill(order, part, share, decoders, place)
    assert (out == plainly(rows, 9)[0]).all()
    assert sum(d.reads for d in all_of_them) == len(rows.counts)
    assert max(d.reads for d in all_of_them) - min(d.reads for d in all_of_them) <= -(-len(rows.counts) // WINDOW)


def test_a_killed_decoder_is_named(small: tuple[str, Manifest], rows: Rows) -> None:
    cutting = Cutting(uri=small[0], split="train", size=SIZE, batch_size=BATCH, window=WINDOW, slots=2)
    with closing(Feed(cutting, rows, decoders=2)) as feed:
        epoch = feed.epoch(5)
        next(epoch)
        process = feed._decoders[1]._process
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(DecoderGone, match="decoder 1: its process ended with status -9"):
            list(epoch)
        assert process.poll() == -9 and not feed._decoders


def test_a_missing_shard_is_said(small: tuple[str, Manifest], rows: Rows, tmp_path: Path) -> None:
    manifest = prepared(folder_of_classes(tmp_path / "in"), tmp_path / "out")
    mine = Rows(str(tmp_path / "out"), manifest, "train")
    assert len(mine.labels) == 60
    gone = tmp_path / "out" / manifest.splits["train"].shards[1].file
    gone.unlink()
    cutting = Cutting(uri=str(tmp_path / "out"), split="train", size=SIZE, batch_size=BATCH, window=WINDOW)
    with closing(Feed(cutting, mine)) as feed, pytest.raises(DecodingFailed, match=gone.name):
        list(feed.epoch(1))
