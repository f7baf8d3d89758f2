"""A prepared image set: its manifest, which is written last, and its row groups on any filesystem that pyarrow
knows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raychains.core import bounded
from raychains.core.errors import UserError, format_error, shown
from raychains.core.retry import Patience, Retrying
from raychains.core.validation import MOST, is_int

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One parquet file."""

    file: str
    """Relative to the manifest."""
    rows: tuple[int, ...]
    """Images of each row group."""
    bytes: int
    sha256: str

    @property
    def images(self) -> int:
        return sum(self.rows)


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split's shards in the order of storage."""

    shards: tuple[Shard, ...]
    fingerprint: str
    """sha256 over (index, label, sha256 of the JPEG bytes) of all images: whatever the shards are, the same."""

    @property
    def images(self) -> int:
        return sum(s.images for s in self.shards)

    @property
    def rows(self) -> tuple[int, ...]:
        """Images of every row group, in the order of storage."""
        return tuple(chain.from_iterable(s.rows for s in self.shards))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a prepared set."""

    name: str
    classes: tuple[str, ...]
    """Names of the classes, WordNet ids for ImageNet, sorted: a label is a place among them."""
    words: tuple[str, ...]
    """The common name of each class; empty where the source has none."""
    seed: int
    """Seed of the order of storage."""
    splits: Mapping[str, Split]
    converted: int
    """Pictures that were written anew as RGB JPEG: CMYK, palettes, PNG."""
    skipped: tuple[str, ...]
    """Damaged pictures that were left out, by name."""

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def dumps(self) -> bytes:
        """Return the manifest as a file's bytes."""
        return (json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n").encode()

    def _check(self) -> None:
        """Raise `ValueError` for what no prepared set holds."""
        shards = list(chain.from_iterable(split.shards for split in self.splits.values()))
        texts = (self.name, *self.classes, *self.words, *self.skipped, *(s.fingerprint for s in self.splits.values()))
        numbers = [self.seed, self.converted, *chain.from_iterable((s.bytes, *s.rows) for s in shards)]
        if not all(map(_is_text, (*texts, *(s.file for s in shards)))):
            raise ValueError("names must be texts")
        if not all(map(_is_count, numbers)):
            raise ValueError("numbers must be integers of at least 0")
        if not self.classes or any(not split.images for split in self.splits.values()):
            raise ValueError("it must have classes, and each split must hold pictures")
        if any("/" in s.file or min(s.rows, default=0) < 1 for s in shards):
            raise ValueError("shards must lie beside it and hold pictures")

    @classmethod
    def loads(cls, data: bytes, where: str) -> Manifest:
        """Read the manifest in a file's bytes.

        Raises:
            UserError: no manifest, or one of a later format.
        """
        try:
            found = json.loads(data)
            if is_int(found["format"]) and found["format"] > FORMAT:
                raise UserError(
                    f"{where} must be of format {FORMAT} at most, got {found['format']}: a later version made it"
                )
            splits = {
                name: Split(
                    shards=tuple(Shard(**{**s, "rows": tuple(s["rows"])}) for s in split["shards"]),
                    fingerprint=split["fingerprint"],
                )
                for name, split in found["splits"].items()
            }
            lists: dict[str, Any] = {name: tuple(found[name]) for name in ("classes", "words", "skipped")}
            rest = {name: found[name] for name in ("name", "seed", "converted")}
            made = cls(splits=splits, **lists, **rest)
            made._check()
            return made
        except UserError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{where} must be the manifest of a prepared image set, got a file that is none ({shown(error)})"
            ) from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_count(value: object) -> bool:
    return is_int(value) and 0 <= value <= MOST


def fingerprint(images: Sequence[tuple[int, int, str]]) -> str:
    """Return the hash of (index, label, sha256 of the bytes), in any order."""
    h = hashlib.sha256()
    for index, label, digest in sorted(images):
        h.update(f"{index} {label} {digest}\n".encode())
    return h.hexdigest()


Array = np.ndarray[Any, Any]
OPEN_FILES = 64
"""Shards that stay open, so that their footers are read once."""
PATIENCE = Patience(total=1800.0)
"""A chain waits for its data rather than being moved to another node, which cannot reach them either."""


