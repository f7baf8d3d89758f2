"""One root folder on any `pyarrow.fs` filesystem, and the one function that publishes a file.

A local path, or a URI: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``hdfs://host:port/path``, ``file:///path``. S3
takes its credentials from where every AWS tool does (``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``,
``~/.aws/credentials``, the machine's role), which every node of a cluster must have; what is given inside a URI would be
stored and logged. Another S3-compatible server:
``s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1``.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import fs

from raychains.errors import UserError
from raychains.retry import KeepTrying, Patience, Retrying
from raychains.store import address, local, names

T = TypeVar("T")


LOOKS = 20
"""Times a folder is listed anew because it changed in the middle."""


class Root:
    """A folder given as a local path or as any URI that `pyarrow.fs` knows (``s3://bucket/prefix``, …).

    Names are '/'-separated and relative to the root. Every call is repeated while it fails with an error that passes by
    itself (the network, the server, a device's hiccup), for about a minute unless the caller decides otherwise.

    Args:
        uri: where.
        filesystem: a pyarrow filesystem to use instead of the one that ``uri`` names.
        patience: how long calls are repeated.

    Raises:
        UserError: the path is a file, or the URI's filesystem is unknown; of every method: a name that is none.
        StorageAway: of every method too: the storage could not be reached for all that time.
    """

    def __init__(
        self, uri: str | os.PathLike[str], filesystem: fs.FileSystem | None = None, *, patience: Patience | None = None
    ) -> None:
        self._retrying = Retrying(patience)
        self._keep_trying: KeepTrying | None = None
        where = self._retrying.call("opened", "the store", lambda: address.locate(uri, filesystem))
        self._fs, self._base, self.uri = where.filesystem, where.base, where.uri
        self._shown, self._query = where.shown, where.query
        self._local = self._fs.type_name == "local"
        self._flat = self._fs.type_name in address.FLAT
        for path in _with_parents(self._base) if self._local else (self._base,):
            if self._info(path).type is fs.FileType.File:
                raise UserError(f"store must be a folder, got {self._shown!r}: {path} is a file")

    def waiting(self, keep_trying: KeepTrying | None) -> Root:
        """The same root, whose calls ask ``keep_trying`` as `publish` does; None leaves it as it is."""
        if keep_trying is None:
            return self
        other = copy.copy(self)
        other._keep_trying = keep_trying
        return other

    @property
    def exclusive(self) -> bool:
        """Whether `create` has one winner whatever the timing."""
        return self._local

    def location(self, name: str = "") -> str:
        """Where a name lies, for people: without the passwords that a URI may hold."""
        return f"{self._shown}/{name}".rstrip("/") + self._query

    def publish(self, name: str, data: bytes, *, keep_trying: KeepTrying | None = None) -> None:
        """Make ``data`` durable under ``name``, whole or not at all.

        Locally a temporary name, fsync, rename and fsync of the folder; on an object store one upload. The bytes are
        complete in memory before anything is opened, because an exception inside an output stream publishes a part.

        Args:
            keep_trying: asked before every wait for a storage that is away, with the reason in one line; False gives up.
                Without it about a minute is spent.

        Raises:
            StorageFull: no room; at once.
            StorageAway: given up.
        """
        path = self._path(name)
        try:
            self._repeat("written", name, lambda: self._write(path, data), keep_trying)
        except BaseException:
            if not self._local:
                self._remove_part(path, data)
            raise

    def create(self, name: str, data: bytes, *, keep_trying: KeepTrying | None = None) -> bool:
        """Publish ``data`` unless the name is taken; whether it was free. See `exclusive`."""
        path = self._path(name)
        if self._local:
            return self._repeat("written", name, lambda: local.create(Path(path), data), keep_trying)
        if self.exists(name):
            return False
        self.publish(name, data, keep_trying=keep_trying)
        return True

    def _write(self, path: str, data: bytes) -> None:
        if self._local:
            local.write(Path(path), data)
            return
        if not self._flat:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(path) as out:
            out.write(data)
        stored = self._fs.get_file_info(path)
        if stored.type is fs.FileType.File and stored.size not in (None, len(data)):
            raise ConnectionError(f"{stored.size} of {len(data)} bytes arrived")

    def _remove_part(self, path: str, data: bytes) -> None:
        """Delete what a failed upload left; what lay there before, and a whole upload, stay."""
        with contextlib.suppress(OSError), self._fs.open_input_file(path) as f:
            there = f.read()
            if len(there) < len(data) and data.startswith(there):
                self._fs.delete_file(path)

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        return self._repeat("read", name, lambda: self._read(self._path(name), 0, None))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start`` on (fewer at the end of the file)."""
        return self._repeat("read", name, lambda: self._read(self._path(name), start, length))

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        with self._fs.open_input_file(path) as f:
            f.seek(min(start, f.size()))  # some filesystems refuse to go further
            data: bytes = f.read(length)
        if not self._local and (length is None or len(data) < length):
            self._check_length(path, start, length, len(data))
        return data

    def _check_length(self, path: str, start: int, length: int | None, got: int) -> None:
        """A server's answer that breaks off within its headers is taken for that of a shorter file, without an error."""
        size = self._fs.get_file_info(path).size
        if size is not None:  # else it was deleted since
            there = max(0, size - start)
            if got != (there if length is None else min(length, there)):
                raise ConnectionError(f"{got} bytes arrived of a file of {size}")

    def size(self, name: str) -> int:
        """Bytes of a file; 0 without one."""
        path = self._path(name)
        return self._info(path).size or self._info(path).size or 0  # twice: see _check_length

    def exists(self, name: str) -> bool:
        """Whether a file of this name exists."""
        return bool(self._info(self._path(name)).type is fs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder, temporary ones left out; empty when there is no folder."""
        return sorted(i.base_name for i in self._list(self._path(folder)))

    def top(self) -> list[str]:
        """Sorted names in the root itself, temporary ones left out."""
        return sorted(i.base_name for i in self._list(self._base))

    def modified(self, folder: str) -> dict[str, int]:
        """Files of a folder with the time of their last change by the storage's clock, nanoseconds; no temporary ones."""
        return {i.base_name: i.mtime_ns or 0 for i in self._list(self._path(folder)) if i.type is fs.FileType.File}

    def below(self, folder: str) -> dict[str, tuple[int, int]]:
        """Files below a folder, however deep, by their names in it: bytes, and time of the last change as `modified`'s.

        One listing on an object store, whatever it holds; temporary files are left out.
        """
        start = len(self._path(folder)) + 1
        return {
            i.path[start:]: (i.size or 0, i.mtime_ns or 0)
            for i in self._list(self._path(folder), recursive=True)
            if i.type is fs.FileType.File
        }

    def delete(self, name: str) -> None:
        """Remove a file; none there is fine."""

        def attempt() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._path(name))

        self._repeat("deleted", name, attempt)

    def _path(self, name: str) -> str:
        return f"{self._base.rstrip('/')}/{names.check(name)}"

    def _info(self, path: str) -> Any:
        return self._retrying.call("read", self._shown, lambda: self._fs.get_file_info(path), self._keep_trying)

    def _list(self, path: str, *, recursive: bool = False) -> list[Any]:
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)

        def listed() -> list[Any]:
            for _ in range(LOOKS):  # a folder that is made, or a file that is renamed, meanwhile is an error to pyarrow
                with contextlib.suppress(FileNotFoundError):
                    return self._fs.get_file_info(selector)
            return self._fs.get_file_info(selector)

        def attempt() -> list[Any]:
            found = listed()
            if not found and not self._local:  # as an answer that broke off says, too
                found = self._fs.get_file_info(selector)
            return found

        found = self._repeat("listed", path.removeprefix(self._base).lstrip("/"), attempt)
        return [i for i in found if not i.base_name.startswith(".")]

    def _repeat(self, verb: str, name: str, attempt: Callable[[], T], keep_trying: KeepTrying | None = None) -> T:
        return self._retrying.call(verb, f"{self._shown}/{name}", attempt, keep_trying or self._keep_trying)


def _with_parents(path: str) -> tuple[str, ...]:
    return (path, *(str(p) for p in Path(path).parents))
