"""Preparing a set: independent shards of pictures in a seeded order, and the manifest that their reports add up to.

Shards are parquet files of checked and converted pictures, whose row groups are read whole.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raychains.core import bounded
from raychains.core.errors import UserError
from raychains.core.validation import positive_int
from raychains.data.prepared.manifest import FORMAT, Manifest, Shard, Split, fingerprint
from raychains.data.prepared.order import permutation
from raychains.data.prepared.sources import Item, Source, labels_of

ROW_GROUP = 64
"""Images of a row group: some 7 MB of ImageNet's JPEGs, so that a window of 16 is 110 MB."""
PER_SHARD = 2048
"""Images of a shard: some 230 MB of ImageNet's."""
SHOWN = 5
"""Damaged pictures that a message names."""
QUALITY = 95
STORAGE = 3
"""The order of storage's purpose: see `raychains.data.prepared.order`."""
SCHEMA = pa.schema([("image", pa.binary()), ("label", pa.int32()), ("index", pa.int64()), ("name", pa.string())])


@dataclass(frozen=True, kw_only=True)
class Written:
    """The report of one written shard."""

    shard: Shard
    images: tuple[tuple[int, int, str], ...]
    """(index, label, sha256 of the bytes) of each."""
    converted: int
    damaged: tuple[str, ...]


def stored_order(items: Sequence[Item], seed: int) -> list[Item]:
    """Return the items in their order of storage: a seeded permutation of them sorted by name."""
    ordered = sorted(items)
    return [ordered[i] for i in permutation(seed, STORAGE, 0, len(ordered))]


def as_jpeg(data: bytes) -> tuple[bytes, bool]:
    """Return a picture as RGB or grey JPEG, and whether it was written anew: CMYK, PNG and the like are.

    Raises:
        OSError: it cannot be decoded, wholly.
    """
    image = bounded.decoded(data)
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        return data, False
    out = io.BytesIO()
    image.convert("RGB").save(out, format="JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue(), True


def encode(items: Sequence[tuple[int, Item, int]], name: str, row_group: int = ROW_GROUP) -> tuple[bytes, Written]:
    """Return a shard's file and its report; damaged pictures are left out and listed.

    ``items`` are (place in the seeded order, item, label).

    Raises:
        OSError: a picture cannot be read, as on a node without the source.
    """
    rows: list[tuple[bytes, int, int, str]] = []
    found: list[tuple[int, int, str]] = []
    damaged: list[str] = []
    converted = 0
    for index, item, label in items:
        data = item.read()
        try:
            jpeg, anew = as_jpeg(data)
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
    """Return the places of the seeded order in each of ``shards`` files: contiguous, of equal length up to one."""
    edges = np.linspace(0, count, min(shards, count) + 1).round().astype(int)
    return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]


@dataclass(frozen=True, kw_only=True)
class Work:
    """One shard that is to be written."""

    split: str
    name: str
    items: tuple[tuple[int, Item, int], ...]
    """(place in the seeded order, item, label)."""

    def to_json(self) -> dict[str, Any]:
        rows = [(i, item.name, item.label, item.file, item.offset, item.size, label) for i, item, label in self.items]
        return {"split": self.split, "name": self.name, "items": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Work:
        items = tuple((row[0], Item(*row[1:6]), row[6]) for row in data["items"])
        return cls(split=data["split"], name=data["name"], items=items)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All shards of a set.

    Raises:
        UserError: numbers out of range.
    """

    name: str
    source: Source
    shards: int | None = None
    row_group: int = ROW_GROUP
    seed: int = 0

    def __post_init__(self) -> None:
        positive_int("row_group", self.row_group)
        if self.shards is not None:
            positive_int("shards", self.shards)

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """The shards, split by split, in the order of storage."""
        labels = labels_of(self.source.classes)
        found = []
        for split, items in self.source.splits.items():
            ordered = stored_order(items, self.seed)
            places = divided(len(ordered), self.shards or -(-len(ordered) // PER_SHARD))
            for number, part in enumerate(places):
                name = f"{split}-{number:05d}-of-{len(places):05d}.parquet"
                rows = tuple((i, ordered[i], labels[ordered[i].label]) for i in part)
                found.append(Work(split=split, name=name, items=rows))
        return tuple(found)

    @cached_property
    def described(self) -> dict[str, Any]:
        """The content of a target's plan.json: two plans that differ here cannot continue each other."""
        h = hashlib.sha256()
        for work in self.works:
            for index, item, label in work.items:
                h.update(f"{work.name} {index} {item.name} {item.offset} {item.size} {label}\n".encode())
        pictures = {split: len(items) for split, items in self.source.splits.items()}
        own = {"format": FORMAT, "name": self.name, "seed": self.seed, "row_group": self.row_group}
        return {**own, "pictures": pictures, "digest": h.hexdigest()}

    def manifest(self, written: Mapping[str, Written], *, skip_damaged: bool) -> Manifest:
        """Return the manifest, once every shard was written.

        Raises:
            UserError: damaged pictures that are not to be left out, or a split without a whole one.
        """
        damaged = [name for work in self.works for name in written[work.name].damaged]
        if damaged and not skip_damaged:
            more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
            raise UserError(
                f"source must hold whole pictures, got {len(damaged)} damaged: {'; '.join(damaged[:SHOWN])}{more}; "
                "`skip_damaged=True` leaves them out"
            )
        splits = {
            split: _split(split, [written[w.name] for w in self.works if w.split == split])
            for split in self.source.splits
        }
        classes, words = self.source.classes, self.source.words
        return Manifest(
            name=self.name,
            classes=classes,
            words=tuple(words.get(c, "") for c in classes) if words else (),
            seed=self.seed,
            splits=splits,
            converted=sum(w.converted for w in written.values()),
            skipped=tuple(damaged),
        )


def report_of(written: Written) -> bytes:
    """Return a written shard's report as a file's bytes."""
    data = {"shard": vars(written.shard), "images": written.images, "converted": written.converted}
    return json.dumps({**data, "damaged": written.damaged}).encode()


def read_report(data: bytes) -> Written:
    """Read the report that `report_of` wrote.

    Raises:
        ValueError: it is torn.
    """
    try:
        found = json.loads(data)
        shard = Shard(**{**found["shard"], "rows": tuple(found["shard"]["rows"])})
        images = tuple((int(i), int(label), str(sha)) for i, label, sha in found["images"])
        damaged = tuple(found["damaged"])
        return Written(shard=shard, images=images, converted=int(found["converted"]), damaged=damaged)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no report of a shard: {error!r}") from None


def unfinished(works: Sequence[Work], written: Mapping[str, Written]) -> list[Work]:
    """Return the shards that are still to be written."""
    return [w for w in works if w.name not in written]


def _split(split: str, parts: Sequence[Written]) -> Split:
    whole = [part for part in parts if part.images]
    if not whole:
        raise UserError(f"source must hold whole pictures of the split {split}, got damaged ones only")
    images = list(itertools.chain.from_iterable(part.images for part in whole))
    return Split(shards=tuple(part.shard for part in whole), fingerprint=fingerprint(images))
