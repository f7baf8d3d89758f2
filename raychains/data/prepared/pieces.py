"""Batches put together from pieces that decoders elsewhere cut, any of which may be lost at any time.

Row groups are dealt out in as many shares as there are decoders. A share is cut by the decoder of its number while that
is up, else by another, and beside the chain when nobody is left: what a piece holds is a function of its number alone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from raychains.data.prepared.carrier import Carrier, Carry, Cutting, DecodingFailed
from raychains.data.prepared.decoder import Decoder, share_of
from raychains.data.prepared.order import ShardedOrder
from raychains.data.prepared.rows import Rows, manifest_at

Array = np.ndarray[Any, Any]
BEHIND = 8
"""Batches that ranks of one chain may be apart, with what they ask for ahead."""
IDLE = 120.0
"""Seconds after which an epoch's order that nobody asks for is forgotten."""
ATTEMPTS = 3
"""Decoders that one piece may lose before it is cut beside the chain: it may be what kills them."""


class Decoders(Protocol):
    """Decoders elsewhere, by number."""

    count: int

    def up(self) -> Collection[int]:
        """Those that answer, as far as is known."""

    def ask(self, decoder: int, cutting: Cutting, seed: int, step: int, share: int) -> Any:
        """Have a piece cut, meanwhile; what the answer is asked for by."""

    def fetch(self, asked: Sequence[Any]) -> None:
        """All that is outstanding: what is done may be brought here meanwhile."""

    def answer(self, decoder: int, asked: Any) -> Array | None:
        """The piece, once it is there; None where it is lost, and the decoder is not up then.

        Raises:
            DecodingFailed: a picture is damaged.
            StorageAway: its storage could not be reached for long.
        """


