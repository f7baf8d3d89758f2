"""One root folder on any `pyarrow.fs` filesystem: its address, names inside it, and atomic, durable files.

A local path, or a URI: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``hdfs://host:port/path``, ``file:///path``. S3
takes its credentials from where every AWS tool does (``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``,
``~/.aws/credentials``, the machine's role), which every node of a cluster must have; credentials inside a URI would be
stored and logged. Another S3-compatible server:
``s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1``.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from raychains.core import bounded, checksum
from raychains.core.errors import StorageRefused, UserError, format_error
from raychains.core.retry import KeepTrying, Patience, Retrying, is_transient
from raychains.core.validation import LONGEST_PART

T = TypeVar("T")

OWN_NAMES = 400
"""Bytes of a path that are kept for names inside the store."""
LISTINGS = 20
"""Times a folder is listed anew because it changed during the listing."""
FLAT = ("s3", "gcs")
"""Kinds of filesystem without folders: creating one would leave an empty object."""
S3_ATTEMPTS = 2
"""Times that an S3 client tries a request by itself."""
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it in the process of a submitted job, and in no actor: the job's settings as JSON."""
_SECRET = re.compile(r"key|secret|token|password|credential|sas|sig", re.IGNORECASE)
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Errors of `os.link` on filesystems without hard links."""


# Names and JSON


def check_path(name: str) -> str:
    """Return ``name``, a path inside a store.

    Raises:
        UserError: it is empty or absolute, has an empty part, ``.``, ``..``, a backslash, a control character or half a
            surrogate pair, or a part longer than `LONGEST_PART`.
    """
    if not all(map(_allowed, name.split("/"))):
        raise UserError(
            "a name in the store must be relative, its parts separated by single '/', none of them '.' or '..' or "
            f"longer than {LONGEST_PART} bytes, without backslashes and control characters, got {name!r}"
        )
    return name


def _allowed(part: str) -> bool:
    if part in ("", ".", "..") or "\\" in part:
        return False
    plain = part.isascii() and part.isprintable()  # most are, and thousands are checked
    return (plain or not _unprintable(part)) and len(part.encode()) <= LONGEST_PART


def _unprintable(text: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cs") for c in text)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table: its columns are those of all rows together, null where a row lacks one."""
    columns = dict.fromkeys(column for row in rows for column in row)
    return pa.Table.from_pylist([{column: row.get(column) for column in columns} for row in rows])


def json_bytes(value: Mapping[str, Any], *, allow_nan: bool = False, sealed: bool = True) -> bytes:
    """Return a JSON object as an indented file with sorted keys and the checksum that `read_object` verifies."""
    found = checksum.sealed(value) if sealed else dict(value)
    return (json.dumps(found, indent=1, sort_keys=True, allow_nan=allow_nan) + "\n").encode()


# Files of a local or network filesystem: written whole under a hidden temporary name, forced to the disk, then renamed


def _write_local(target: Path, data: bytes, *, new: bool = False) -> bool:
    """Make ``data`` durable under ``target``, whole or not at all; return False where it is to be ``new`` and the name
    is taken.

    The previous file stays until the new one is complete.
    """
    _make_folders(target.parent)
    with temporary(target) as path:
        with open(path, "wb") as f:
            f.write(data)
            sync(f)
        if not new:
            os.replace(path, target)
        elif not take_name(path, target):
            return False
    with contextlib.suppress(OSError) if new else contextlib.nullcontext():  # a taken name is ours, whatever fails now
        _sync_folder(target.parent)
    return True


@contextlib.contextmanager
def temporary(target: Path) -> Iterator[Path]:
    """Yield a hidden name in the folder of ``target``, which listings leave out; a file of that name is removed at the
    end."""
    path = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def sync(f: IO[bytes]) -> None:
    """Force an open file to the disk."""
    f.flush()
    os.fsync(f.fileno())