def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem and the folder of a path or URI.

    Raises:
        UserError: no place that pyarrow knows.
    """
    try:
        if "://" in uri:
            return fs.FileSystem.from_uri(uri)
        return fs.LocalFileSystem(), uri
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"a prepared set must lie at a path or URI that pyarrow knows, got {uri!r}: {format_error(error)}"
        ) from None


def manifest_at(uri: str) -> Manifest:
    """Read the manifest of the set that was prepared at ``uri``.

    Raises:
        UserError: there is none.
        StorageAway: its storage could not be reached for a minute.
    """
    filesystem, folder = opened(uri)
    path = f"{folder.rstrip('/')}/{NAME}"

    def read() -> bytes:
        if filesystem.type_name == "local":
            return bounded.read(path)
        with filesystem.open_input_file(path) as f:
            return bounded.part(f, path, f.size())

    try:
        return Manifest.loads(Retrying(what="data").call("read", path, read), f"{uri.rstrip('/')}/{NAME}")
    except FileNotFoundError:
        raise UserError(
            f"a prepared set must have a {NAME}, got none at {uri!r}: raychains prepare makes one"
        ) from None


def _group(file: pq.ParquetFile, where: str, number: int) -> pa.ChunkedArray:
    return bounded.rows_of(file, where, rows=None, groups=[number], columns=["image"])["image"]


def _labels(file: pq.ParquetFile) -> Array:
    column = file.read(columns=["label"])["label"]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ValueError(f"label must be integers, got {column.type}")
    return column.to_numpy()


class Rows:
    """One split's pictures by row group; an index counts its pictures in the order of storage, from 0.

    Raises:
        UserError: a split that was not prepared.
    """

    def __init__(self, uri: str, manifest: Manifest, split: str, patience: Patience = PATIENCE) -> None:
        if split not in manifest.splits:
            known = ", ".join(manifest.splits)
            raise UserError(f"split must be one of {known} of the set at {uri!r}, got {split!r}")
        self.split = manifest.splits[split]
        self._filesystem, self._folder = opened(uri)
        self._classes = len(manifest.classes)
        self._retrying = Retrying(patience, what="data")
        self.counts = np.array(self.split.rows, dtype=np.int64)
        """Images of every row group, [groups]."""
        self.first = np.concatenate([[0], np.cumsum(self.counts)])
        """Index of each group's first image, and the number of all, [groups + 1]."""
        self._place = [(i, g) for i, s in enumerate(self.split.shards) for g in range(len(s.rows))]
        self._files: dict[int, pq.ParquetFile] = {}

    def __len__(self) -> int:
        return int(self.first[-1])

    def groups_of(self, indices: Array) -> Array:
        """Return the row group that each index lies in, [n]."""
        return np.searchsorted(self.first, indices, side="right") - 1

    def read(self, group: int) -> list[memoryview]:
        """Return the JPEG bytes of a row group's images, in their order.

        Raises:
            OSError: a file is not there, or a page's checksum is wrong.
            StorageAway: the storage could not be reached for all the patience.
        """
        shard, number = self._place[group]
        images = self._from(shard, lambda file: _group(file, self._path(shard), number)).combine_chunks()
        if (
            len(images) != self.counts[group]
            or images.type not in (pa.binary(), pa.large_binary())
            or images.null_count
        ):
            raise OSError(f"{self._path(shard)} is damaged: it must hold {self.counts[group]} pictures as bytes")
        return [memoryview(value.as_buffer()) for value in images]

    @cached_property
    def labels(self) -> Array:
        """Labels of all images, int64 [images]; reads that column of every shard once."""
        shards = range(len(self.split.shards))
        parts = [self._from(i, _labels) for i in shards]
        self._files.clear()
        found = np.concatenate(parts).astype(np.int64)
        if len(found) != len(self) or found.min() < 0 or found.max() >= self._classes:
            raise OSError(f"labels below {self._folder} must be {len(self)} integers in [0, {self._classes - 1}]")
        return found

    def _from(self, shard: int, read: Callable[[pq.ParquetFile], Any]) -> Any:
        """Read from a shard, again after transient errors."""

        def attempt() -> pa.Table:
            try:
                return read(self._file(shard))
            except (pa.ArrowException, KeyError, AttributeError, TypeError, ValueError) as error:
                if isinstance(error, UserError):
                    raise
                raise OSError(f"{self._path(shard)} is damaged: {format_error(error)}") from None
            except OSError:
                self._files.pop(shard, None)  # a file of a broken connection is opened again
                raise

        return self._retrying.call("read", self._path(shard), attempt)

    def unreadable(self, error: OSError) -> UserError:
        """Return the error of a set whose files are damaged or gone."""
        return UserError(
            f"set at {self._folder!r} must be whole, got a file that cannot be read: {format_error(error)}"
        )

    def _path(self, shard: int) -> str:
        return f"{self._folder.rstrip('/')}/{self.split.shards[shard].file}"

    def _file(self, shard: int) -> pq.ParquetFile:
        if shard not in self._files:
            if len(self._files) >= OPEN_FILES:
                self._files.pop(next(iter(self._files)))
            path = self._path(shard)
            if self._filesystem.type_name == "local":
                bounded.check_regular(path)
            file = pq.ParquetFile(self._filesystem.open_input_file(path), page_checksum_verification=True)
            rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            if rows != list(self.split.shards[shard].rows):
                raise UserError(f"{path} must hold the row groups that its set's {NAME} names, got others")
            self._files[shard] = file
        return self._files[shard]
