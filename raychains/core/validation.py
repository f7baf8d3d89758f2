"""Checks of settings' values, shared by schedules, samplers, models and tasks."""

from __future__ import annotations

import math
from typing import TypeGuard

from raychains.core.errors import UserError, require

MOST = 2**53
"""Largest integer that settings may have: shares of it are exact as floats."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a finite int or float (bools are not numbers here)."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


def integer(field: str, value: object, least: int = 0, most: int | None = None, why: str = "") -> None:
    """Refuse anything but an integer of at least ``least``, and of at most ``most``; ``why`` begins with ": "."""
    ok = is_int(value) and least <= value and (most is None or value <= most)
    require(
        ok, field, value, f"be an integer {f'of at least {least}' if most is None else f'in [{least}, {most}]'}{why}"
    )


def positive_int(field: str, value: object, why: str = "") -> None:
    """Refuse anything but an integer of at least 1, and of at most what a float holds exactly."""
    integer(field, value, 1, why=why)
    if value > MOST:  # type: ignore[operator]
        raise UserError(f"{field} must be at most {MOST}, got more")


def fraction(field: str, value: object, why: str = "") -> None:
    """Refuse anything but a number in [0, 1); ``why`` begins with ": "."""
    require(is_number(value) and 0 <= value < 1, field, value, f"lie in [0, 1){why}")


def positive(field: str, value: object) -> None:
    """Refuse anything but a finite number above 0."""
    require(is_number(value) and value > 0, field, value, "be a finite number above 0")


def at_least_0(field: str, value: object) -> None:
    """Refuse anything but a finite number of at least 0."""
    require(is_number(value) and value >= 0, field, value, "be a finite number of at least 0")


def is_int(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is an integer and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)
