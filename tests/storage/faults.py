"""pyarrow filesystems over a local folder that fill up, stumble, or list files late."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import fs


class Faulty(fs.FileSystemHandler):
    """Passes everything on to a local filesystem, but for the faults that are set. Paths are that filesystem's.

    Attributes:
        room: bytes that can still be written before ENOSPC; None for a disk without end.
        stumbles: how often each operation fails with EIO before it works again.
        unlisted_for: seconds for which a new file is not listed, though it can be opened by its name.
        clock: the time that listings go by.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = fs.LocalFileSystem()
        self.clock = clock
        self.room: int | None = None
        self.stumbles: dict[str, int] = {}
        self.error = errno.EIO
        self.unlisted_for = 0.0
        self.calls: list[str] = []
        self._written: dict[str, float] = {}

    def _stumble(self, operation: str) -> None:
        self.calls.append(operation)
        if self.stumbles.get(operation, 0) > 0:
            self.stumbles[operation] -= 1
            raise OSError(self.error, os.strerror(self.error))

    def get_type_name(self) -> str:
        return "faulty"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        self._stumble("info")
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        self._stumble("list")
        now = self.clock()
        found = self._inner.get_file_info(selector)
        return [i for i in found if now - self._written.get(i.path, float("-inf")) >= self.unlisted_for]

    def open_input_file(self, path: str) -> pa.PythonFile:
        self._stumble("read")
        return pa.PythonFile(self._inner.open_input_file(path), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        self._stumble("read")
        return pa.PythonFile(self._inner.open_input_stream(path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        self._stumble("open")
        stream = self._inner.open_output_stream(path)
        self._written.setdefault(path, self.clock())
        return pa.PythonFile(_Output(self, stream), mode="w")

    def create_dir(self, path: str, recursive: bool) -> None:
        self._stumble("mkdir")
        self._inner.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self._stumble("delete")
        self._inner.delete_file(path)

    def _never(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the store appends to, moves and copies nothing and deletes no folder")

    open_append_stream = delete_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = _never


class _Output:
    """Writes in pieces, so that a fault leaves a part behind, as a full disk does."""

    def __init__(self, owner: Faulty, stream: Any) -> None:
        self._owner, self._stream = owner, stream
        self.closed = False

    def write(self, data: Any) -> int:
        data = bytes(data)
        half = len(data) // 2
        if self._owner.room is not None:
            part = data[: self._owner.room]
            self._stream.write(part)
            self._owner.room -= len(part)
            if len(part) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return len(data)
        self._stream.write(data[:half])
        self._owner._stumble("write")
        self._stream.write(data[half:])
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


def faulty(clock: Callable[[], float] = time.monotonic) -> tuple[Faulty, fs.PyFileSystem]:
    """The handler, whose faults can be set, and the filesystem to give to `Storage`."""
    handler = Faulty(clock)
    return handler, fs.PyFileSystem(handler)
