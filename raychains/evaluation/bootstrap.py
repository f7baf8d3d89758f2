"""How far a metric would move with other test points: seeded bootstrap intervals of any function of rows, by scipy.

What is resampled is the test points, with the samples held: the interval says nothing about other chains, for which
there is the standard error over repeats.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from raychains.errors import UserError, require
from raychains.evaluation.arrays import at_least
from raychains.evaluation.base import Array, Rows

Method = Literal["percentile", "bca"]
AT_ONCE = 2**20
"""Points that are gathered at once, over all resamples of a batch: 8 MB per column."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval:
    """A metric with its bootstrap interval, in the metric's unit."""

    value: float
    """Of the points as they are."""
    low: float
    high: float
    standard_error: float
    """Standard deviation over the resamples."""
    level: float
    """Confidence level of [low, high], two-sided."""
    method: Method
    replicates: Array
    """The metric of every resample, [resamples]."""


def bootstrap(
    metric: Callable[..., Any],
    *tables: Rows,
    resamples: int = 1000,
    level: float = 0.95,
    method: Method = "percentile",
    seed: int = 0,
    vectorised: bool = False,
) -> Interval:
    """The interval of ``metric(*tables)`` over test points drawn with replacement.

    Each table is resampled on its own (inside and outside points of a detection, say); the points that are drawn follow
    from the seed, the number of resamples and the tables' lengths, not from the metric. Where no resample differs from
    the others the interval is that one value. A calibration error counts a bin's scatter as error (Kumar, Liang & Ma
    2019), and a resample's scatters once more, so that its percentile interval sits too high; ``bca`` shifts it back.

    Args:
        metric: function of as many tables of rows to a finite number. Of its tables it gathers the columns it asks for.
        tables: columns with one entry per point on axis 0, at least two points.
        resamples: how many.
        level: of the interval, in (0, 1).
        method: ``percentile``, or ``bca`` (bias-corrected and accelerated, Efron 1987), which calls the metric once more
            per point.
        seed: integer of 0 or more.
        vectorised: the metric takes columns [batch, points] and returns [batch]; else it is called per resample.

    Raises:
        UserError: an argument out of range, columns of different lengths, fewer than two points, a metric that is not
            finite on the points or a resample, or ``bca`` where all resamples lie on one side of the value.
    """
    from scipy import stats

    require(bool(tables), "tables", 0, "be one table of rows or more")
    require(method in get_args(Method), "method", method, f"be one of {', '.join(get_args(Method))}")
    require(0 < level < 1, "level", level, "lie in (0, 1)")
    resamples, seed = at_least(resamples, 2, "resamples"), at_least(seed, 0, "seed")
    lengths = [_length(table) for table in tables]
    value = _finite(np.asarray(metric(*tables), dtype=np.float64), (), "the test points")

    def statistic(*drawn: Array, axis: int = -1) -> Array:
        batch = drawn[0].shape[:-1]
        if vectorised or not batch:
            found = metric(*(_Drawn(t, at) for t, at in zip(tables, drawn, strict=True)))
        else:
            found = [
                metric(*(_Drawn(t, at) for t, at in zip(tables, one, strict=True))) for one in zip(*drawn, strict=True)
            ]
        return _finite(np.asarray(found, dtype=np.float64), batch, "every resample")

    points = tuple(np.arange(n) for n in lengths)
    settings = {
        "vectorized": True,
        "axis": -1,
        "confidence_level": level,
        "batch": max(1, AT_ONCE // sum(lengths)),
    }
    result = stats.bootstrap(
        points, statistic, n_resamples=resamples, method="percentile", rng=np.random.default_rng(seed), **settings
    )
    replicates = result.bootstrap_distribution
    if method == "bca" and np.ptp(replicates) > 0:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            result = stats.bootstrap(
                points, statistic, n_resamples=0, method="BCa", bootstrap_result=result, **settings
            )
    low, high = (float(end) for end in result.confidence_interval)
    if not np.isfinite(low + high):
        raise UserError(
            "method must be 'percentile' for this metric, got 'bca': all resamples lie on one side of the value"
        )
    return Interval(
        value=float(value),
        low=low,
        high=high,
        standard_error=float(result.standard_error),
        level=level,
        method=method,
        replicates=replicates,
    )


def paired_difference(
    metric: Callable[..., Any],
    first: Rows,
    second: Rows,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    method: Method = "percentile",
    seed: int = 0,
    vectorised: bool = False,
) -> Interval:
    """The interval of metric(first) − metric(second), two predictives of the same test points: both see the same draws.

    What both find hard cancels, so that the interval is narrower than the two metrics' own suggest.

    Args:
        first, second: rows of the same examples in the same order.
        others: as for `bootstrap`.

    Raises:
        UserError: different numbers of examples, or different labels; else as `bootstrap`.
    """
    lengths = [_length(table) for table in (first, second)]
    require(lengths[0] == lengths[1], "rows of both predictives", lengths, "be of the same examples")
    if "label" in first and "label" in second:
        differ = int(np.count_nonzero(np.asarray(first["label"]) != np.asarray(second["label"])))
        require(not differ, "rows of both predictives", f"{differ} different labels", "be of the same examples")

    def difference(both: Rows) -> Any:
        return metric(_Part(both, "first")) - metric(_Part(both, "second"))

    both = {f"first {name}": column for name, column in first.items()}
    both |= {f"second {name}": column for name, column in second.items()}
    return bootstrap(
        difference, both, resamples=resamples, level=level, method=method, seed=seed, vectorised=vectorised
    )


class _Drawn(Mapping[str, Array]):
    """Rows at drawn points; a column is gathered when it is asked for."""

    def __init__(self, rows: Rows, at: Array) -> None:
        self._rows, self._at = rows, at

    def __getitem__(self, name: str) -> Array:
        return np.asarray(self._rows[name])[self._at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Part(Mapping[str, Array]):
    """The columns of one of two predictives under their own names."""

    def __init__(self, both: Rows, part: str) -> None:
        self._both, self._part = both, f"{part} "

    def __getitem__(self, name: str) -> Array:
        return self._both[self._part + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._part) for name in self._both if name.startswith(self._part))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _length(table: Rows) -> int:
    lengths = {name: len(column) for name, column in table.items()}
    require(len(set(lengths.values())) == 1, "rows", lengths, "have columns of one length")
    n = next(iter(lengths.values()))
    require(n >= 2, "rows", f"{n} point(s)", "hold 2 test points or more: fewer say nothing about others")
    return n


def _finite(found: Array, shape: tuple[int, ...], where: str) -> Array:
    require(found.shape == shape, "metric", list(found.shape), f"return the shape {list(shape)}")
    if not np.isfinite(found).all():
        raise UserError(f"metric must be finite on {where}, got {found[~np.isfinite(found)].flat[0]}")
    return found
