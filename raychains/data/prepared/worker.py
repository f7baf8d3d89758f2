"""A decoder's process: it reads row groups, each once while its window lasts, and cuts its share of every batch's
pictures.

The row groups of a window are dealt out in shares, so that each is read by one decoder of several; which one cuts a
picture changes nothing of it. Commands are lines on standard input: a JSON object with the set and the decoder's
number; then ``epoch SEED`` and ``cut STEP SLOT``. Answers on standard output are ``ready``, ``done STEP``, ``failed
STEP: why``, or ``away STEP: why`` where the storage is. Pixels go into a file that both processes map. The process ends
with its input, so that none outlives the process that started it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import numpy as np

from raychains.core.errors import StorageAway
from raychains.data.prepared.feed import Cutting
from raychains.data.prepared.manifest import Rows, manifest_at
from raychains.data.prepared.order import Array, Part, ShardedOrder
from raychains.data.prepared.pictures import augmented


class Decoder:
    """Cuts pictures, and keeps the bytes of row groups as long as their window lasts."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kept: dict[int, list[memoryview]] = {}
        self._seed: int | None = None
        self.reads = 0
        """Row groups read so far."""

    def fill(self, order: ShardedOrder, part: Part, share: int, shares: int, out: Array) -> None:
        """Cut the pictures of ``part`` whose row groups fall to ``share`` into their places of ``out`` uint8 [images,
        size, size, 3].

        Raises:
            OSError: a picture or its storage is damaged.
        """
        self._forget(order, part.step)
        groups = self._rows.groups_of(part.indices)
        for at in np.flatnonzero(order.epoch.place[groups] % shares == share):
            group, index = int(groups[at]), int(part.indices[at])
            if group not in self._kept:
                self._kept[group] = self._rows.read(group)
                self.reads += 1
            jpeg = self._kept[group][index - int(self._rows.first[group])]
            out[at] = augmented(jpeg, out.shape[1], part.seed, index)

    def _forget(self, order: ShardedOrder, step: int) -> None:
        """Drop row groups of windows, or of an epoch, that are over."""
        place = order.epoch.place
        if self._seed != order.seed:
            self._kept, self._seed = {}, order.seed
            return
        first = step * order.batch_size
        now = int(place[self._rows.groups_of(order.epoch.indices[first : first + 1])[0]]) // order.window
        self._kept = {g: jpegs for g, jpegs in self._kept.items() if place[g] // order.window >= now}


def serve(lines: Iterable[str], out: TextIO) -> None:
    """Answer every line until there are no more."""
    commands = iter(lines)
    about: dict[str, Any] = json.loads(next(commands))
    cutting = Cutting(**about["cutting"])
    rows = Rows(cutting.uri, manifest_at(cutting.uri), cutting.split)
    pixels, decoder = cutting.pixels(about["file"]), Decoder(rows)
    order: ShardedOrder | None = None
    print("ready", file=out, flush=True)
    for line in commands:
        command, *numbers = line.split()
        if command == "epoch":
            order = cutting.order(rows, int(numbers[0]))
            continue
        assert order is not None
        step, slot = int(numbers[0]), int(numbers[1])
        part = cutting.of(order[step])
        try:
            decoder.fill(order, part, about["number"], about["decoders"], pixels[slot, : len(part)])
            print(f"done {step}", file=out, flush=True)
        except (OSError, ValueError, StorageAway) as error:
            how = "away" if isinstance(error, StorageAway) else "failed"
            print(f"{how} {step}: {' '.join(str(error).split())}", file=out, flush=True)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
