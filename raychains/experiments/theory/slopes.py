"""Slopes of log |error| against log K, with intervals from groups of lanes, and what they decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raychains.errors import require
from raychains.evaluation.base import Array

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "cannot be told"
WIDEST = 0.1
"""Half the length of a slope's interval beyond which nothing is decided."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the interval's length: the smallest difference that it can detect."""
        return (self.high - self.low) / 2


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


def slope(steps: Sequence[int], groups: Array, level: float = 0.95) -> Estimate:
    """Slope of log |mean| against log K.

    Args:
        steps: K, [points].
        groups: each group's mean at each K, [groups, points]: signed errors for a bias, squares for an MSE.
        level: of the interval.

    Raises:
        UserError: fewer than 2 different K.
    """
    require(len(set(steps)) > 1, "steps", list(steps), "hold at least 2 different numbers of steps")
    x = np.log(np.asarray(steps, dtype=np.float64))

    def of(means: Array) -> float:
        if not (np.all(means > 0) or np.all(means < 0)):
            return float("nan")  # an error that changes sign has no slope
        return line_slope(x, np.log(np.abs(means)))

    return jackknife(of, groups, level)


def at_most(found: Estimate, stated: float) -> str:
    """Whether an error falls at least as fast as K to the ``stated`` power, by the slope's interval.

    It does not hold where the whole interval lies above; nothing is decided by an interval wider than ± `WIDEST`.
    """
    if not found.half <= WIDEST:  # nan too
        return UNDECIDED
    return HOLDS if found.low <= stated else FAILS


def flat(found: Estimate, stated: float) -> str:
    """Whether an error stays where it is: its slope's interval lies nearer to 0 than to the ``stated`` power."""
    if not found.half <= WIDEST:
        return UNDECIDED
    return HOLDS if found.low > stated / 2 else FAILS
