"""Reading a prepared split: row groups, whole, from any filesystem that pyarrow knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raychains.data.prepared.manifest import NAME, Manifest
from raychains.errors import UserError
from raychains.retry import Patience, Retrying

Array = np.ndarray[Any, Any]
OPEN_FILES = 64
"""Shards that stay open, so that their footers are read once."""
PATIENCE = Patience(total=1800.0)
"""A chain rather waits for its data than that it is tried elsewhere, where they are as far away."""


def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """The filesystem and the folder of a path or URI.

    Raises:
        UserError: no place that pyarrow knows.
    """
    try:
        if "://" in uri:
            return fs.FileSystem.from_uri(uri)
        return fs.LocalFileSystem(), uri
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"a prepared set must lie at a path or URI that pyarrow knows, got {uri!r}: {error}") from None


def manifest_at(uri: str) -> Manifest:
    """The manifest of the set that was prepared at ``uri``.

    Raises:
        UserError: there is none.
        StorageAway: its storage could not be reached for a minute.
    """
    filesystem, folder = opened(uri)
    path = f"{folder.rstrip('/')}/{NAME}"

    def read() -> bytes:
        with filesystem.open_input_file(path) as f:
            return bytes(f.read())

    try:
        return Manifest.loads(Retrying(what="data").call("read", path, read), f"{uri.rstrip('/')}/{NAME}")
    except FileNotFoundError:
        raise UserError(
            f"a prepared set must have a {NAME}, got none at {uri!r}: raychains prepare makes one"
        ) from None


class Rows:
    """One split's pictures by row group; an index counts its pictures in the order of storage, from 0.

    Args:
        uri: where the set lies.
        manifest: its own.
        split: ``train``, ``val`` …
        patience: how long a read is tried again while the storage is away.

    Raises:
        UserError: a split that was not prepared.
    """

    def __init__(self, uri: str, manifest: Manifest, split: str, patience: Patience = PATIENCE) -> None:
        if split not in manifest.splits:
            known = ", ".join(manifest.splits)
            raise UserError(f"split must be one of {known} of the set at {uri!r}, got {split!r}")
        self.split = manifest.splits[split]
        self._filesystem, self._folder = opened(uri)
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
        """The row group that each index lies in, [n]."""
        return np.searchsorted(self.first, indices, side="right") - 1

    def read(self, group: int) -> list[memoryview]:
        """The JPEG bytes of a row group's images, in their order.

        Raises:
            OSError: a file is not there, or a page's checksum is wrong.
            StorageAway: the storage could not be reached for all the patience.
        """
        shard, number = self._place[group]
        table = self._from(shard, lambda file: file.read_row_group(number, columns=["image"]))
        return [memoryview(value.as_buffer()) for value in table["image"].combine_chunks()]

    @cached_property
    def labels(self) -> Array:
        """Labels of all images, int64 [images]; reads that column of every shard once."""
        shards = range(len(self.split.shards))
        parts = [self._from(i, lambda file: file.read(columns=["label"]))["label"].to_numpy() for i in shards]
        self._files.clear()
        return np.concatenate(parts).astype(np.int64)

    def _from(self, shard: int, read: Callable[[pq.ParquetFile], pa.Table]) -> pa.Table:
        """What is read from a shard, as often as it takes."""

        def attempt() -> pa.Table:
            try:
                return read(self._file(shard))
            except OSError:
                self._files.pop(shard, None)  # a file of a broken connection is opened again
                raise

        return self._retrying.call("read", f"{self._folder}/{self.split.shards[shard].file}", attempt)

    def _file(self, shard: int) -> pq.ParquetFile:
        if shard not in self._files:
            if len(self._files) >= OPEN_FILES:
                self._files.pop(next(iter(self._files)))
            path = f"{self._folder.rstrip('/')}/{self.split.shards[shard].file}"
            self._files[shard] = pq.ParquetFile(self._filesystem.open_input_file(path), page_checksum_verification=True)
        return self._files[shard]
