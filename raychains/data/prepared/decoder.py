"""One decoder of several: reads the row groups that are its own and cuts their pictures for every batch.

The row groups of a window are dealt out among the decoders, so that each is read once, by one of them, and stays in memory
while the window lasts. Which decoder cuts a picture changes nothing of it.
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


class Decoder:
    """Cuts the pictures of its own row groups.

    Args:
        rows: of the split.
        size: pixels of a cut picture's side.
        number: which of the decoders this is.
        decoders: how many there are.
        cut: how a picture is cut.
    """

    def __init__(self, rows: Rows, size: int, number: int, decoders: int, cut: Cut = augmented) -> None:
        self._rows, self._size, self._number, self._decoders, self._cut = rows, size, number, decoders, cut
        self._kept: dict[int, list[memoryview]] = {}
        self._seed: int | None = None
        self.reads = 0
        """Row groups read so far."""

    def fill(self, order: ShardedOrder, part: Part, out: Array) -> int:
        """Cut this decoder's pictures of ``part`` into their places of ``out`` uint8 [images, size, size, 3].

        Args:
            order: the epoch's; its parts come in their order.
            part: of one of its batches.
            out: where the pictures go.

        Returns:
            How many there were.

        Raises:
            OSError: a picture or its storage is damaged.
        """
        groups = self._rows.groups_of(part.indices)
        place = order.epoch.place
        self._forget(order, groups)
        mine = np.flatnonzero(place[groups] % self._decoders == self._number)
        for at in mine:
            group, index = int(groups[at]), int(part.indices[at])
            if group not in self._kept:
                self._kept[group] = self._rows.read(group)
                self.reads += 1
            jpeg = self._kept[group][index - int(self._rows.first[group])]
            out[at] = self._cut(jpeg, self._size, part.seed, index)
        return len(mine)

    def _forget(self, order: ShardedOrder, groups: Array) -> None:
        """Row groups of windows, or of an epoch, that are over."""
        place = order.epoch.place
        if self._seed != order.seed:
            self._kept, self._seed = {}, order.seed
        elif len(groups):
            now = int(place[groups].min()) // order.window
            self._kept = {g: jpegs for g, jpegs in self._kept.items() if place[g] // order.window >= now}
