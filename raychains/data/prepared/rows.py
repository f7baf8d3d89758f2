"""Reading a prepared split: row groups, whole, from any filesystem that pyarrow knows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raychains.data.prepared.manifest import NAME, Manifest
from raychains.errors import UserError

Array = np.ndarray[Any, Any]


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
    """
    filesystem, folder = opened(uri)
    path = f"{folder.rstrip('/')}/{NAME}"
    try:
        with filesystem.open_input_file(path) as f:
            return Manifest.loads(f.read(), f"{uri.rstrip('/')}/{NAME}")
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

    Raises:
        UserError: a split that was not prepared.
    """

    def __init__(self, uri: str, manifest: Manifest, split: str) -> None:
        if split not in manifest.splits:
            known = ", ".join(manifest.splits)
            raise UserError(f"split must be one of {known} of the set at {uri!r}, got {split!r}")
        self.split = manifest.splits[split]
        self._filesystem, self._folder = opened(uri)
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
            OSError: the storage does not give them, or a page's checksum is wrong.
        """
        shard, number = self._place[group]
        table = self._file(shard).read_row_group(number, columns=["image"])
        return [memoryview(value.as_buffer()) for value in table["image"].combine_chunks()]

    @cached_property
    def labels(self) -> Array:
        """Labels of all images, int64 [images]; reads that column of every shard once."""
        parts = [self._file(i).read(columns=["label"])["label"].to_numpy() for i in range(len(self.split.shards))]
        self._files.clear()
        return np.concatenate(parts).astype(np.int64)

    def _file(self, shard: int) -> pq.ParquetFile:
        if shard not in self._files:
            if len(self._files) >= OPEN_FILES:
                self._files.pop(next(iter(self._files)))
            path = f"{self._folder.rstrip('/')}/{self.split.shards[shard].file}"
            self._files[shard] = pq.ParquetFile(self._filesystem.open_input_file(path), page_checksum_verification=True)
        return self._files[shard]


OPEN_FILES = 64
"""Shards that stay open, so that their footers are read once."""
