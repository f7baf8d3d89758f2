"""Bootstrap intervals over test points of all of a view's metrics at once, from its rows.

A resample is how often each point was drawn: means of all metrics are then one matrix product, and sums in bins of
confidence another. `bootstrap.bootstrap` draws the same resamples and gives the same intervals for any function of rows,
one call per resample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from raychains.errors import require
from raychains.evaluation import metrics
from raychains.evaluation.arrays import at_least
from raychains.evaluation.base import BINS, Array, Rows
from raychains.evaluation.bootstrap import AT_ONCE
from raychains.evaluation.calibration import mass_bin, width_bin

RESAMPLES = 1000
BINNED = ("ece", "ece_mass")
"""Metrics whose resamples overstate them: a bin's scatter counts as error, and a resample's scatters once more."""


def intervals(
    rows: Rows,
    names: Iterable[str],
    *,
    bins: int = BINS,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """(low, high) of each metric over test points drawn with replacement, in the metric's unit.

    The percentile interval; of calibration errors (`BINNED`) moved down by what the mean of the resamples is above the
    value, so that it says how far the value may be due to these test points and does not exclude it. Samples are held:
    about other chains the standard error over repeats speaks.

    Metrics that rows do not determine are left out (``classwise_ece``, those of densities), as are all where there is
    a single point or a row that is not finite.

    Args:
        rows: a view's, [points] each.
        names: of metrics.
        bins: of calibration errors.
        level: of the intervals, in (0, 1).
        resamples: how many.
        seed: integer of 0 or more.

    Raises:
        UserError: an argument out of range.
    """
    require(0 < level < 1, "level", level, "lie in (0, 1)")
    resamples, seed, bins = at_least(resamples, 2, "resamples"), at_least(seed, 0, "seed"), at_least(bins, 1, "bins")
    wanted = list(names)
    points = {name: values for name in wanted if (values := _points(name, rows)) is not None}
    binned = [name for name in wanted if name in BINNED and {"confidence", "prediction", "label"} <= set(rows)]
    n = len(next(iter(rows.values()), ()))
    columns = [*points.values(), *([np.asarray(rows["confidence"])] if binned else [])]
    if n < 2 or not columns or not all(np.isfinite(values).all() for values in columns):
        return {}
    values = np.stack([*points.values(), np.zeros(n)], axis=1)  # never empty
    calibrations = [_Binned(rows, bins, equal_mass=name == "ece_mass") for name in binned]
    means, errors = [], []
    for counts in _counts(n, resamples, seed):
        means.append(counts @ values / n)
        errors.append([each(counts) for each in calibrations])
    replicates = dict(zip(points, np.concatenate(means).T, strict=False))
    for name, transformed in metrics.OF_MEANS.items():
        if name in replicates:
            replicates[name] = transformed(replicates[name])
    for i, (name, each) in enumerate(zip(binned, calibrations, strict=True)):
        found = np.concatenate([batch[i] for batch in errors])
        replicates[name] = np.maximum(found - (found.mean() - float(each(np.ones((1, n)))[0])), 0.0)
    ends = ((1 - level) / 2, (1 + level) / 2)
    quantiles = {name: np.quantile(replicates[name], ends) for name in wanted if name in replicates}
    return {name: (float(low), float(high)) for name, (low, high) in quantiles.items()}


def with_intervals(rows: Rows, names: Iterable[str], *, bins: int = BINS, seed: int = 0) -> dict[str, float]:
    """``<metric>_low`` and ``<metric>_high`` of the 95 % `intervals`, as columns of a table of views."""
    found = intervals(rows, names, bins=bins, seed=seed)
    return {
        f"{name}_{end}": value for name, ends in found.items() for end, value in zip(("low", "high"), ends, strict=True)
    }


class _Binned:
    """Σ_b |Σ_{i in b} c_i·(right_i − confidence_i)|/Σ c of resamples that draw point i c_i times."""

    def __init__(self, rows: Rows, bins: int, *, equal_mass: bool) -> None:
        confidence = np.clip(np.asarray(rows["confidence"], dtype=np.float64), 0, 1)
        right = np.asarray(rows["prediction"]) == np.asarray(rows["label"])
        self._bins, self._equal_mass = bins, equal_mass
        # Points of the same confidence share every bin: they are brought together.
        self._order = np.argsort(confidence, kind="stable")
        ordered = confidence[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self._gap = (right - confidence)[self._order]
        self._width_bin = width_bin(ordered[self._starts], bins)

    def __call__(self, counts: Array) -> Array:
        """Of counts [resamples, points], [resamples]."""
        drawn, n = counts[:, self._order], int(counts[0].sum())
        gaps = np.add.reduceat(drawn * self._gap, self._starts, axis=1)
        which = np.broadcast_to(self._width_bin, gaps.shape)
        if self._equal_mass:
            tied = np.add.reduceat(drawn, self._starts, axis=1).astype(np.int64)
            which = mass_bin(np.cumsum(tied, axis=1) - tied, tied, n, self._bins)
        at = which + self._bins * np.arange(len(counts))[:, None]
        sums = np.bincount(at.ravel(), weights=gaps.ravel(), minlength=len(counts) * self._bins)
        return np.abs(sums.reshape(len(counts), self._bins)).sum(axis=1) / n


def _points(name: str, rows: Rows) -> Array | None:
    """What the metric is a mean of, float64 [points]; None where the rows do not tell."""
    if name not in metrics.POINTS:
        return None
    try:
        return np.asarray(metrics.POINTS[name](rows), dtype=np.float64)
    except KeyError:
        return None


def _counts(n: int, resamples: int, seed: int) -> Iterator[Array]:
    """How often each point is drawn, float64 [some resamples, n], a batch at a time."""
    rng = np.random.default_rng(seed)
    batch = max(1, AT_ONCE // n)
    for first in range(0, resamples, batch):
        some = min(batch, resamples - first)
        at = rng.integers(0, n, (some, n)) + n * np.arange(some)[:, None]
        yield np.bincount(at.ravel(), minlength=some * n).reshape(some, n).astype(np.float64)
