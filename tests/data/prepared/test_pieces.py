"""Batches from decoders elsewhere are the plain ones, whoever is lost, comes back or was never there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.data.prepared import pieces
from raychains.data.prepared.carrier import Cutting, DecodingFailed
from raychains.data.prepared.decoder import Decoder
from raychains.data.prepared.feed import Feed
from raychains.data.prepared.order import ShardedOrder
from raychains.data.prepared.pieces import PieceCutter, Pieces
from raychains.data.prepared.rows import Rows
from tests.data.prepared.made import folder_of_classes, prepared
from tests.data.prepared.test_feed import BATCH, SIZE, WINDOW, joined, plainly

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pieces")
    prepared(folder_of_classes(folder / "in"), folder / "out")
    return str(folder / "out")


@pytest.fixture(scope="module")
def rows(uri: str) -> Rows:
    from raychains.data.prepared.rows import manifest_at

    return Rows(uri, manifest_at(uri), "train")


class Unreliable:
    """Decoders in this process that come, go and lose what they were asked, by chance; answers are cut when asked for."""

    def __init__(self, count: int, rng: random.Random, loss: float) -> None:
        self.count, self._rng, self._loss = count, rng, loss
        self.cutters = [PieceCutter() for _ in range(count)]
        self._up = {n for n in range(count) if rng.random() < 0.7}
        self.outstanding, self.most, self.lost = 0, 0, 0

    def up(self) -> set[int]:
        """Those that were lost may be back."""
        self._up |= {n for n in range(self.count) if self._rng.random() < 0.1}
        return set(self._up)

    def ask(self, decoder: int, cutting: Cutting, seed: int, step: int, share: int) -> Any:
        self.outstanding += 1
        self.most = max(self.most, self.outstanding)
        return cutting, seed, step, share

    def fetch(self, asked: Sequence[Any]) -> None:
        assert None not in asked

    def answer(self, decoder: int, asked: Any) -> Array | None:
        self.outstanding -= 1
        if self._rng.random() < self._loss:
            self._up.discard(decoder)
            self.lost += 1
            return None
        return self.cutters[decoder].cut(*asked, self.count)


class Beside:
    """A carrier in this process."""

    made = 0

    def __init__(self, cutting: Cutting, rows: Rows) -> None:
        Beside.made += 1
        self._cutting, self._decoder, self._asked = cutting, Decoder(rows), list[int]()

    def begin(self, order: ShardedOrder) -> None:
        self._order = order
        assert not self._asked

    def ask(self, step: int) -> None:
        self._asked.append(step)

    def take(self, step: int) -> Array:
        assert self._asked.pop(0) == step
        return self._decoder.piece(self._order, self._cutting.of(self._order[step]), 0, 1, SIZE)

    def drop(self, step: int) -> None:
        self._asked.remove(step)

    def close(self) -> None:
        self._asked = []


def cutting_of(uri: str, **share: int) -> Cutting:
    return Cutting(uri=uri, split="train", size=SIZE, batch_size=BATCH, window=WINDOW, **share)


def test_bytes_are_the_plain_ones_whatever_is_lost(uri: str, rows: Rows) -> None:
    expected = [plainly(rows, seed) for seed in (5, 6)]
    rng = random.Random(3)
    lost, Beside.made = 0, 0
    for case in range(60):
        decoders = Unreliable(rng.randint(1, 4), rng, loss=(0.0, 0.1, 0.6)[case % 3])
        ahead, start = rng.randint(1, 4), rng.randint(0, 7)
        with Feed(
            cutting_of(uri), rows, ahead=ahead,
            carry=lambda c, d=decoders: Pieces(c, d, lambda cutting: Beside(cutting, rows)),
        ) as feed:  # fmt: skip
            left = feed.epoch(4)
            next(left)
            left.close()  # type: ignore[attr-defined]  # an epoch that is left early
            first = [(p.copy(), t.copy()) for p, t in feed.epoch(5, start)]
            second = [(p.copy(), t.copy()) for p, t in feed.epoch(6)]
        pixels, labels = joined(first)
        assert (pixels == expected[0][0][start * BATCH :]).all() and (labels == expected[0][1][start * BATCH :]).all()
        assert (joined(second)[0] == expected[1][0]).all()
        lost += decoders.lost
    assert lost > 100 and Beside.made > 5


def test_no_more_is_asked_for_than_is_to_be_ahead(uri: str, rows: Rows) -> None:
    decoders = Unreliable(3, random.Random(0), loss=0.0)
    decoders._up = {0, 1, 2}
    with Feed(cutting_of(uri), rows, ahead=2, carry=lambda c: Pieces(c, decoders, _nobody)) as feed:
        for _ in feed.epoch(5):
            pass
    assert 2 * 2 <= decoders.most <= 2 * 3 and decoders.outstanding == 0


def _nobody(cutting: Cutting) -> Any:
    raise AssertionError("decoders are up")


@pytest.mark.parametrize("decoders", [1, 2])
def test_ranks_share_what_a_decoder_has_read(uri: str, rows: Rows, decoders: int) -> None:
    """Two ranks that are some batches apart: slices of every batch, and each row group is read once for both."""
    cutters = [PieceCutter() for _ in range(decoders)]
    order = ShardedOrder(rows.split.rows, BATCH, 7, WINDOW)
    expected = plainly(rows, 7)[0]
    shares = [cutting_of(uri, first=0, last=1, parts=3), cutting_of(uri, first=1, last=3, parts=3)]
    found = np.zeros_like(expected)
    for step in range(len(order) + 2):
        for late, cutting in enumerate(shares):
            at = step - 2 * late
            if 0 <= at < len(order):
                part = cutting.of(order[at])
                place = order.epoch.place[rows.groups_of(part.indices)] % decoders
                for share in range(decoders):
                    piece = cutters[share].cut(cutting, 7, at, share, decoders)
                    found[at * BATCH + part.start + np.flatnonzero(place == share)] = piece
    assert (found == expected).all()
    read = [decoder.reads for cutter in cutters for _, decoder in cutter._epochs.values()]
    assert sum(read) == len(rows.counts) and len(read) == decoders


def test_an_epoch_that_nobody_asks_for_is_let_go(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cutter = PieceCutter()
    for seed in (1, 2):
        cutter.cut(cutting_of(uri), seed, 0, 0, 1)
    assert len(cutter._epochs) == 2
    monkeypatch.setattr(pieces, "IDLE", 0.0)
    cutter.cut(cutting_of(uri), 3, 0, 0, 1)
    assert [seed for *_, seed in cutter._epochs] == [3] and cutter._asked.keys() == cutter._epochs.keys()


def test_what_is_damaged_is_said_and_not_tried_elsewhere(tmp_path: Path) -> None:
    manifest = prepared(folder_of_classes(tmp_path / "in"), tmp_path / "out")
    mine = Rows(str(tmp_path / "out"), manifest, "train")
    assert len(mine.labels) == 60
    gone = tmp_path / "out" / manifest.splits["train"].shards[1].file
    gone.unlink()
    decoders = Unreliable(2, random.Random(0), loss=0.0)
    decoders._up = {0, 1}
    carry = lambda c: Pieces(c, decoders, _nobody)  # noqa: E731
    with (
        Feed(cutting_of(str(tmp_path / "out")), mine, carry=carry) as feed,
        pytest.raises(DecodingFailed, match=gone.name),
    ):
        list(feed.epoch(1))
    assert decoders.lost == 0
