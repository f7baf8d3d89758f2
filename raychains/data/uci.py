"""Three small UCI data sets with two classes, as the papers on Bayesian logistic regression use them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raychains.data import declared
from raychains.data.checksums import read_checked
from raychains.data.root import data_root
from raychains.errors import UserError, unknown_name

FOLDER = "uci"
"""Below the data root."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One file: numbers between blanks, a line per example, the class last."""

    name: str
    file: str
    counts: Mapping[int, int]
    """Examples of each class, as the repository states them; the larger class is label 1."""
    features: int
    md5: str | None
    """Of the numbers (`digest`), because copies of a file differ in blanks and line ends; None checks nothing."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """A data set as it is published: nothing is scaled."""

    name: str
    features: np.ndarray
    """[n, features] float64"""
    labels: np.ndarray
    """[n] float64, 0 or 1"""
    fingerprint: str
    """`digest` of the file's numbers."""
    stand_in: bool = False
    """Whether this is a stand-in of the published set (`raychains.data.standins`)."""


TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        Table(
            name="australian",
            file="australian.dat",
            counts={0: 383, 1: 307},
            features=14,
            md5="ef925649864c2c4d5ea67f934c3dd958",
        ),
        Table(
            name="german",
            file="german.data-numeric",
            counts={1: 700, 2: 300},
            features=24,
            md5="4f1e0a984d840985e745d44421595c75",
        ),
        Table(
            name="heart",
            file="heart.dat",
            counts={1: 150, 2: 120},
            features=13,
            md5="b8c7d05fc735dc4a03d206fa3b4efd7b",
        ),
    )
}
"""Statlog's Australian credit approval, German credit (numeric version) and heart disease. Of the md5s, ours: nobody
publishes any; they are of copies that agree with others and with the published counts."""


def load(name: str, root: str | Path | None = None) -> Labelled:
    """The data set ``name``; label 1 is an approved credit (australian), a bad risk (german), a disease (heart).

    Args:
        name: one of `TABLES`.
        root: the data root; None is `raychains.data.root.data_root`'s choice.

    Raises:
        UserError: an unknown name; a file that is missing, damaged, or of other numbers.
    """
    if name not in TABLES:
        raise unknown_name("data set", name, TABLES)
    table, folder = TABLES[name], data_root(None if root is None else str(root))
    stand_ins = declared.find(folder)
    if stand_ins is None:
        return read(table, folder)
    counts = {int(label): n for label, n in stand_ins.of(name).items()}
    stand_ins.check(folder / FOLDER / table.file, name)
    found = read(dataclasses.replace(table, counts=counts, md5=None), folder)
    return dataclasses.replace(found, stand_in=True)


def read(table: Table, root: Path) -> Labelled:
    """One file below ``root``, checked.

    Raises:
        UserError: as `load`.
    """
    path = root / FOLDER / table.file
    if not path.is_file():
        raise UserError(
            f"data set {table.name}: no file {path}; put there: {table.file} of the UCI repository's Statlog data "
            "(another folder: --data-root or RAYCHAINS_DATA)"
        )
    numbers = _numbers(table, path)
    found = digest(numbers)
    if table.md5 is not None and found != table.md5:
        raise UserError(
            f"data set {table.name}: the numbers of {path} have md5 {found}, expected {table.md5}: "
            "the file is damaged or another version"
        )
    classes = numbers[:, -1]
    counts = {int(c): int((classes == c).sum()) for c in np.unique(classes)}
    if counts != dict(table.counts):
        raise UserError(f"data set {table.name}: {path} must hold the classes {dict(table.counts)}, got {counts}")
    labels = (classes == max(table.counts)).astype(np.float64)
    return Labelled(table.name, np.ascontiguousarray(numbers[:, :-1]), labels, found)


def _numbers(table: Table, path: Path) -> np.ndarray:
    """All numbers of the file, [n, features + 1]."""
    lines = read_checked(path, None, table.name).decode("utf-8", "replace").splitlines()
    rows = [line.split() for line in lines if line.strip()]
    expected = (sum(table.counts.values()), table.features + 1)
    widths = {len(r) for r in rows}
    if len(rows) != expected[0] or widths != {expected[1]}:
        width = " or ".join(map(str, sorted(widths))) or "no"
        raise UserError(
            f"data set {table.name}: {path} must hold {expected[0]} lines of {expected[1]} numbers, "
            f"got {len(rows)} of {width}"
        )
    try:
        found = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise UserError(f"data set {table.name}: {path} must hold numbers alone: {error}") from None
    if not np.isfinite(found).all():
        raise UserError(f"data set {table.name}: {path} must hold finite numbers alone")
    return found


def digest(numbers: np.ndarray) -> str:
    """md5 of a table's numbers: its shape and its values, row by row, as little-endian doubles."""
    values = np.ascontiguousarray(numbers, dtype="<f8") + 0.0  # −0 is 0
    return hashlib.md5(repr(values.shape).encode() + values.tobytes(), usedforsecurity=False).hexdigest()