class PieceCutter:
    """What a decoder elsewhere does: cuts whatever piece of whatever set, for as many chains and ranks as ask.

    Ranks of one chain, and no others, share an epoch's seed: what one of them has read serves the others.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Rows] = {}
        self._epochs: dict[tuple[Any, ...], tuple[ShardedOrder, Decoder]] = {}
        self._asked: dict[tuple[Any, ...], float] = {}
        """When somebody asked for an epoch last."""

    def cut(self, cutting: Cutting, seed: int, step: int, share: int, shares: int) -> Array:
        """The pictures of one share of a batch, uint8 [n, size, size, 3], in the order of their places.

        Raises:
            DecodingFailed: a picture is damaged.
            StorageAway: its storage could not be reached for long.
        """
        try:
            order, decoder = self._epoch(cutting, seed)
            return decoder.piece(order, cutting.of(order[step]), share, shares, cutting.size)
        except (OSError, ValueError) as error:
            raise DecodingFailed(" ".join(str(error).split())) from None

    def _epoch(self, cutting: Cutting, seed: int) -> tuple[ShardedOrder, Decoder]:
        now = time.monotonic()
        for key in [k for k, asked in self._asked.items() if now - asked > IDLE]:
            del self._asked[key], self._epochs[key]
        where = (cutting.uri, cutting.split)
        key = (*where, cutting.batch_size, cutting.window, seed)
        if key not in self._epochs:
            rows = self._rows.get(where) or Rows(cutting.uri, manifest_at(cutting.uri), cutting.split)
            self._rows[where] = rows
            order = ShardedOrder(rows.split.rows, cutting.batch_size, seed, cutting.window)
            self._epochs[key] = order, Decoder(rows, behind=BEHIND)
        self._asked[key] = now
        return self._epochs[key]


@dataclass
class _Piece:
    """One share of a batch that was asked for."""

    places: Array
    decoder: int | None = None
    """Who cuts it; None: it is cut here."""
    asked: Any = None
    lost: int = 0


@dataclass
class _Batch:
    images: int
    pieces: dict[int, _Piece] = field(default_factory=dict)
    """By share; those without a picture are left out."""


class Pieces:
    """Carries batches from decoders elsewhere.

    Args:
        cutting: what is cut.
        decoders: who cuts.
        beside: carries the batches that are asked for while none of them is up.
    """

    def __init__(self, cutting: Cutting, decoders: Decoders, beside: Carry) -> None:
        self._cutting, self._decoders, self._make = cutting, decoders, beside
        self._rows = Rows(cutting.uri, manifest_at(cutting.uri), cutting.split)
        self._batches: dict[int, _Batch | None] = {}
        """Asked for and not taken, by step; None: from the carrier beside."""
        self._beside: Carrier | None = None
        self._here: Decoder | None = None

    def begin(self, order: ShardedOrder) -> None:
        """An epoch."""
        self._order = order
        self._batches = {}
        if self._beside is not None:
            self._beside.begin(order)

    def ask(self, step: int) -> None:
        """Deal the batch's shares out, or have it carried from beside."""
        if not self._decoders.up():
            if self._beside is None:
                self._beside = self._make(self._cutting)
                self._beside.begin(self._order)
            self._beside.ask(step)
            self._batches[step] = None
            return
        part = self._cutting.of(self._order[step])
        batch = self._batches[step] = _Batch(len(part))
        dealt = share_of(self._rows, self._order, part, self._decoders.count)
        for share in map(int, np.unique(dealt)):
            piece = batch.pieces[share] = _Piece(np.flatnonzero(dealt == share))
            self._deal(step, share, piece)
        pieces = [p for b in self._batches.values() if b is not None for p in b.pieces.values()]
        self._decoders.fetch([p.asked for p in pieces if p.decoder is not None])

    def take(self, step: int) -> Array:
        """Wait for all pieces; what is lost is cut by others.

        Raises:
            DecodingFailed: a picture is damaged.
            StorageAway: its storage could not be reached for long.
        """
        batch = self._batches[step]
        if batch is None:
            assert self._beside is not None
            del self._batches[step]
            return self._beside.take(step)
        out = np.empty((batch.images, self._cutting.size, self._cutting.size, 3), dtype=np.uint8)
        for share, piece in batch.pieces.items():
            found = None
            while found is None and piece.decoder is not None:
                found = self._decoders.answer(piece.decoder, piece.asked)
                if found is None:
                    self._lost(piece.decoder)
            if found is None:
                self._cut_here(step, share, out)
            else:
                out[piece.places] = found
                piece.decoder = piece.asked = None  # settled, whatever becomes of the decoder
        del self._batches[step]
        return out

    def drop(self, step: int) -> None:
        """Let go of the answers."""
        if self._batches.pop(step) is None and self._beside is not None:
            self._beside.drop(step)

    def close(self) -> None:
        """The decoders stay: they are others' too."""
        self._batches = {}
        if self._beside is not None:
            self._beside.close()
            self._beside = None

    def _deal(self, step: int, share: int, piece: _Piece) -> None:
        """Ask the share's own decoder, or another that is up."""
        up = sorted(self._decoders.up()) if piece.lost < ATTEMPTS else []
        piece.decoder = piece.asked = None
        if up:
            piece.decoder = share if share in up else up[share % len(up)]
            piece.asked = self._decoders.ask(piece.decoder, self._cutting, self._order.seed, step, share)

    def _lost(self, decoder: int) -> None:
        """Deal everything out again that this one was asked for."""
        for step, batch in self._batches.items():
            for share, piece in batch.pieces.items() if batch is not None else ():
                if piece.decoder == decoder:
                    piece.lost += 1
                    self._deal(step, share, piece)

    def _cut_here(self, step: int, share: int, out: Array) -> None:
        self._here = self._here or Decoder(self._rows)
        try:
            self._here.fill(self._order, self._cutting.of(self._order[step]), share, self._decoders.count, out)
        except (OSError, ValueError) as error:
            raise DecodingFailed(" ".join(str(error).split())) from None
