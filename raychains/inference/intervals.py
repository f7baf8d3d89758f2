"""Credible intervals over the samples of a posterior, and quantiles of a mixture of Gaussians; weights count
throughout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

Array = np.ndarray[Any, Any]
ROUNDING = 1e-9
"""Share of the weights by which a sum of them may miss a level: .05 of 20 equal ones is one of them."""
HALVINGS = 60
"""After them a bracket is as narrow as double precision says."""


def weighted_quantile(values: Array, weights: Array, q: float) -> Array:
    """Return the least value that has at least a share ``q`` of the weights at or below it.

    Args:
        values: [S, …], one for each sample.
        weights: [S], at least 0 and not all 0.
        q: in (0, 1).
    """
    order = np.argsort(values, axis=0, kind="stable")
    shares = np.cumsum(np.asarray(weights, np.float64)[order], axis=0)
    reached = shares >= (q - ROUNDING) * shares[-1]
    first = np.argmax(reached, axis=0)[None]
    return np.take_along_axis(values, np.take_along_axis(order, first, 0), 0)[0]


def interval(values: Array, weights: Array, level: float) -> Array:
    """Return the equal-tailed interval of the samples' values that holds a share ``level`` of the weights.

    Args:
        values: [S, …], one for each sample.
        weights: [S].
        level: in (0, 1): the ends are the quantiles (1 − level)/2 and (1 + level)/2.

    Returns:
        […, 2].
    """
    ends = (1 - level) / 2, (1 + level) / 2
    return np.stack([weighted_quantile(values, weights, q) for q in ends], -1)


def mixture_quantiles(means: Array, noises: Array, weights: Array, levels: Sequence[float]) -> Array:
    """Return the quantiles of the mixtures Σ_s w_s N(μ_s, σ_s²), in the means' unit, by bisection.

    Args:
        means: μ_s, [S, n, outputs].
        noises: σ_s > 0, [S], or [S, n, 1] where they differ between inputs.
        weights: w_s, [S].
        levels: in (0, 1).

    Returns:
        [n, outputs, levels].
    """
    shares = (np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64))[:, None, None]
    sigma = np.asarray(noises, np.float64)
    sigma = sigma[:, None, None] if sigma.ndim == 1 else sigma
    found = []
    for q in levels:
        each = means + sigma * ndtri(q)  # the mixture's quantile lies between those of its parts
        low, high = each.min(0), each.max(0)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            z = (middle - means) / sigma
            # the lower of the two tails: near 1 a share would lose its digits
            below = (shares * ndtr(z)).sum(0) < q if q <= 0.5 else (shares * ndtr(-z)).sum(0) > 1 - q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found.append((low + high) / 2)
    return np.stack(found, -1)
