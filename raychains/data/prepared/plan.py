"""What preparing a set comes down to: independent shards, and the manifest that their reports add up to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raychains.data.prepared import shards
from raychains.data.prepared.manifest import FORMAT, Manifest, Shard, Split, fingerprint
from raychains.data.prepared.shards import ROW_GROUP, Written
from raychains.data.prepared.sources import Item, Source, labels_of
from raychains.errors import UserError
from raychains.schedules.base import positive_int

PER_SHARD = 2048
"""Images of a shard: some 230 MB of ImageNet's."""
SHOWN = 5
"""Damaged pictures that a message names."""


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

    Args:
        name: the set's.
        source: its pictures.
        shards: files per split; None makes one for every `PER_SHARD` pictures.
        row_group: pictures of a row group.
        seed: of the order of storage.

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
        """Split by split, in the order of storage."""
        labels = labels_of(self.source.classes)
        found = []
        for split, items in self.source.splits.items():
            ordered = shards.stored_order(items, self.seed)
            places = shards.divided(len(ordered), self.shards or -(-len(ordered) // PER_SHARD))
            for number, part in enumerate(places):
                name = f"{split}-{number:05d}-of-{len(places):05d}.parquet"
                rows = tuple((i, ordered[i], labels[ordered[i].label]) for i in part)
                found.append(Work(split=split, name=name, items=rows))
        return tuple(found)

    @cached_property
    def described(self) -> dict[str, Any]:
        """What a target's plan.json says: two plans that differ here cannot continue each other."""
        h = hashlib.sha256()
        for work in self.works:
            for index, item, label in work.items:
                h.update(f"{work.name} {index} {item.name} {item.offset} {item.size} {label}\n".encode())
        pictures = {split: len(items) for split, items in self.source.splits.items()}
        return {
            "format": FORMAT, "name": self.name, "seed": self.seed, "row_group": self.row_group, "pictures": pictures,
            "digest": h.hexdigest(),
        }  # fmt: skip

    def manifest(self, written: Mapping[str, Written], *, skip_damaged: bool) -> Manifest:
        """The manifest, once every shard was written.

        Raises:
            UserError: damaged pictures that are not to be left out, or a split without a whole one.
        """
        damaged = [name for work in self.works for name in written[work.name].damaged]
        if damaged and not skip_damaged:
            more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
            raise UserError(
                f"from must hold whole pictures, got {len(damaged)} damaged: {'; '.join(damaged[:SHOWN])}{more}; "
                "--skip-damaged leaves them out"
            )
        splits = {}
        for split in self.source.splits:
            parts = [written[w.name] for w in self.works if w.split == split]
            if not any(p.images for p in parts):
                raise UserError(f"from must hold whole pictures of the split {split}, got damaged ones only")
            splits[split] = Split(
                shards=tuple(p.shard for p in parts), fingerprint=fingerprint([i for p in parts for i in p.images])
            )
        classes = self.source.classes
        return Manifest(
            name=self.name, classes=classes, seed=self.seed,
            words=tuple(self.source.words.get(c, "") for c in classes) if self.source.words else (),
            splits=splits, converted=sum(w.converted for w in written.values()), skipped=tuple(damaged),
        )  # fmt: skip


def report_of(written: Written) -> bytes:
    """A written shard's report as a file."""
    data = {"shard": vars(written.shard), "images": written.images, "converted": written.converted}
    return json.dumps({**data, "damaged": written.damaged}).encode()


def read_report(data: bytes) -> Written:
    """What `report_of` wrote.

    Raises:
        ValueError: it is torn.
    """
    try:
        found = json.loads(data)
        return Written(
            shard=Shard(**{**found["shard"], "rows": tuple(found["shard"]["rows"])}),
            images=tuple((int(i), int(label), str(sha)) for i, label, sha in found["images"]),
            converted=int(found["converted"]), damaged=tuple(found["damaged"]),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"no report of a shard: {error!r}") from None


def unfinished(works: Sequence[Work], written: Mapping[str, Written]) -> list[Work]:
    """The shards that are still to be written."""
    return [w for w in works if w.name not in written]
