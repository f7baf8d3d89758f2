"""Small published tables: UCI sets with two classes or a real target, and scikit-learn's handwritten digits."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from raychains.core.data_root import data_root
from raychains.core.errors import UserError, unknown_name
from raychains.data import standin_manifest
from raychains.data.formats import read_checked

FOLDER = "uci"
"""Below the data root."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One file of numbers, a line per example, with the label or target last.

    Numbers stand between blanks; in a file with ``columns``, between commas below a line of names.
    """

    name: str
    file: str
    examples: int
    features: int
    origin: str
    """The file that it is, for users who lack it."""
    columns: tuple[str, ...] = ()
    """Names of the columns that are read, the last one last."""
    counts: Mapping[int, int] | None = None
    """Examples of each of two classes, as the repository states them; the larger class is label 1. None: targets are
    real."""
    md5: str | None
    """Digest of the numbers that are read (`digest`), because copies of a file differ in blanks and line ends; None
    checks nothing."""


@dataclass(frozen=True, eq=False)
class Targeted:
    """A data set as it is published: nothing is scaled."""

    name: str
    features: np.ndarray
    """[n, features] float64"""
    targets: np.ndarray
    """[n] float64; labels 0 and 1 of two classes."""
    fingerprint: str
    """`digest` of the numbers."""
    stand_in: bool = False
    """True if this is a stand-in of the published set (`raychains.data.standins`)."""


TABLES: dict[str, Table] = {
    name: Table(
        name=name,
        file=file,
        examples=sum(counts.values()),
        features=features,
        origin="Statlog data",
        counts=counts,
        md5=md5,
    )
    for name, file, counts, features, md5 in (
        ("australian", "australian.dat", {0: 383, 1: 307}, 14, "ef925649864c2c4d5ea67f934c3dd958"),
        ("german", "german.data-numeric", {1: 700, 2: 300}, 24, "4f1e0a984d840985e745d44421595c75"),
        ("heart", "heart.dat", {1: 150, 2: 120}, 13, "b8c7d05fc735dc4a03d206fa3b4efd7b"),
    )
}
"""Statlog's Australian credit approval, German credit (numeric version) and heart disease. The md5s are ours: none are
published; they are of copies that agree with others and with the published counts."""


_BIKES = "season yr mnth hr holiday weekday workingday weathersit temp atemp hum windspeed cnt"
REGRESSION_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            name="airfoil",
            file="airfoil.data",
            examples=1503,
            features=5,
            origin="airfoil self-noise",
            md5="67f987743753cb2000ba11f3c3f05a4e",
        ),
        Table(
            name="bikesharing",
            file="bikesharing-hour.csv",
            examples=17_379,
            features=12,
            origin="bike sharing, hour.csv",
            columns=tuple(_BIKES.split()),
            md5="e550a8b7ed33989788e66acaa0534f65",
        ),
        Table(
            name="concrete",
            file="concrete.data",
            examples=1030,
            features=8,
            origin="concrete compressive strength",
            md5="18ae5d5457908331f68e6f1643ae58d7",
        ),
        Table(
            name="energy",
            file="energy.data",
            examples=768,
            features=8,
            origin="energy efficiency, with the heating load last and without the cooling load",
            md5="0869a806f2899cee217ba3eca74ba036",
        ),
        Table(
            name="yacht",
            file="yacht.data",
            examples=308,
            features=6,
            origin="yacht hydrodynamics",
            md5="d5fe52b3074e0c440dfa09b350d9f8c5",
        ),
        Table(
            name="protein",
            file="protein.data",
            examples=45_730,
            features=9,
            origin="physicochemical properties of protein tertiary structure, with RMSD last",
            md5="5e7d369b4c50fbabfcd1fad6268450f9",
        ),
    )
}
"""Regression sets of the UCI repository. The md5s are ours: none are published; they are of copies with the published
counts."""
EXAMPLES = "examples"
"""The split under which a data root of stand-ins declares how many examples a table with real targets has."""


def load(name: str, root: str | Path | None = None) -> Targeted:
    """Return a data set of `TABLES` or `REGRESSION_TABLES`.

    Label 1 is an approved credit (australian), a bad risk (german), a disease (heart).

    Raises:
        UserError: an unknown name; a file that is missing, damaged, or of other numbers.
    """
    known = {**TABLES, **REGRESSION_TABLES}
    if name not in known:
        raise unknown_name("data set", name, known)
    table, folder = known[name], data_root(None if root is None else str(root))
    stand_ins = standin_manifest.find(folder)
    if stand_ins is None:
        return read(table, folder)
    declared = stand_ins.of(name, *(map(str, table.counts) if table.counts is not None else (EXAMPLES,)))
    counts = {label: declared[str(label)] for label in table.counts} if table.counts is not None else None
    stand_ins.check(folder / FOLDER / table.file, name)
    made = dataclasses.replace(table, examples=sum(declared.values()), counts=counts, md5=None)
    return dataclasses.replace(read(made, folder), stand_in=True)


def read(table: Table, root: Path) -> Targeted:
    """Return one file below ``root``, checked.

    Raises:
        UserError: as `load`.
    """
    path = _path(table.name, root, table.file, table.origin)
    lines = _lines(table.name, path)
    rows = _selected(table, path, lines) if table.columns else [line.split() for line in lines]
    numbers = _numbers(table.name, path, rows, (table.examples, table.features + 1))
    found = _checked_digest(table.name, path, numbers, table.md5)
    targets = numbers[:, -1].copy() if table.counts is None else _labels(table, path, numbers[:, -1])
    return Targeted(table.name, np.ascontiguousarray(numbers[:, :-1]), targets, found)


def _labels(table: Table, path: Path, classes: np.ndarray) -> np.ndarray:
    """Return labels 0 and 1, [n] float64, of two classes, as many of each as there must be."""
    assert table.counts is not None
    counts = {int(c): int((classes == c).sum()) for c in np.unique(classes)}
    if counts != dict(table.counts):
        raise UserError(f"data set {table.name}: {path} must hold the classes {dict(table.counts)}, got {counts}")
    return (classes == max(table.counts)).astype(np.float64)


def _selected(table: Table, path: Path, lines: Sequence[str]) -> list[list[str]]:
    """Return the cells of the table's columns, [n, columns], from a file with a head."""
    try:
        head, *rows = csv.reader(lines) if lines else [[]]
    except csv.Error as error:
        raise UserError(f"data set {table.name}: {path} must hold cells between commas: {error}") from None
    missing = [name for name in table.columns if name not in head]
    if missing:
        raise UserError(
            f"data set {table.name}: the first line of {path} must name the column {missing[0]}, got "
            f"{', '.join(head) or 'none'}"
        )
    places = [head.index(name) for name in table.columns]
    return [[row[i] for i in places] if len(row) == len(head) else row for row in rows]


