"""A prepared split as a chain and evaluations read it: cut pictures of the next batch, and central crops by place."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core import gpus
from raychains.data.prepared.feed import Cutting, Feed, decoders
from raychains.data.prepared.manifest import Manifest, Rows
from raychains.data.prepared.order import Array, Part, ShardedOrder
from raychains.data.prepared.pictures import augmented, central

THREADS = 2
"""Threads that decode central crops."""


class Streaming:
    """Batches of a prepared split, cut ahead by decoders that start with the first of them.

    ``size`` is in pixels of a side, ``window`` W, the row groups that are mixed.
    """

    def __init__(self, uri: str, manifest: Manifest, split: str, size: int, window: int) -> None:
        self.rows = Rows(uri, manifest, split)
        self._uri, self._split, self._size, self._window = uri, split, size, window
        self._device = torch.device("cpu")
        self._feed: Feed | None = None
        self._batch_size = 0
        self._share = (0, 1, 1)
        self._epoch: Iterator[tuple[Array, Array]] | None = None
        self._next: tuple[int, int] = (-1, -1)
        """(seed, step) of what the feed gives next."""
        self._now: tuple[tuple[int, int], Tensor, Tensor] | None = None
        """The batch that was asked for last: parts of it and repetitions come from here."""

    def __len__(self) -> int:
        return len(self.rows)

    def order(self, seed: int, batch_size: int) -> ShardedOrder:
        """Return an epoch's batches."""
        if batch_size != self._batch_size:
            self.close()
            self._batch_size = batch_size
        return self._cutting().order(self.rows, seed)

    def share(self, first: int, last: int, parts: int) -> None:
        """Cut only the pieces [first, last) of ``parts`` of every batch from now on."""
        self.close()
        self._share = (first, last, parts)

    def to(self, device: torch.device) -> None:
        """Give batches on ``device`` from now on."""
        self._device, self._now = device, None

    def batch(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return pictures uint8 [part, 3, size, size] (in memory [part, size, size, 3]) and labels int64 [part] on the
        device.

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
        """Return where in the batch of this step the share begins."""
        length = min(self._batch_size, len(self) - step * self._batch_size)
        return length * self._share[0] // self._share[2]

    def _moved(self, pixels: Array, labels: Array) -> tuple[Tensor, Tensor]:
        """Return copies on the device: decoders overwrite ``pixels``."""
        images, targets = torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels)
        if not gpus.is_gpu(self._device):
            return images.clone(), targets
        moved, labelled = (gpus.pinned(t).to(self._device, non_blocking=True) for t in (images, targets))
        return moved, labelled

    def _inline(self, part: Part) -> tuple[Array, Array]:
        """Cut the pictures in this process."""
        groups = self.rows.groups_of(part.indices)
        cut = [
            augmented(self.rows.read(int(g))[int(i - self.rows.first[g])], self._size, part.seed, int(i))
            for g, i in zip(groups, part.indices, strict=True)
        ]
        return np.stack(cut), self.rows.labels[part.indices]

    def _cutting(self) -> Cutting:
        first, last, parts = self._share
        place: dict[str, Any] = {"uri": self._uri, "split": self._split, "size": self._size, "window": self._window}
        return Cutting(**place, batch_size=self._batch_size, first=first, last=last, parts=parts)

    def _cut(self, key: tuple[int, int]) -> tuple[Array, Array]:
        if self._feed is None:
            self._feed = Feed(self._cutting(), self.rows, decoders=decoders())
            self._finalizer = weakref.finalize(self, self._feed.close)
        if self._epoch is None or key != self._next:  # another epoch, or the chain jumped
            if self._epoch is not None:
                self._epoch.close()  # type: ignore[attr-defined]
            self._epoch = self._feed.epoch(key[0], start=key[1])
        try:
            pixels, labels = next(self._epoch)
        except BaseException:  # the next chain of this process gets decoders of its own
            self.close()
            raise
        self._next = (key[0], key[1] + 1)
        return pixels, labels

    def close(self) -> None:
        """End the decoders; a later batch starts new ones."""
        if self._feed is not None:
            self._finalizer()
        self._feed = self._epoch = self._now = None


class Central:
    """Central crops of a prepared split by place, decoded when they are asked for: memory holds what was asked for."""

    def __init__(self, rows: Rows, size: int) -> None:
        self._rows, self._size = rows, size

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, places: slice) -> Tensor:
        """Return pictures uint8 [n, 3, size, size] of contiguous places."""
        start, stop, _ = places.indices(len(self))
        groups: Sequence[int] = ()
        if stop > start:
            low, high = self._rows.groups_of(np.array([start, stop - 1]))
            groups = range(int(low), int(high) + 1)
        try:
            jpegs = [j for g in groups for j in self._rows.read(g)]
            first = int(self._rows.first[groups[0]]) if groups else 0
            chosen = jpegs[start - first : stop - first]
            with ThreadPoolExecutor(THREADS) as pool:  # Pillow decodes without the interpreter's lock
                cut = list(pool.map(lambda j: central(j, self._size), chosen))
        except OSError as error:
            raise self._rows.unreadable(error) from None
        pixels = np.stack(cut) if cut else np.zeros((0, self._size, self._size, 3), dtype=np.uint8)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)
