"""A prepared split as a chain and evaluations read it: cut pictures of the next batch, and central crops by place."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.data.prepared.carrier import Carry, Cutting
from raychains.data.prepared.decode import augmented, central
from raychains.data.prepared.feed import Feed
from raychains.data.prepared.manifest import Manifest
from raychains.data.prepared.order import Part, ShardedOrder
from raychains.data.prepared.processes import decoders
from raychains.data.prepared.rows import Rows

Array = np.ndarray[Any, Any]


class Streaming:
    """Batches of a prepared split, cut ahead by decoders that start with the first of them.

    Args:
        uri: where the set lies.
        manifest: its own.
        split: whose pictures.
        size: pixels of a side.
        window: W, row groups that are mixed.
    """

    def __init__(self, uri: str, manifest: Manifest, split: str, size: int, window: int) -> None:
        self.rows = Rows(uri, manifest, split)
        self._uri, self._split, self._size, self._window = uri, split, size, window
        self._device = torch.device("cpu")
        self._feed: Feed | None = None
        self._batch_size = 0
        self._share = (0, 1, 1)
        self._carry: Carry | None = None
        self._epoch: Iterator[tuple[Array, Array]] | None = None
        self._next: tuple[int, int] = (-1, -1)
        """(seed, step) of what the feed gives next."""
        self._now: tuple[tuple[int, int], Tensor, Tensor] | None = None
        """The batch that was asked for last: parts of it and repetitions come from here."""

    def __len__(self) -> int:
        return len(self.rows)

    def order(self, seed: int, batch_size: int) -> ShardedOrder:
        """An epoch's batches."""
        if batch_size != self._batch_size:
            self.close()
            self._batch_size = batch_size
        return ShardedOrder(self.rows.split.rows, batch_size, seed, self._window)

    def share(self, first: int, last: int, parts: int) -> None:
        """Cut only the pieces [first, last) of ``parts`` of every batch from now on."""
        self.close()
        self._share = (first, last, parts)

    def carried(self, carry: Carry | None) -> None:
        """Take batches from what ``carry`` makes from now on; None: from processes beside this one."""
        self.close()
        self._carry = carry

    def to(self, device: torch.device) -> None:
        """Give batches on ``device`` from now on."""
        self._device, self._now = device, None

    def batch(self, part: Part) -> tuple[Tensor, Tensor]:
        """Pictures uint8 [part, 3, size, size] (in memory [part, size, size, 3]) and labels int64 [part] on the device.

        Raises:
            DecodingFailed: a picture is damaged, or a decoder's process ended.
            StorageAway: the pictures could not be reached for long.
        """
        key = (part.seed, part.step)
        if self._now is None or self._now[0] != key:
            self._now = None
            pixels, labels = self._cut(key)
            self._now = key, *self._moved(pixels, labels)
        _, images, targets = self._now
        begin = part.start - self._begin(key[1])
        if begin < 0 or begin + len(part) > len(targets):  # of a batch with fewer pictures than pieces
            return self._moved(*self._inline(part))
        chosen = slice(begin, begin + len(part))
        return images[chosen], targets[chosen]

    def _begin(self, step: int) -> int:
        """Where in the batch of this step the share begins."""
        length = min(self._batch_size, len(self) - step * self._batch_size)
        return length * self._share[0] // self._share[2]

    def _moved(self, pixels: Array, labels: Array) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        moved = images.clone() if self._device.type == "cpu" else images.to(self._device)
        return moved, torch.from_numpy(labels).to(self._device)

    def _inline(self, part: Part) -> tuple[Array, Array]:
        """Cut here."""
        groups = self.rows.groups_of(part.indices)
        cut = [
            augmented(self.rows.read(int(g))[int(i - self.rows.first[g])], self._size, part.seed, int(i))
            for g, i in zip(groups, part.indices, strict=True)
        ]
        return np.stack(cut), self.rows.labels[part.indices]

    def _cut(self, key: tuple[int, int]) -> tuple[Array, Array]:
        if self._feed is None:
            first, last, parts = self._share
            cutting = Cutting(
                uri=self._uri, split=self._split, size=self._size, batch_size=self._batch_size, window=self._window,
                first=first, last=last, parts=parts,
            )  # fmt: skip
            self._feed = Feed(cutting, self.rows, decoders=decoders(), carry=self._carry)
            self._finalizer = weakref.finalize(self, self._feed.close)
        if self._epoch is None or key != self._next:  # another epoch, or the chain jumped
            if self._epoch is not None:
                self._epoch.close()  # type: ignore[attr-defined]
            self._epoch = self._feed.epoch(key[0], start=key[1])
        pixels, labels = next(self._epoch)
        self._next = (key[0], key[1] + 1)
        return pixels, labels

    def close(self) -> None:
        """End the decoders; a later batch starts new ones."""
        if self._feed is not None:
            self._finalizer()
        self._feed = self._epoch = self._now = None


class Central:
    """Central crops of a prepared split by place, decoded when they are asked for: memory holds what was asked for.

    Args:
        rows: the split's.
        size: pixels of a side.
        threads: that decode.
    """

    def __init__(self, rows: Rows, size: int, threads: int = 2) -> None:
        self._rows, self._size, self._threads = rows, size, threads

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, places: slice) -> Tensor:
        """Pictures uint8 [n, 3, size, size] of contiguous places."""
        start, stop, _ = places.indices(len(self))
        groups: Sequence[int] = ()
        if stop > start:
            low, high = self._rows.groups_of(np.array([start, stop - 1]))
            groups = range(int(low), int(high) + 1)
        jpegs = [j for g in groups for j in self._rows.read(g)]
        first = int(self._rows.first[groups[0]]) if groups else 0
        wanted = jpegs[start - first : stop - first]
        with ThreadPoolExecutor(self._threads) as pool:  # Pillow decodes without the interpreter's lock
            cut = list(pool.map(lambda j: central(j, self._size), wanted))
        pixels = np.stack(cut) if cut else np.zeros((0, self._size, self._size, 3), dtype=np.uint8)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)
