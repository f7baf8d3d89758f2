"""Decoder processes beside the one that learns: they write pictures into memory that all of them map."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections import deque
from typing import Any

import numpy as np

from raychains.data.prepared.carrier import Cutting, DecoderGone, DecodingFailed
from raychains.data.prepared.order import ShardedOrder
from raychains.errors import StorageAway, require

Array = np.ndarray[Any, Any]
DECODERS = "RAYCHAINS_DECODERS"
"""The variable that says how many processes cut pictures beside a chain."""


def decoders() -> int:
    """Decoder processes of a chain: `DECODERS`, else as many as it has cores.

    Raises:
        UserError: the variable holds no positive integer.
    """
    said = (
        os.environ.get(DECODERS) or os.environ.get("OMP_NUM_THREADS") or "1"
    )  # Ray sets the latter to an actor's cores
    require(said.isdigit() and int(said) >= 1, DECODERS, said, "be an integer of at least 1")
    return int(said)


class Processes:
    """Carries batches from processes of this machine, each of which cuts its share of every batch.

    Args:
        cutting: what is cut.
        decoders: processes.
        ahead: batches that may be asked for and not taken yet, each of which takes memory for its pixels.

    Raises:
        UserError: numbers out of range.
    """

    def __init__(self, cutting: Cutting, *, decoders: int = 1, ahead: int = 4) -> None:
        require(decoders >= 1, "decoders", decoders, "be at least 1")
        slots = ahead + 1  # one is being learned from
        part = -(-cutting.batch_size * (cutting.last - cutting.first) // cutting.parts)
        shape = (slots, part, cutting.size, cutting.size, 3)
        size = int(np.prod(shape))
        self._file = _shared_file(size)
        self._pixels = np.frombuffer(mmap.mmap(self._file, size), dtype=np.uint8).reshape(shape)
        self._free, self._slot_of, self._taken = deque(range(slots)), dict[int, int](), -1
        about = {**vars(cutting), "slots": slots, "part": part, "decoders": decoders, "file": self._file}
        self._decoders = [_Process({**about, "number": n}, self._file) for n in range(decoders)]
        for decoder in self._decoders:
            decoder.expect("ready")

    def begin(self, order: ShardedOrder) -> None:
        """An epoch."""
        self._tell(f"epoch {order.seed}")

    def ask(self, step: int) -> None:
        """Let every process cut its share."""
        self._done_with()
        slot = self._slot_of[step] = self._free.popleft()
        self._tell(f"cut {step} {slot}")

    def take(self, step: int) -> Array:
        """Wait for all of them.

        Raises:
            DecodingFailed: what one of them says.
            DecoderGone: its end.
            StorageAway: the pictures could not be reached for long.
        """
        self._done_with()
        for decoder in self._decoders:
            decoder.expect(f"done {step}")
        self._taken = self._slot_of.pop(step)
        return self._pixels[self._taken]

    def drop(self, step: int) -> None:
        """Read the answers."""
        for decoder in self._decoders:
            decoder.skip()
        self._free.append(self._slot_of.pop(step))

    def _done_with(self) -> None:
        if self._taken >= 0:
            self._free.append(self._taken)
            self._taken = -1

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
    """One decoder's process and the lines between us."""

    def __init__(self, about: dict[str, Any], file: int) -> None:
        self._number = about["number"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raychains.data.prepared.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(file,), text=True, env=environment,
        )  # fmt: skip
        self.tell(json.dumps(about))

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            print(line, file=self._process.stdin, flush=True)
        except OSError:
            raise self._ended() from None

    def expect(self, line: str) -> None:
        """Wait for this very line."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().rstrip("\n")
        if not said:
            raise self._ended()
        if said.startswith("away "):
            raise StorageAway(said.partition(": ")[2])
        if said != line:
            raise DecodingFailed(f"decoder {self._number}: {said}")

    def skip(self) -> None:
        """Read an answer that nobody wants any more, whatever it is."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def _ended(self) -> DecoderGone:
        status = self._process.wait()
        return DecoderGone(f"decoder {self._number}: its process ended with status {status}")

    def end(self) -> None:
        """At once: it holds nothing that is not in the set."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # lines that it did not take
                pipe.close()


def _shared_file(size: int) -> int:
    """The descriptor of a nameless file of ``size`` bytes in memory where there is such a thing."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("raychains-pixels")  # a container's small /dev/shm does not bound it
    else:
        with tempfile.TemporaryFile() as f:
            file = os.dup(f.fileno())
    os.ftruncate(file, size)
    return file
