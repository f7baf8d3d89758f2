"""Arrays that evaluation functions are given, checked once: what is wrong with one is a single line."""

from __future__ import annotations

from typing import Any

import numpy as np

from raychains.errors import UserError, require
from raychains.evaluation.base import Array

TOLERANCE = 1e-2
"""How far a row of probabilities may sum from 1: those of half-precision log-probabilities are off by 1e-3."""


def finite(values: Any, field: str) -> Array:
    """``values`` as float64 [n], n ≥ 1.

    Raises:
        UserError: another shape, nothing in it, no numbers, or one that is not finite.
    """
    out = as_float(values, field)
    require(out.ndim == 1 and out.size > 0, field, list(out.shape), "have the shape [n] with n of 1 or more")
    wrong = np.flatnonzero(~np.isfinite(out))
    if len(wrong):
        raise UserError(f"{field} must be finite, got {out[wrong[0]]} as number {wrong[0]} of {len(out)}")
    return out


def probabilities(values: Any, field: str, *shape: str) -> Array:
    """``values`` as float64 [..., classes] whose rows are distributions.

    Args:
        shape: what the axes are, e.g. ``"samples", "n", "classes"``: their number is checked, and that none is empty.

    Raises:
        UserError: another number of axes, an empty axis, a negative or non-finite entry, or a row that sums more than
            `TOLERANCE` away from 1.
    """
    out = as_float(values, field)
    wanted = f"have the shape [{', '.join(shape)}] with no axis empty"
    require(out.ndim == len(shape) and out.size > 0, field, list(out.shape), wanted)
    wrong = ~(np.isfinite(out) & (out >= 0))
    if wrong.any():
        raise UserError(f"{field} must be finite and 0 or more, got {out[wrong][0]}")
    total = out.sum(axis=-1)
    off = float(total.flat[np.abs(total - 1).argmax()])
    require(abs(off - 1) <= TOLERANCE, field, off, f"sum to 1 over the classes (± {TOLERANCE})")
    return out


def labels(values: Any, n: int, classes: int) -> Array:
    """``values`` as class numbers int64 [n].

    Raises:
        UserError: another length, no integers, or one outside [0, classes).
    """
    out = np.asarray(values)
    require(out.shape == (n,), "labels", list(out.shape), f"have the shape [{n}], one per example")
    require(np.issubdtype(out.dtype, np.integer), "labels", str(out.dtype), "be integers")
    wrong = out[(out < 0) | (out >= classes)]
    if len(wrong):
        raise UserError(f"labels must lie in [0, {classes}), got {wrong[0]}")
    return out.astype(np.int64, copy=False)


def same_shape(first: Array, second: Array, names: str) -> None:
    """Raises `UserError` unless both arrays have one shape."""
    if first.shape != second.shape:
        raise UserError(f"{names} must have the same shape, got {list(first.shape)} and {list(second.shape)}")


def at_least(value: Any, lowest: int, field: str) -> int:
    """``value`` as an integer of ``lowest`` or more; raises `UserError`."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= lowest
    require(ok, field, value, f"be an integer of {lowest} or more")
    return int(value)


def as_float(values: Any, field: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{field} must hold numbers in a regular shape, got {type(values).__name__}") from None