def take_name(whole: Path, target: Path) -> bool:
    """Give a whole file its name; return False if that is taken. One of several concurrent callers wins."""
    try:
        os.link(whole, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            open(target, "xb").close()
        except FileExistsError:
            return False
        os.replace(whole, target)
    return True


def _make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, durably: a file is no safer than the folder's own name."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError as error:  # as in /proc
        raise UserError(
            f"store must be a folder that can be written to, got {str(folder)!r}: {error.strerror}"
        ) from None
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    try:
        number = os.open(folder, os.O_RDONLY)
    except PermissionError:  # may be entered but not listed: nothing to be done
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # filesystems that cannot sync folders
            raise
    finally:
        os.close(number)


# Addresses


@dataclass(frozen=True, kw_only=True)
class Address:
    """A store's folder; ``uri`` opens it in another process, ``shown`` and ``query`` are the URI without secrets."""

    filesystem: Any
    base: str
    uri: str
    shown: str
    query: str = ""


def locate(uri: str | os.PathLike[str], filesystem: Any = None) -> Address:
    """Return the address of a local path or URI.

    Raises:
        UserError: the URI's filesystem is unknown, or it names no bucket.
        OSError: the storage could not be reached.
    """
    text = os.fspath(uri)
    if not text or _unprintable(text):
        raise UserError(f"store must be a local path or a URI, without control characters, got {text!r}")
    if "://" not in text:
        flat = getattr(filesystem, "type_name", None) in FLAT
        base = text.strip("/") if flat else _absolute(text)
        return _checked(filesystem or fs.LocalFileSystem(), base, base, base)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UserError(f"store must be a local path or a URI that pyarrow knows, got {text!r}: {error}") from None
    base = parts.netloc.rpartition("@")[2] + parts.path
    shown = f"{parts.scheme}://{base}".rstrip("/")
    if parts.fragment:  # pyarrow leaves it out
        raise UserError(f"store must be a URI whose # are written as %23, got {shown}#{parts.fragment}")
    if filesystem is None:
        try:
            filesystem, base = fs.FileSystem.from_uri(text)
            filesystem = _impatient(filesystem)
        except (ValueError, OSError) as error:
            if is_transient(error):
                raise
            why = format_error(error).replace(text, shown)
            raise UserError(f"store must be a local path or a URI that pyarrow knows, got {shown!r}: {why}") from None
    uri = text if parts.query else text.rstrip("/")
    query = "&".join(part for part in parts.query.split("&") if not _SECRET.search(part.partition("=")[0]))
    return _checked(filesystem, base, uri, shown, f"?{query}" if query else "")


def _impatient(filesystem: Any) -> Any:
    """The same S3 client with few retries of its own: by default it holds a caller for a hundred seconds (measured)."""
    if filesystem.type_name != "s3":
        return filesystem
    settings = filesystem.__reduce__()[1][0]  # what pickling keeps; credentials only when the URI holds them
    kept = {k: v for k, v in settings.items() if k != "proxy_options" and v not in ("", None) and v != -1.0}
    return fs.S3FileSystem(**kept, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS))


