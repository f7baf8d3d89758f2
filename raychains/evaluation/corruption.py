"""Errors on corrupted inputs, put together over types and severities, plain and relative to a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raychains.errors import UserError, require
from raychains.evaluation.base import Array

Table = Mapping[str, Mapping[int, float]]
"""A metric by type of corruption and severity, e.g. ``{"fog": {1: .06, 2: .07}}``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrupted:
    """A metric over a full grid of types and severities. Means weigh each type and each severity the same."""

    types: tuple[str, ...]
    severities: tuple[int, ...]
    values: Array
    """[types, severities], in the metric's unit."""

    @property
    def by_type(self) -> dict[str, float]:
        """Mean over the severities."""
        return dict(zip(self.types, self.values.mean(axis=1).tolist(), strict=True))

    @property
    def by_severity(self) -> dict[int, float]:
        """Mean over the types."""
        return dict(zip(self.severities, self.values.mean(axis=0).tolist(), strict=True))

    @property
    def mean(self) -> float:
        """Mean over the grid."""
        return float(self.values.mean())


def collect(table: Table) -> Corrupted:
    """The grid of a table, types in its order and severities ascending.

    Raises:
        UserError: nothing in it, types with different severities (their means would be of different things), or a value
            that is not finite.
    """
    require(bool(table) and all(table.values()), "corruptions", dict(table), "hold a value or more for every type")
    types, severities = tuple(table), tuple(sorted(next(iter(table.values()))))
    for kind, found in table.items():
        if set(found) != set(severities):
            raise UserError(
                f"severities must be the same for all types of corruption, got {sorted(found)} for {kind!r} and "
                f"{list(severities)} for {types[0]!r}"
            )
        for severity, value in found.items():
            require(bool(np.isfinite(value)), f"{kind} at severity {severity}", float(value), "be finite")
    values = np.array([[table[kind][severity] for severity in severities] for kind in types], dtype=np.float64)
    return Corrupted(types=types, severities=severities, values=values)


def corruption_error(errors: Corrupted, baseline: Corrupted) -> dict[str, float]:
    """CE per type: Σ_s error_s / Σ_s baseline error_s; 1 is as good as the baseline (papers print it times 100).

    Its mean over the types is the mCE, which `mean_of` gives.

    Raises:
        UserError: grids that differ, or a baseline without any error in a type.

    Source: Hendrycks & Dietterich 2019.
    """
    return _ratios(errors.types, errors.values, _on_grid(errors, baseline), "the baseline's error")


def relative_corruption_error(
    errors: Corrupted, clean: float, baseline: Corrupted, baseline_clean: float
) -> dict[str, float]:
    """Relative CE per type: the rise of the error over the clean one, as a ratio to the baseline's rise.

    Args:
        clean, baseline_clean: both models' errors on the clean test set, in the same unit as the grids.

    Raises:
        UserError: grids that differ, a clean error that is not finite, or a baseline that a type does not make worse.

    Source: Hendrycks & Dietterich 2019.
    """
    below = _on_grid(errors, baseline)
    for field, value in (("clean", clean), ("baseline_clean", baseline_clean)):
        require(bool(np.isfinite(value)), field, value, "be finite")
    return _ratios(errors.types, errors.values - clean, below - baseline_clean, "the baseline's rise in error")


def mean_of(by_type: Mapping[str, float]) -> float:
    """Mean over the types: mCE of `corruption_error`, relative mCE of `relative_corruption_error`."""
    require(bool(by_type), "types", dict(by_type), "hold at least one type")
    return float(np.mean(list(by_type.values())))


def _on_grid(errors: Corrupted, baseline: Corrupted) -> Array:
    """The baseline's values in the order of the errors' types."""
    for field in ("types", "severities"):
        ours, theirs = set(getattr(errors, field)), set(getattr(baseline, field))
        if ours != theirs:
            odd = sorted(map(str, ours ^ theirs))
            raise UserError(f"{field} of corruption must be those of the baseline, only one of the two has {odd}")
    return baseline.values[[baseline.types.index(kind) for kind in errors.types]]


def _ratios(types: tuple[str, ...], above: Array, below: Array, what: str) -> dict[str, float]:
    out = {}
    for kind, over, under in zip(types, above.sum(axis=1), below.sum(axis=1), strict=True):
        require(under > 0, f"{what} summed over the severities of {kind!r}", float(under), "be positive")
        out[kind] = float(over / under)
    return out
