"""A data root's declaration of its stand-ins: `stand-ins.json` names each file's md5 and each split's count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raychains.core import bounded
from raychains.core.errors import UserError
from raychains.data.formats import read_checked

FILE = "stand-ins.json"
FORMAT = 1
NOTE = "data: stand-ins, not {name}"
"""The note on them in a run's plan."""
CLASS = "stand-in-"
"""Begins the names of classes of pictures in a prepared set's manifest, before a number."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The stand-ins of one data root, which holds no other sets of these kinds."""

    root: Path
    made: Mapping[str, int]
    """Their settings: train, test, seed, revision."""
    md5s: Mapping[str, str]
    """By the file's path below ``root``."""
    counts: Mapping[str, Mapping[str, int]]
    """By data set: images of each split, or examples of each class of a table."""

    def dumps(self) -> str:
        """Return the text of `stand-ins.json`."""
        fields = {"format": FORMAT, "made": self.made, "counts": self.counts, "md5": self.md5s}
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    def check(self, path: Path, name: str) -> None:
        """Refuse a file of the data set ``name`` that is not the declared one.

        Raises:
            UserError: it is not declared, is missing, or has another md5.
        """
        md5 = self.md5s.get(path.relative_to(self.root).as_posix())
        if md5 is None:
            raise UserError(
                f"data set {name}: {self.root} holds stand-ins and {path} is none of them: "
                "published files belong into a folder of their own"
            )
        read_checked(path, md5, name, declared=True)

    def of(self, name: str, *splits: str) -> Mapping[str, int]:
        """Return the counts of the data set ``name``, among them those of ``splits``.

        Raises:
            UserError: there is none.
        """
        found = self.counts.get(name, {})
        for split in (*splits, *[name] * (name not in self.counts)):
            if split not in found:
                raise UserError(f"data set {name}: {self.root} holds stand-ins, but none of {split}")
        return found


def find(root: Path) -> Declaration | None:
    """Return the declaration of ``root``; None where it holds no stand-ins.

    Raises:
        UserError: `stand-ins.json` is there and cannot be read.
    """
    path = root / FILE
    try:
        text = bounded.read(path).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not _right(fields):
        raise UserError(f"{path} must declare stand-ins in format {FORMAT}: it is damaged; make them anew elsewhere")
    return Declaration(root=root, made=fields["made"], md5s=fields["md5"], counts=fields["counts"])


def _right(fields: Any) -> bool:
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        return False
    tables: list[Any] = [fields.get(key) for key in ("made", "md5", "counts")]
    if not all(isinstance(table, dict) for table in tables):
        return False
    made, md5s, counts = tables
    numbers = [made, *counts.values()]
    whole = all(isinstance(table, dict) and all(type(n) is int for n in table.values()) for table in numbers)
    return whole and all(isinstance(md5, str) for md5 in md5s.values())
