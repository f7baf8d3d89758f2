"""A decoder's process: told by lines on standard input what to cut, it says on standard output what is done.

Lines in: a JSON object with the set and the decoder's number; then ``epoch SEED`` and ``cut STEP SLOT``. Lines out:
``ready``, ``done STEP``, ``failed STEP: why``, or ``away STEP: why`` where the storage is. Pixels go into a file that both processes map. It ends with its input,
so none outlives the process that started it.
"""

from __future__ import annotations

import json
import mmap
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import numpy as np

from raychains.data.prepared.decoder import Decoder
from raychains.data.prepared.order import ShardedOrder
from raychains.data.prepared.rows import Rows, manifest_at
from raychains.errors import StorageAway


def serve(lines: Iterable[str], out: TextIO) -> None:
    """Answer every line until there are no more."""
    told = iter(lines)
    about: dict[str, Any] = json.loads(next(told))
    rows = Rows(about["uri"], manifest_at(about["uri"]), about["split"])
    shape = (about["slots"], about["part"], about["size"], about["size"], 3)
    pixels = np.frombuffer(mmap.mmap(about["file"], int(np.prod(shape))), dtype=np.uint8).reshape(shape)
    decoder = Decoder(rows)
    order: ShardedOrder | None = None
    print("ready", file=out, flush=True)
    for line in told:
        command, *numbers = line.split()
        if command == "epoch":
            order = ShardedOrder(rows.split.rows, about["batch_size"], int(numbers[0]), about["window"])
            continue
        assert order is not None
        step, slot = int(numbers[0]), int(numbers[1])
        part = order[step].slice(about["first"], about["parts"], about["last"])
        try:
            decoder.fill(order, part, about["number"], about["decoders"], pixels[slot, : len(part)])
            print(f"done {step}", file=out, flush=True)
        except (OSError, ValueError, StorageAway) as error:
            how = "away" if isinstance(error, StorageAway) else "failed"
            print(f"{how} {step}: {' '.join(str(error).split())}", file=out, flush=True)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
