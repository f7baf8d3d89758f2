"""One root folder on any `pyarrow.fs` filesystem, and the one function that publishes a file."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

from pyarrow import fs

from raychains.errors import UserError


class Root:
    """A folder given as a local path or as any URI that `pyarrow.fs` knows (``s3://bucket/prefix``, …).

    Names are '/'-separated and relative to the root.

    Raises:
        UserError: the path is a file, or the URI's filesystem is unknown.
    """

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        text = os.fspath(uri)
        if "://" in text:
            try:
                self._fs, base = fs.FileSystem.from_uri(text)
            except (ValueError, OSError) as error:
                raise UserError(
                    f"store must be a local path or a URI that pyarrow knows, got {text!r}: {_first_line(error)}"
                ) from None
            self.uri = text.rstrip("/")
        else:
            base = str(Path(text).expanduser().absolute())
            self._fs, self.uri = fs.LocalFileSystem(), base
        self._base = base.rstrip("/") or "/"
        self._local = self._fs.type_name == "local"
        self._flat = self._fs.type_name in ("s3", "gcs")  # no folders: creating one would leave an empty object
        if self._flat and self._base == "/":
            raise UserError(f"store must name a bucket, as in s3://bucket/prefix, got {text!r}")
        for path in _with_parents(self._base) if self._local else (self._base,):
            if self._fs.get_file_info(path).type is fs.FileType.File:
                raise UserError(f"store must be a folder, got {text!r}: {path} is a file")

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def location(self, name: str) -> str:
        """Where a name lies, for people."""
        return f"{self.uri}/{name}"

    def publish(self, name: str, data: bytes) -> None:
        """Make ``data`` durable under ``name``, whole or not at all.

        Locally a temporary name, fsync, rename and fsync of the folder; on an object store one upload. The bytes are
        complete in memory before anything is opened, because an exception inside an output stream publishes a part.
        """
        path = self._path(name)
        if not self._local:
            self._upload(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with open(temporary, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _upload(self, path: str, data: bytes) -> None:
        if not self._flat:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        try:
            with self._fs.open_output_stream(path) as out:
                out.write(data)
        except BaseException:
            with contextlib.suppress(OSError):  # leaving the block published what had been written
                self._fs.delete_file(path)
            raise

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._fs.open_input_file(self._path(name)) as f:
            return f.read()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start`` on (fewer at the end of the file)."""
        with self._fs.open_input_file(self._path(name)) as f:
            f.seek(start)
            return f.read(length)

    def size(self, name: str) -> int:
        """Bytes of a file; 0 without one."""
        return self._fs.get_file_info(self._path(name)).size or 0

    def exists(self, name: str) -> bool:
        """Whether a file of this name exists."""
        return bool(self._fs.get_file_info(self._path(name)).type is fs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder, temporary ones left out; empty when there is no folder."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return sorted(i.base_name for i in self._fs.get_file_info(selector) if not i.base_name.startswith("."))

    def delete(self, name: str) -> None:
        """Remove a file; none there is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))


def _with_parents(path: str) -> tuple[str, ...]:
    return (path, *(str(p) for p in Path(path).parents))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
