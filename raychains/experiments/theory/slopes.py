"""Means of groups of lanes with their jackknife's interval, and the slope of a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raychains.errors import require
from raychains.evaluation.base import Array


@dataclass(frozen=True)
class Estimate:
    """A number with its interval."""

    value: float
    low: float
    high: float


def line_slope(x: Array, y: Array) -> float:
    """The least-squares slope of ``y`` over ``x``, all points alike."""
    away = x - x.mean()
    return float(away @ y / (away @ away))


def in_groups(lanes: Array, groups: int) -> Array:
    """Means of equal groups of neighbouring lanes, [groups, …], from [lanes, …].

    Raises:
        UserError: groups of different sizes, or fewer than 2.
    """
    ok = groups >= 2 and len(lanes) % groups == 0
    require(ok, "groups", groups, f"be at least 2 and divide the number of lanes ({len(lanes)})")
    return lanes.reshape(groups, -1, *lanes.shape[1:]).mean(1)


def jackknife(function: Callable[[Array], float], groups: Array, level: float = 0.95) -> Estimate:
    """``function`` of the mean over ``groups`` [groups, …], with the delete-one-group jackknife's t-interval.

    The variance is (G−1)/G·Σ(f₍₋g₎ − f̄)², with G − 1 degrees of freedom. The value is that of all groups together: a
    logarithm of a noisy mean is then biased by the whole's noise, not by one group's.

    Source: Tukey 1958; Efron & Tibshirani 1993, ch. 11.
    """
    count, total = len(groups), groups.sum(0)
    without = np.array([function((total - g) / (count - 1)) for g in groups])
    error = float(np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum()))
    value = function(total / count)
    reach = float(stats.t.ppf((1 + level) / 2, count - 1)) * error
    return Estimate(value, value - reach, value + reach)
