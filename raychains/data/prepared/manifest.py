"""The manifest of a prepared image set: classes, shards, row groups, checksums. Written last; nothing is read without it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from raychains.errors import UserError

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
    """What a prepared set is."""

    name: str
    classes: tuple[str, ...]
    """Names of the classes, WordNet ids for ImageNet, sorted: a label is a place among them."""
    words: tuple[str, ...]
    """What people call each class; empty where the source does not say."""
    seed: int
    """Of the order of storage."""
    splits: Mapping[str, Split]
    converted: int
    """Pictures that were written anew as RGB JPEG: CMYK, palettes, PNG."""
    skipped: tuple[str, ...]
    """Damaged pictures that were left out, by name."""

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def dumps(self) -> bytes:
        """As a file's bytes."""
        return (json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes, where: str) -> Manifest:
        """The manifest in a file's bytes.

        Raises:
            UserError: no manifest, or one of a later format.
        """
        try:
            found = json.loads(data)
            if found["format"] > FORMAT:
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
            return cls(
                name=found["name"], classes=tuple(found["classes"]), words=tuple(found["words"]), seed=found["seed"],
                splits=splits, converted=found["converted"], skipped=tuple(found["skipped"]),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{where} must be the manifest of a prepared image set, got a file that is none ({error!r})"
            ) from None


def fingerprint(images: Sequence[tuple[int, int, str]]) -> str:
    """Of (index, label, sha256 of the bytes), in any order."""
    h = hashlib.sha256()
    for index, label, digest in sorted(images):
        h.update(f"{index} {label} {digest}\n".encode())
    return h.hexdigest()
