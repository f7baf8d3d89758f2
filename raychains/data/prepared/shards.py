"""Writing shards: pictures in a seeded order, checked and converted, as parquet files whose row groups are read whole."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from raychains.data.prepared.manifest import Shard
from raychains.data.prepared.order import permutation
from raychains.data.prepared.sources import Item

ROW_GROUP = 64
"""Images of a row group: some 7 MB of ImageNet's JPEGs, so that a window of 16 is 110 MB."""
QUALITY = 95
STORAGE = 3
"""The order of storage's purpose: see `raychains.data.prepared.order`."""
SCHEMA = pa.schema([("image", pa.binary()), ("label", pa.int32()), ("index", pa.int64()), ("name", pa.string())])


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of one shard's pictures."""

    shard: Shard
    images: tuple[tuple[int, int, str], ...]
    """(index, label, sha256 of the bytes) of each."""
    converted: int
    damaged: tuple[str, ...]


def stored_order(items: Sequence[Item], seed: int) -> list[Item]:
    """The items in their order of storage: a seeded permutation of them sorted by name."""
    ordered = sorted(items)
    return [ordered[i] for i in permutation(seed, STORAGE, 0, len(ordered))]


def as_jpeg(data: bytes) -> tuple[bytes, bool]:
    """A picture as RGB or grey JPEG, and whether it was written anew: CMYK, PNG and the like are.

    Raises:
        OSError: it cannot be decoded, wholly.
    """
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OSError(str(error)) from None
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        return data, False
    out = io.BytesIO()
    image.convert("RGB").save(out, format="JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue(), True


def encode(items: Sequence[tuple[int, Item, int]], name: str, row_group: int = ROW_GROUP) -> tuple[bytes, Written]:
    """A shard's file and what is in it; damaged pictures are left out and listed.

    Args:
        items: (place in the seeded order, item, label) of each picture.
        name: the file's.
        row_group: images of one.
    """
    rows: list[tuple[bytes, int, int, str]] = []
    found: list[tuple[int, int, str]] = []
    damaged: list[str] = []
    converted = 0
    for index, item, label in items:
        try:
            jpeg, anew = as_jpeg(item.read())
        except OSError as error:
            damaged.append(f"{item.name}: {str(error).splitlines()[0]}")
            continue
        converted += anew
        rows.append((jpeg, label, index, item.name))
        found.append((index, label, hashlib.sha256(jpeg).hexdigest()))
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    # JPEG bytes do not compress, and a page's checksum tells a rotten one from a good one.
    pq.write_table(
        table, sink, row_group_size=row_group, compression="none", use_dictionary=False, write_page_checksum=True
    )
    data = sink.getvalue().to_pybytes()
    counts = tuple(min(row_group, len(rows) - i) for i in range(0, len(rows), row_group))
    shard = Shard(file=name, rows=counts, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return data, Written(shard=shard, images=tuple(found), converted=converted, damaged=tuple(damaged))


def divided(count: int, shards: int) -> list[range]:
    """Which places of the seeded order lie in each of ``shards`` files: contiguous, of equal length up to one."""
    edges = np.linspace(0, count, min(shards, count) + 1).round().astype(int)
    return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]