def _absolute(text: str) -> str:
    """A local path made absolute, with ``~`` for a home."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # the home of nobody
        raise UserError(f"store must be a local path or a URI, got {text!r}: {error}") from None
    if not path.is_absolute() and _in_uploaded_folder(os.environ):
        raise UserError(
            f"store must be an absolute path or a URI (s3://bucket/prefix) in a Ray job, got {text!r}: the job's "
            "folder is Ray's copy of the working directory, which Ray deletes"
        )
    path = path.absolute()
    longest, size = os.pathconf("/", "PC_PATH_MAX") - OWN_NAMES, len(os.fsencode(path))
    part = os.pathconf("/", "PC_NAME_MAX")
    if size > longest or any(len(os.fsencode(name)) > part for name in path.parts):
        raise UserError(
            f"store must be a path of at most {longest} bytes whose parts have at most {part}, got one of {size} that "
            f"begins with {text[:40]!r}"
        )
    return str(path)


def _in_uploaded_folder(environ: Mapping[str, str]) -> bool:
    """Return whether this is the process of a Ray job whose current folder was uploaded with it."""
    try:
        return bool(json.loads(environ[RAY_JOB])["runtime_env"]["working_dir"])
    except (KeyError, ValueError, TypeError):
        return False


def _checked(filesystem: Any, base: str, uri: str, shown: str, query: str = "") -> Address:
    base = base.rstrip("/") or "/"
    if filesystem.type_name in FLAT and base == "/":
        raise UserError(f"store must name a bucket, as in s3://bucket/prefix, got {shown!r}")
    return Address(filesystem=filesystem, base=base, uri=uri, shown=shown, query=query)


class Storage:
    """A folder given as a local path or as any URI that `pyarrow.fs` knows (``s3://bucket/prefix``, …).

    Names are '/'-separated and relative to the root. Every call is repeated while it fails with a transient error (the
    network, the server, a device's hiccup), for about a minute unless the caller decides otherwise.

    Args:
        uri: the folder.
        filesystem: a pyarrow filesystem to use instead of the one that ``uri`` names.
        patience: how long calls are repeated.

    Raises:
        UserError: the path is a file, or the URI's filesystem is unknown; of every method: an invalid name.
        StorageAway: of every method too: the storage could not be reached for all that time.
    """

    def __init__(
        self, uri: str | os.PathLike[str], filesystem: fs.FileSystem | None = None, *, patience: Patience | None = None
    ) -> None:
        self._retrying = Retrying(patience)
        self._keep_trying: KeepTrying | None = None
        where = self._retrying.call("opened", "the store", lambda: locate(uri, filesystem))
        self._fs, self._base, self.uri = where.filesystem, where.base, where.uri
        self._shown, self._query = where.shown, where.query
        self._local = self._fs.type_name == "local"
        for path in (self._base, *map(str, Path(self._base).parents if self._local else ())):
            if self._info(path).type is fs.FileType.File:
                raise UserError(f"store must be a folder, got {self._shown!r}: {path} is a file")

    def retrying(self, keep_trying: KeepTrying) -> Storage:
        """Return the same root, whose calls ask ``keep_trying`` before every wait for a storage that is away, instead
        of spending about a minute: with the reason in one line; False gives up.
        """
        other = copy.copy(self)
        other._keep_trying = keep_trying
        return other

    def without_waiting(self) -> Storage:
        """Return the same root, whose calls fail at once where the storage is away."""
        return self.retrying(lambda reason: False)

    @property
    def exclusive(self) -> bool:
        """True if `create` has one winner whatever the timing."""
        return self._local

    def location(self, name: str = "") -> str:
        """Return a name's path or URI for messages: without the passwords that a URI may hold."""
        return f"{self._shown}/{name}".rstrip("/") + self._query

    def folder(self, name: str) -> Path:
        """Return a folder of a local root as a path, for libraries that write by themselves.

        Raises:
            StorageRefused: it lies behind a link that leads out of the root.
        """
        path = self._path(name)
        self._check_inside(f"{path}/x")
        return Path(path)

    def publish(self, name: str, data: bytes) -> None:
        """Make ``data`` durable under ``name``, whole or not at all.

        Locally a temporary name, fsync, rename and fsync of the folder; on an object store one upload. The bytes are
        complete in memory before anything is opened, because an exception inside an output stream publishes a part.

        Raises:
            StorageRefused: no room, or no file may be written there; at once.
        """
        path = self._path(name)
        try:
            self._repeat("written", name, lambda: self._write(path, data))
        except BaseException:
            if not self._local:
                self._remove_part(path, data)
            raise

    def create(self, name: str, data: bytes) -> bool:
        """Publish ``data`` unless the name is taken; return whether it was free. See `exclusive`."""
        if self._local:
            path = self._path(name)
            return self._repeat("written", name, lambda: self._write(path, data, new=True))
        if self.exists(name):
            return False
        self.publish(name, data)
        return True

    def _write(self, path: str, data: bytes, *, new: bool = False) -> bool:
        if self._local:
            self._check_inside(path)
            return _write_local(Path(path), data, new=new)
        if self._fs.type_name not in FLAT:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(path) as out:
            out.write(data)
        stored = self._fs.get_file_info(path)
        if stored.type is fs.FileType.File and stored.size not in (None, len(data)):
            raise ConnectionError(f"{stored.size} of {len(data)} bytes arrived")
        return True

    def _check_inside(self, path: str) -> None:
        """Refuse to change files behind a link that leads out of the root, which itself may be a link."""
        if self._local:
            folder, root = os.path.realpath(os.path.dirname(path)), os.path.realpath(self._base)
            if os.path.commonpath([folder, root]) != root:
                raise StorageRefused(
                    f"store must not contain links to other folders, got one at {os.path.dirname(path)!r} that leads "
                    f"to {folder!r}: nothing is written there"
                )

    def _remove_part(self, path: str, data: bytes) -> None:
        """Delete the part that a failed upload left; an earlier file, and a whole upload, stay."""
        with contextlib.suppress(OSError), self._fs.open_input_file(path) as f:
            there = f.read()
            if len(there) < len(data) and data.startswith(there):
                self._fs.delete_file(path)

    def read(self, name: str) -> bytes:
        """Return all bytes of a file.

        Raises:
            FileNotFoundError: there is none.
            UserError: it is no regular file, or one that `bounded` finds too large.
        """
        return self._repeat("read", name, lambda: self._read(self._path(name), 0, None))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` on (fewer at the end of the file)."""
        return self._repeat("read", name, lambda: self._read(self._path(name), start, length))

    def read_object(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file without its checksum; None for a torn or altered file, or another kind.

        Raises:
            FileNotFoundError: there is none.
        """
        data = self.read(name)  # outside: an unreachable storage's error is a ValueError, too
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return None
        own, whole = checksum.unsealed(found) if isinstance(found, dict) else ({}, False)
        return own if whole else None

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        if self._local:
            return bounded.read(path, start=start, length=length)
        with self._fs.open_input_file(path) as f:
            data = bounded.part(f, path, f.size(), start=start, length=length)
        if length is None or len(data) < length:
            # A server's answer that breaks off within its headers looks like that of a shorter file, without an error.
            size = self._fs.get_file_info(path).size
            there = None if size is None else max(0, size - start)  # None: it was deleted since
            if there is not None and len(data) != (there if length is None else min(length, there)):
                raise ConnectionError(f"{len(data)} bytes arrived of a file of {size}")
        return data

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 without one."""
        path = self._path(name)
        return self._info(path).size or self._info(path).size or 0  # twice: see _read

    def exists(self, name: str) -> bool:
        """Return whether a file of this name exists."""
        return bool(self._info(self._path(name)).type is fs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, temporary ones left out; empty when there is no folder."""
        return sorted(i.base_name for i in self._list(self._path(folder)))

    def top(self) -> list[str]:
        """Return the sorted names in the root itself, temporary ones left out."""
        return sorted(i.base_name for i in self._list(self._base))

    def modified(self, folder: str) -> dict[str, int]:
        """Return a folder's files, temporary ones left out: last changes by the storage's clock, in nanoseconds, by
        name."""
        return {i.base_name: i.mtime_ns or 0 for i in self._list(self._path(folder)) if i.type is fs.FileType.File}

    def below(self, folder: str) -> dict[str, tuple[int, int]]:
        """Return all files below a folder: (bytes, last change as in `modified`) by their names in it.

        One listing on an object store, whatever it holds; temporary files are left out.
        """
        start = len(self._path(folder)) + 1
        found = self._list(self._path(folder), recursive=True)
        return {i.path[start:]: (i.size or 0, i.mtime_ns or 0) for i in found if i.type is fs.FileType.File}

    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""

        def attempt() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._check_inside(self._path(name))
                self._fs.delete_file(self._path(name))

        self._repeat("deleted", name, attempt)

    def _path(self, name: str) -> str:
        return f"{self._base.rstrip('/')}/{check_path(name)}"

    def _info(self, path: str) -> Any:
        return self._retrying.call("read", self._shown, lambda: self._fs.get_file_info(path), self._keep_trying)

    def _list(self, path: str, *, recursive: bool = False) -> list[Any]:
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)

        def attempt() -> list[Any]:
            found: list[Any] | None = None
            for _ in range(
                LISTINGS
            ):  # a folder that is made, or a file that is renamed, meanwhile is an error to pyarrow
                with contextlib.suppress(FileNotFoundError):
                    found = self._fs.get_file_info(selector)
                    break
            if found is None or (not found and not self._local):  # an answer that broke off is empty, too
                found = self._fs.get_file_info(selector)
            return found

        found = self._repeat("listed", path.removeprefix(self._base).lstrip("/"), attempt)
        return [i for i in found if not i.base_name.startswith(".")]

    def _repeat(self, verb: str, name: str, attempt: Callable[[], T]) -> T:
        return self._retrying.call(verb, f"{self._shown}/{name}", attempt, self._keep_trying)
