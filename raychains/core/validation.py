"""Checks of settings' values, shared by schedules, samplers, models and tasks."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from raychains.core.errors import UserError, require

MOST = 2**53
"""Largest integer that settings may have: shares of it are exact as floats."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a finite int or float (bools are not numbers here)."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


def as_number(value: Any) -> Any:
    """Return a scalar of NumPy or torch as Python's, anything else as it is."""
    with contextlib.suppress(Exception):  # of a user's class
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return value.item()
    return value


def integer(field: str, value: object, least: int = 0, most: int | None = None, why: str = "") -> None:
    """Refuse anything but an integer of at least ``least``, and of at most ``most``; ``why`` begins with ": "."""
    ok = is_int(value) and least <= value and (most is None or value <= most)
    require(
        ok, field, value, f"be an integer {f'of at least {least}' if most is None else f'in [{least}, {most}]'}{why}"
    )


def one_of(field: str, value: object, known: Sequence[str]) -> None:
    """Refuse anything but one of the ``known`` texts."""
    allowed = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
    require(isinstance(value, str) and value in known, field, value, f"be {allowed}")


def path_of(field: str, value: Any) -> str:
    """Return a path as a text.

    Raises:
        UserError: something else, or what no file can be called.
    """
    try:
        path = os.fspath(value)
        ok = isinstance(path, str) and bool(path) and b"\0" not in os.fsencode(path)
    except Exception:  # no path, one of a user's class, or half a surrogate pair
        ok = False
    require(ok, field, value, "be a path")
    return str(path)


def true_or_false(field: str, value: object) -> None:
    """Refuse anything but True and False."""
    require(isinstance(value, bool), field, value, "be true or false")


def positive_int(field: str, value: object, why: str = "") -> None:
    """Refuse anything but an integer of at least 1, and of at most what a float holds exactly."""
    integer(field, value, 1, why=why)
    if value > MOST:  # type: ignore[operator]
        raise UserError(f"{field} must be at most {MOST}, got more")


def fraction(field: str, value: object, why: str = "") -> None:
    """Refuse anything but a number in [0, 1); ``why`` begins with ": "."""
    require(is_number(value) and 0 <= value < 1, field, value, f"lie in [0, 1){why}")


def open_fraction(field: str, value: object, why: str = "") -> None:
    """Refuse anything but a number in (0, 1); ``why`` begins with ": "."""
    require(is_number(value) and 0 < value < 1, field, value, f"lie in (0, 1){why}")


def above_1(field: str, value: object) -> None:
    """Refuse anything but a finite number above 1."""
    require(is_number(value) and value > 1, field, value, "be a number above 1")


def positive(field: str, value: object) -> None:
    """Refuse anything but a finite number above 0."""
    require(is_number(value) and value > 0, field, value, "be a finite number above 0")


def at_least_0(field: str, value: object) -> None:
    """Refuse anything but a finite number of at least 0."""
    require(is_number(value) and value >= 0, field, value, "be a finite number of at least 0")


LONGEST_PART = 200
"""Bytes of one part of a path; filesystems take 255, of which a temporary name needs some."""


def local_file(field: str, value: str) -> None:
    """Refuse anything but a local file, there or not, in a folder that exists."""
    ok = _is_path(value) and Path(value).parent.is_dir() and not os.path.isdir(value)
    require(ok, field, value, "be a local file in a folder that exists")


def local_folder(field: str, value: str) -> None:
    """Refuse anything but a local folder, there or not."""
    require("://" not in value and _is_path(value) and not os.path.isfile(value), field, value, "be a local folder")


def _is_path(value: str) -> bool:
    """Return whether a file or folder can have this name."""
    try:
        name = os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return bool(name) and b"\0" not in name and all(len(part) <= LONGEST_PART for part in name.split(b"/"))


def is_int(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is an integer and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)
