"""Files of predictive probabilities: .npy, .npz and .csv, checked row by row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from raychains.core.errors import UserError, format_error, require, shown
from raychains.core.validation import path_of

SUM = 1e-3
"""By how much a row's sum may differ from 1: half precision and printed digits."""
MAGIC = b"\x93NUMPY"
"""The first bytes of a .npy file."""
FORMATS = (".npy", ".npz", ".csv")


def load(given: Any, name: str = "reference") -> np.ndarray[Any, Any]:
    """Return probabilities [examples, classes], float64: an array, or a file's.

    A .npz holds one array, or one that is called ``probabilities``; a .csv numbers between commas or blanks, a line for
    each example, under a line of names or none.

    Args:
        given: an array or a path.
        name: the argument's, for messages.

    Raises:
        UserError: no such file, another format, or rows that are no probabilities.
    """
    found, where = numbers(given, name), "an array" if isinstance(given, np.ndarray) else shown(os.fspath(given))
    wrong = ~(np.isfinite(found).all(axis=1) & (found >= 0).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= SUM))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{name} must hold probabilities, rows of numbers in [0, 1] that sum to 1, got row {row} of {where} with "
            f"the sum {found[row].sum():.6g} and the smallest number {found[row].min():.6g} ({int(wrong.sum()):,} "
            f"such rows of {len(wrong):,})"
        )
    return found


def numbers(given: Any, name: str, columns: str = "classes") -> np.ndarray[Any, Any]:
    """Return numbers [examples, columns], float64, of an array or a file as `load` reads it.

    Raises:
        UserError: no such file, another format, or another number of axes.
    """
    require(isinstance(given, np.ndarray | str | os.PathLike), name, given, "be an array or a path")
    file = None if isinstance(given, np.ndarray) else path_of(name, given)
    found = given if file is None else _read(Path(file), name)
    if found.ndim != 2 or found.dtype.kind not in "fiu" or found.size == 0:
        got = f"{'an array' if file is None else shown(file)} with {found.dtype} of shape {list(found.shape)}"
        raise UserError(f"{name} must hold numbers of shape [examples, {columns}], got {got}")
    return found.astype(np.float64)


def _read(path: Path, name: str) -> np.ndarray[Any, Any]:
    require(path.suffix in FORMATS, name, str(path), f"be a file {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    require(path.is_file(), name, str(path), "be an existing file")
    try:
        if path.suffix == ".csv":
            return _csv(path)
        if path.suffix == ".npy":
            with path.open("rb") as f:
                require(f.read(len(MAGIC)) == MAGIC, name, str(path), "be a .npy file of NumPy: it begins otherwise")
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            return opened
        with opened:
            names = list(opened)
            key = "probabilities" if "probabilities" in names else names[0] if len(names) == 1 else None
            if key is None:
                held = ", ".join(names) or "none"
                raise UserError(
                    f"{name} must hold one array, or one called probabilities, got {shown(str(path))} with {held}"
                )
            return np.asarray(opened[str(key)])
    except UserError:
        raise
    except Exception as error:  # of a damaged archive or header: of many kinds
        raise UserError(
            f"{name} must be a readable {path.suffix} file, got {str(path)!r}: {format_error(error)}"
        ) from None


def _csv(path: Path) -> np.ndarray[Any, Any]:
    with path.open(encoding="utf-8") as lines:
        first = lines.readline()
    delimiter = "," if "," in first else None
    try:
        words = [word.strip() for word in first.split(delimiter)]
        # The classes' numbers, as pandas writes them; of two classes they may be a row.
        header = int(len(words) > 2 and words == [str(i) for i in range(len(words))])
        [float(word) for word in words]
    except ValueError:
        header = 1
    return np.loadtxt(path, delimiter=delimiter, skiprows=header, ndmin=2)
