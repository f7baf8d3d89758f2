"""Bootstrap intervals over test points: of all of a view's metrics at once, and of differences of two predictives.

The test points are resampled and the samples held: an interval says nothing about other chains, for which there is the
standard error over repeats. A resample is the number of times that each point was drawn: means of all metrics are one
matrix product, and sums in bins of confidence another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from raychains.core.errors import UserError, require
from raychains.evaluation import metrics
from raychains.evaluation.calibration_error import mass_bin, width_bin
from raychains.evaluation.evaluation import BINS, Array, Rows

LEVEL = 0.95
RESAMPLES = 1000
AT_ONCE = 2**20
"""Points that are drawn at once, over all resamples of a batch: 8 MB per column."""
BINNED = ("ece", "ece_mass")
"""Calibration errors over bins of confidence."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A number with its bootstrap interval to `LEVEL`."""

    value: float
    low: float
    high: float


def resampled(statistic: Callable[[Array], Array], n: int) -> Array:
    """Return a statistic of resamples of n points, drawn with replacement by `scipy.stats.bootstrap`, [k, RESAMPLES].

    It gives [k, batch] for counts [batch, n], how often each point was drawn; the points that are drawn follow from n.
    """
    from scipy import stats

    def of_points(drawn: Array, axis: int) -> Array:
        at = drawn + n * np.arange(len(drawn))[:, None]
        return statistic(np.bincount(at.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64))

    settings = {"n_resamples": RESAMPLES, "batch": max(1, AT_ONCE // n), "rng": np.random.default_rng(0)}
    found = stats.bootstrap((np.arange(n),), of_points, vectorized=True, method="percentile", **settings)
    return np.asarray(found.bootstrap_distribution)


def intervals(rows: Rows, names: Iterable[str], *, bins: int = BINS) -> dict[str, tuple[float, float]]:
    """Return (low, high), to 95 %, of each metric over test points drawn with replacement, in the metric's unit, from a
    view's rows [points] each, with so many bins of calibration errors.

    It is the percentile interval; of calibration and coverage errors moved down by what the mean of the resamples is
    above the value: scatter counts as error, and a resample's scatters once more. So it says how far the value may be
    due to these test points and does not exclude it.

    Metrics that rows do not determine are left out (``classwise_ece``, those of densities), as are all where there is
    a single point or a row that is not finite.
    """
    asked = list(names)
    points = {name: values for name in asked if (values := _points(name, rows)) is not None}
    binned = sorted({*BINNED} & {*asked}) if {"confidence", "prediction", "label"} <= set(rows) else []
    n = len(next(iter(rows.values()), ()))
    columns = [*points.values(), *([np.asarray(rows["confidence"])] if binned else [])]
    if n < 2 or not columns or not np.isfinite(np.stack(columns)).all():
        return {}
    errors = {name: _Binned(rows, bins, equal_mass=name == "ece_mass") for name in binned}
    replicates = _replicates(points, errors, n)
    overstated = {name: float(error(np.ones((1, n)))[0]) for name, error in errors.items()}
    if "coverage_error" in points:
        overstated["coverage_error"] = metrics.of_points("coverage_error", rows)
    for name, value in overstated.items():
        replicates[name] = np.maximum(replicates[name] - (replicates[name].mean() - value), 0.0)
    return {name: _ends(replicates[name]) for name in asked if name in replicates}


def _replicates(points: Mapping[str, Array], errors: Mapping[str, _Binned], n: int) -> dict[str, Array]:
    """Return each metric of the resamples, [RESAMPLES]: means of points [n] or functions of them, and binned errors."""
    values = np.stack([*points.values(), np.zeros(n)], axis=1)  # never empty

    def statistic(counts: Array) -> Array:
        return np.vstack([(counts @ values / n).T, *(error(counts) for error in errors.values())])

    found = dict(zip([*points, "", *errors], resampled(statistic, n), strict=True))
    of_means = {name: of_mean(found[name]) for name, of_mean in metrics.OF_MEANS.items() if name in points}
    return {**found, **of_means}


def with_intervals(rows: Rows, names: Iterable[str], *, bins: int) -> dict[str, float]:
    """Return ``<metric>_low`` and ``<metric>_high`` of the `intervals`, as columns of a table of views."""
    found = intervals(rows, names, bins=bins)
    return {f"{name}_{end}": ends[i] for name, ends in found.items() for i, end in enumerate(("low", "high"))}


def paired(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Interval]:
    """Return, per column of both, the mean of first − second with its 95 % percentile interval over the shared test
    points.

    Both predictives see the same draws. What both find hard cancels, so that the interval is narrower than the two
    metrics' own suggest.

    Args:
        first, second: a number per example, [points] each, of the same examples in the same order.

    Raises:
        UserError: different numbers of examples, fewer than 2, or a difference that is not finite.
    """
    names = [name for name in first if name in second]
    if not names:
        return {}
    for name in names:
        lengths = [len(first[name]), len(second[name])]
        require(lengths[0] == lengths[1], "rows of both predictives", lengths, "be of the same examples")
    differences = np.stack([np.asarray(first[name], np.float64) - second[name] for name in names], axis=1)
    n = len(differences)
    require(n >= 2, "rows", f"{n} point(s)", "hold 2 test points or more: fewer say nothing about others")
    require(bool(np.isfinite(differences).all()), "metric", "nan or infinity", "be finite on the test points")
    found = resampled(lambda counts: (counts @ differences / n).T, n)
    out = {}
    for name, replicates in zip(names, found, strict=True):
        low, high = _ends(replicates)
        out[name] = Interval(value=float(np.mean(first[name])) - float(np.mean(second[name])), low=low, high=high)
    return out


def of_means(columns: Array) -> tuple[Array, Array]:
    """Return the ends (low, high), [k] each, of the 95 % percentile intervals of the means of columns [n, k], over
    points drawn with replacement; nan of a single point, and of a column that is not finite."""
    n = len(columns)
    ends = np.full((2, columns.shape[1]), np.nan)
    finite = np.isfinite(columns).all(axis=0)
    if n > 1 and finite.any():
        means = resampled(lambda counts: (counts @ columns[:, finite] / n).T, n)
        ends[:, finite] = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=1)
    return ends[0], ends[1]


def _ends(replicates: Array) -> tuple[float, float]:
    low, high = np.quantile(replicates, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


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
        """Return the errors, [resamples], of counts [resamples, points]."""
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
    """Return the numbers whose mean a metric is, float64 [points]; None where the rows do not tell, or are not
    finite."""
    try:
        return np.asarray(metrics.POINTS[name](rows), dtype=np.float64)
    except (KeyError, UserError):
        return None
