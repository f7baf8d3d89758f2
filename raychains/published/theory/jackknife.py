"""Pseudo-values: a statistic of all lanes as one value per group of lanes, so that claims have their repeats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raychains.evaluation.base import Array


def pseudo_values(statistic: Callable[[Array], float], groups: Array) -> list[float]:
    """G·f(all) − (G−1)·f(all but group g) for every group.

    Their mean is the jackknife's estimate, without the bias of order 1/G; their standard error over √G is the jackknife's, so
    that Student's interval of them is the jackknife's interval.

    Args:
        statistic: of some groups [some, …].
        groups: [G, …].

    Source: Tukey 1958; Efron & Tibshirani 1993, ch. 11.
    """
    count, whole = len(groups), statistic(groups)
    left = [statistic(np.delete(groups, g, axis=0)) for g in range(count)]
    return [count * whole - (count - 1) * one for one in left]
