"""Small published tables: three UCI sets with two classes, and scikit-learn's handwritten digits."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raychains.core.errors import UserError, unknown_name
from raychains.data import standin_manifest
from raychains.data.formats import read_checked
from raychains.data.root import data_root

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
    """Digest of the numbers (`digest`), because copies of a file differ in blanks and line ends; None checks nothing."""


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
    """True if this is a stand-in of the published set (`raychains.data.standins`)."""


TABLES: dict[str, Table] = {
    name: Table(name=name, file=file, counts=counts, features=features, md5=md5)
    for name, file, counts, features, md5 in (
        ("australian", "australian.dat", {0: 383, 1: 307}, 14, "ef925649864c2c4d5ea67f934c3dd958"),
        ("german", "german.data-numeric", {1: 700, 2: 300}, 24, "4f1e0a984d840985e745d44421595c75"),
        ("heart", "heart.dat", {1: 150, 2: 120}, 13, "b8c7d05fc735dc4a03d206fa3b4efd7b"),
    )
}
"""Statlog's Australian credit approval, German credit (numeric version) and heart disease. The md5s are ours: none are
published; they are of copies that agree with others and with the published counts."""


def load(name: str, root: str | Path | None = None) -> Labelled:
    """Return the data set ``name``; label 1 is an approved credit (australian), a bad risk (german), a disease (heart).

    Raises:
        UserError: an unknown name; a file that is missing, damaged, or of other numbers.
    """
    if name not in TABLES:
        raise unknown_name("data set", name, TABLES)
    table, folder = TABLES[name], data_root(None if root is None else str(root))
    stand_ins = standin_manifest.find(folder)
    if stand_ins is None:
        return read(table, folder)
    declared = stand_ins.of(name, *map(str, table.counts))
    counts = {label: declared[str(label)] for label in table.counts}
    stand_ins.check(folder / FOLDER / table.file, name)
    found = read(dataclasses.replace(table, counts=counts, md5=None), folder)
    return dataclasses.replace(found, stand_in=True)


def read(table: Table, root: Path) -> Labelled:
    """Return one file below ``root``, checked.

    Raises:
        UserError: as `load`.
    """
    path = root / FOLDER / table.file
    if not path.is_file():
        raise UserError(
            f"data set {table.name}: no file {path}; put there: {table.file} of the UCI repository's Statlog data "
            "(another folder: `data_root` or RAYCHAINS_DATA)"
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
    """Return all numbers of the file, [n, features + 1]."""
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
    """Return the md5 of a table's numbers: its shape and its values, row by row, as little-endian doubles."""
    values = np.ascontiguousarray(numbers, dtype="<f8") + 0.0  # −0 is 0
    return hashlib.md5(repr(values.shape).encode() + values.tobytes(), usedforsecurity=False).hexdigest()


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images [1797, 64] float32 in [0, 1] and labels [1797] int64, as `sklearn.datasets.load_digits` has them.

    The package's file is read directly: importing scikit-learn costs a chain worker seconds.

    Raises:
        UserError: scikit-learn is not installed, or its file is not where it has always been.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise UserError("task digits needs scikit-learn, whose package holds the data: install scikit-learn")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise UserError(f"task digits: no file {path}; reinstall scikit-learn")
    with gzip.open(path) as f:
        table = np.loadtxt(f, delimiter=",")
    return (table[:, :-1] / 16.0).astype(np.float32), table[:, -1].astype(np.int64)