def _path(name: str, root: Path, file: str, origin: str) -> Path:
    path = root / FOLDER / file
    if not path.is_file():
        raise UserError(
            f"data set {name}: no file {path}; put there: {file} of the UCI repository's {origin} "
            "(another folder: `data_root` or RAYCHAINS_DATA)"
        )
    return path


def _lines(name: str, path: Path) -> list[str]:
    """Return the lines of a file that are not blank."""
    text = read_checked(path, None, name).decode("utf-8", "replace")
    return [line for line in text.splitlines() if line.strip()]


def _numbers(name: str, path: Path, rows: Sequence[Sequence[str]], expected: tuple[int, int]) -> np.ndarray:
    """Return all numbers of the rows, of the shape ``expected``."""
    widths = {len(r) for r in rows}
    if len(rows) != expected[0] or widths != {expected[1]}:
        width = " or ".join(map(str, sorted(widths))) or "no"
        raise UserError(
            f"data set {name}: {path} must hold {expected[0]} lines of {expected[1]} numbers, "
            f"got {len(rows)} of {width}"
        )
    try:
        found = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise UserError(f"data set {name}: {path} must hold numbers alone: {error}") from None
    if not np.isfinite(found).all():
        raise UserError(f"data set {name}: {path} must hold finite numbers alone")
    return found


def _checked_digest(name: str, path: Path, numbers: np.ndarray, md5: str | None) -> str:
    found = digest(numbers)
    if md5 is not None and found != md5:
        raise UserError(
            f"data set {name}: the numbers of {path} have md5 {found}, expected {md5}: "
            "the file is damaged or another version"
        )
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
    table = _digits(path)
    return (table[:, :-1] / 16.0).astype(np.float32), table[:, -1].astype(np.int64)


@cache
def _digits(path: Path) -> np.ndarray:
    """Return the table of scikit-learn's digits, which a process reads once: parsing takes longer than a short
    chain."""
    with gzip.open(path) as f:
        return np.loadtxt(f, delimiter=",")
