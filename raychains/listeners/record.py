"""An event as plain JSON data: what it is called, its fields, numbers that are none as null."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from raychains.planning.comparison import Comparison
from raychains.spec import ChainSpec
from raychains.store import RunStore


def name_of(happening: Any) -> str:
    """``chain-failed`` of a `ChainFailed`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(happening).__name__).lower()


def record(happening: Any) -> dict[str, Any]:
    """The event's fields under their names; of a comparison what identifies it, since plan.json holds all of it."""
    fields = {f.name: getattr(happening, f.name) for f in dataclasses.fields(happening)}
    if isinstance(comparison := fields.pop("comparison", None), Comparison):
        fields |= _plan(comparison)
    return {"event": name_of(happening), **plain(fields)}


def _plan(comparison: Comparison) -> dict[str, Any]:
    arms = [
        {
            "name": arm.name,
            "label": arm.label,
            "repeats": arm.repeats,
            "cost": arm.cost,
            "chains": [[spec.digest for spec in group] for group in arm.chains],
        }
        for arm in comparison.arms
    ]
    return {
        "task": comparison.task,
        "unit": comparison.unit,
        "split": comparison.split,
        "plan": comparison.digest,
        "arms": arms,
    }


def plain(value: Any) -> Any:
    """Nested plain data; a chain's spec becomes its digest, a folder its location, numpy's numbers become Python's, NaN and infinities null, anything else its text."""
    if isinstance(value, ChainSpec):
        return value.digest
    if isinstance(value, RunStore):
        return value.location()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
