"""A decoder: reads row groups, each once while its window lasts, and cuts the pictures of its share of every batch.

The row groups of a window are dealt out in shares, so that each is read by one decoder of several. Which one cuts a
picture changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raychains.data.prepared.decode import augmented
from raychains.data.prepared.order import Part, ShardedOrder
from raychains.data.prepared.rows import Rows

Array = np.ndarray[Any, Any]
Cut = Callable[[Any, int, int, int], Array]
"""(JPEG bytes, size, seed, index) → uint8 [size, size, 3]."""


def share_of(rows: Rows, order: ShardedOrder, part: Part, shares: int) -> Array:
    """Which of ``shares`` the row group of each picture of ``part`` belongs to, int64 [images]."""
    found: Array = order.epoch.place[rows.groups_of(part.indices)] % shares
    return found


class Decoder:
    """Cuts pictures, and keeps the bytes of row groups as long as their window lasts.

    Args:
        rows: of the split.
        cut: how a picture is cut.
        behind: batches that a part may lie behind those before it, of an epoch that several ranks ask for.
    """

    def __init__(self, rows: Rows, cut: Cut = augmented, behind: int = 0) -> None:
        self._rows, self._cut, self._behind = rows, cut, behind
        self._kept: dict[int, list[memoryview]] = {}
        self._seed: int | None = None
        self.reads = 0
        """Row groups read so far."""

    def fill(self, order: ShardedOrder, part: Part, share: int, shares: int, out: Array) -> int:
        """Cut a share's pictures of ``part`` into their places of ``out`` uint8 [images, size, size, 3].

        Args:
                order: the epoch's; its parts come in their order, but for ``behind``.
            part: of one of its batches.
            share: which row groups.
            shares: how many shares there are.
            out: where the pictures go.

        Returns:
            How many there were.

        Raises:
            OSError: a picture or its storage is damaged.
        """
        self._forget(order, part.step)
        mine = np.flatnonzero(share_of(self._rows, order, part, shares) == share)
        for at in mine:
            out[at] = self._one(part, int(at), out.shape[1])
        return len(mine)

    def piece(self, order: ShardedOrder, part: Part, share: int, shares: int, size: int) -> Array:
        """The same pictures by themselves, uint8 [n, size, size, 3], in the order of their places."""
        self._forget(order, part.step)
        mine = np.flatnonzero(share_of(self._rows, order, part, shares) == share)
        out = np.empty((len(mine), size, size, 3), dtype=np.uint8)
        for at, place in enumerate(mine):
            out[at] = self._one(part, int(place), size)
        return out

    def _one(self, part: Part, at: int, size: int) -> Array:
        index = int(part.indices[at])
        group = int(self._rows.groups_of(part.indices[at : at + 1])[0])
        if group not in self._kept:
            self._kept[group] = self._rows.read(group)
            self.reads += 1
        return self._cut(self._kept[group][index - int(self._rows.first[group])], size, part.seed, index)

    def _forget(self, order: ShardedOrder, step: int) -> None:
        """Row groups of windows, or of an epoch, that are over."""
        place = order.epoch.place
        if self._seed != order.seed:
            self._kept, self._seed = {}, order.seed
            return
        first = max(0, step - self._behind) * order.batch_size
        now = int(place[self._rows.groups_of(order.epoch.indices[first : first + 1])[0]]) // order.window
        self._kept = {g: jpegs for g, jpegs in self._kept.items() if place[g] // order.window >= now}
