"""Durations as people write them, 90, 60s, 5min, 1h, and as they read them."""

from __future__ import annotations

import math
import re

from raychains.core.errors import require
from raychains.core.validation import is_number

UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Seconds by unit; a number alone counts seconds."""
_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*")


def seconds(field: str, value: float | str) -> float:
    """A duration in seconds, from a number of seconds or a text with a unit.

    Raises:
        UserError: no duration, or one that is not finite and above 0.
    """
    allowed = "be a finite number above 0, in seconds or with a unit as in 60s, 5min or 1h"
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        known = match is not None and match[2] in UNITS
        require(known, field, value, allowed)
        found = float(match[1]) * UNITS[match[2]]  # type: ignore[index]
    else:
        require(is_number(value), field, value, allowed)
        found = float(value)
    require(math.isfinite(found) and found > 0, field, value, allowed)
    return found


def text(seconds: float) -> str:
    """Return ``40 s``, ``12 min``, ``3.5 h`` or ``2.1 d``."""
    for limit, unit, form in ((90, 1, "{:.0f} s"), (5400, 60, "{:.0f} min"), (172800, 3600, "{:.1f} h")):
        if seconds < limit:
            return form.format(seconds / unit)
    return f"{seconds / 86400:.1f} d"
