"""Batches of cut pictures, made ahead by decoder processes that write into memory which all of them map."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.core.errors import RaychainsError, StorageAway, require
from raychains.data.prepared.manifest import Rows
from raychains.data.prepared.order import Array, Part, ShardedOrder

DECODERS = "RAYCHAINS_DECODERS"
"""The variable with the number of processes that cut pictures beside a chain."""
AHEAD = 4
"""Batches that are made while one is learned from."""


def decoders() -> int:
    """Return the decoder processes of a chain: `DECODERS`, else as many as it has cores.

    Raises:
        UserError: the variable holds no positive integer.
    """
    # Ray sets OMP_NUM_THREADS to an actor's cores.
    text = os.environ.get(DECODERS) or os.environ.get("OMP_NUM_THREADS") or "1"
    require(text.isdigit() and int(text) >= 1, DECODERS, text, "be an integer of at least 1")
    return int(text)


class DecodingFailed(RaychainsError):
    """A picture or a decoder failed; the text says which."""


class DecoderGone(DecodingFailed):
    """A decoder's process ended: memory ran out, or it was killed. The pictures are intact."""


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """The pictures to cut: whole batches, or one rank's share of each."""

    uri: str
    split: str
    size: int
    """Pixels of a side."""
    batch_size: int
    """Size of the global batch."""
    window: int
    """W: row groups that are mixed."""
    first: int = 0
    last: int = 1
    parts: int = 1
    """Pieces [first, last) of each batch, and the number of its pieces: see `Part.slice`."""
    slots: int = AHEAD + 1
    """Batches in memory: one is being learned from."""

    def order(self, rows: Rows, seed: int) -> ShardedOrder:
        """Return an epoch's batches."""
        return ShardedOrder(rows.split.rows, self.batch_size, seed, self.window)

    def of(self, part: Part) -> Part:
        """Return what is cut of a batch."""
        return part.slice(self.first, self.parts, self.last)

    def pixels(self, file: int) -> Array:
        """Return the memory of a shared file, uint8 [slots, part, size, size, 3]; a new file is made as long as it
        needs."""
        part = -(-self.batch_size * (self.last - self.first) // self.parts)
        shape = (self.slots, part, self.size, self.size, 3)
        if not os.fstat(file).st_size:
            os.ftruncate(file, math.prod(shape))
        return np.frombuffer(mmap.mmap(file, math.prod(shape)), dtype=np.uint8).reshape(shape)


class Feed:
    """An epoch's batches, or a share of each, in order, until `close`. Every decoder process cuts its share of every
    batch."""

    def __init__(self, cutting: Cutting, rows: Rows, *, decoders: int = 1) -> None:
        self._cutting, self._rows = cutting, rows
        self._file = _shared_file()
        self._pixels = cutting.pixels(self._file)
        self._free = deque(range(cutting.slots))
        about = {"cutting": vars(cutting), "decoders": decoders, "file": self._file}
        self._decoders = [_Process({**about, "number": n}, self._file) for n in range(decoders)]
        for decoder in self._decoders:
            decoder.expect("ready")

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield pixels uint8 [part, size, size, 3] and labels int64 [part] of every batch from the ``start``-th on.

        The pixels stay as they are until the next batch is asked for. One epoch at a time.

        Raises:
            DecodingFailed: a picture is damaged, or a decoder's process beside this one ended; the feed is closed then.
            StorageAway: the pictures could not be reached for long; it is closed then, too.
        """
        order = self._cutting.order(self._rows, seed)
        pending: deque[tuple[int, int]] = deque()
        """(step, slot) of the batches that are being made."""
        steps = iter(range(start, len(order)))
        try:
            self._tell(f"epoch {seed}")
            while True:
                while len(pending) < self._cutting.slots - 1 and (ahead := next(steps, None)) is not None:
                    pending.append((ahead, self._free.popleft()))
                    self._tell(f"cut {pending[-1][0]} {pending[-1][1]}")
                if not pending:
                    return
                step, slot = pending.popleft()
                for decoder in self._decoders:
                    decoder.expect(f"done {step}")
                part = self._cutting.of(order[step])
                try:
                    yield self._pixels[slot, : len(part)], self._rows.labels[part.indices]
                finally:
                    self._free.append(slot)
        except (DecodingFailed, StorageAway):
            self.close()
            pending.clear()
            raise
        finally:
            for _, slot in pending:  # an epoch that is left early: the next one must not meet its answers
                for decoder in self._decoders:
                    decoder.skip()
                self._free.append(slot)

    def _tell(self, line: str) -> None:
        for decoder in self._decoders:
            decoder.tell(line)

    def close(self) -> None:
        """End the processes and give the memory back."""
        for decoder in self._decoders:
            decoder.end()
        self._decoders = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Process:
    """One decoder's process and the lines that are exchanged with it."""

    def __init__(self, about: dict[str, Any], file: int) -> None:
        self._number = about["number"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "raychains.data.prepared.worker"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, pass_fds=(file,), env=environment, **pipes)
        self._in: Any = self._process.stdin
        self._out: Any = self._process.stdout
        self.tell(json.dumps(about))

    def tell(self, line: str) -> None:
        try:
            print(line, file=self._in, flush=True)
        except OSError:
            raise self._ended() from None

    def expect(self, line: str) -> None:
        """Wait for this very line."""
        answer = self._out.readline().rstrip("\n")
        if not answer:
            raise self._ended()
        if answer.startswith("away "):
            raise StorageAway(answer.partition(": ")[2])
        if answer != line:
            raise DecodingFailed(f"decoder {self._number}: {answer}")

    def skip(self) -> None:
        """Read an answer that is no longer needed, whatever it is."""
        self._out.readline()

    def _ended(self) -> DecoderGone:
        status = self._process.wait()
        return DecoderGone(f"decoder {self._number}: its process ended with status {status}")

    def end(self) -> None:
        """Kill the process, which holds nothing that is not in the set."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):  # lines that it did not take
                pipe.close()


def _shared_file() -> int:
    """Return the descriptor of a nameless file, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("raychains-pixels")  # a container's small /dev/shm does not bound it
    with tempfile.TemporaryFile() as f:
        return os.dup(f.fileno())
