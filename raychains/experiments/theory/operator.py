"""Bias and MSE of SGLD's averages on an even one-dimensional target without sampling: its transitions on a grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.experiments.theory.double_well import DoubleWell

REACH = 11.0
SPACING = 0.05
"""Of the grid on [0, REACH]; the trapezoid rule is exact to rounding for Gaussian kernels no narrower than this."""


def lumps(lrs: Sequence[float], weights: Array, least: float) -> Iterator[tuple[float, Array]]:
    """(step size, weights [averages]) where neighbouring steps too small for the grid are one of at least ``least``.

    Small steps before one that is large by itself (a cycle's last before the next cycle) hardly move the chain: their
    weights go with a step of size 0, and their sizes are added to the large one's. The same holds at the end.
    """
    lr, weight = 0.0, np.zeros(len(weights))
    for one, w in zip(lrs, weights.T, strict=True):
        if one >= least and weight.any():
            yield 0.0, weight
            weight = np.zeros(len(weights))
        lr, weight = lr + one, weight + w
        if lr >= least:
            yield lr, weight
            lr, weight = 0.0, np.zeros(len(weights))
    if weight.any():
        yield 0.0, weight


def errors(
    target: DoubleWell, lrs: Sequence[float], weights: Array, *, start: float, gradient_sd: float, average: float
) -> list[tuple[float, float]]:
    """(bias, MSE) of A = Σ_k w_k·θ_k² as an estimate of ``average``, for θ_k of SGLD at ``lrs``; several A at once.

    With p the density of |θ_k|, q(x) = E[A_k; x] and r(x) = E[A_k²; x], a step with operator P and φ(x) = x² gives
    p ← pP, q ← qP + wφp, r ← rP + 2wφ(qP) + w²φ²p. U and both noises are symmetric, so |θ| is a Markov chain by itself.
    Steps below SPACING²/2 are lumped (`lumps`); half the spacing moves the results by 2e-4 of them.

    Args:
        target: U.
        lrs: α of each step, [steps].
        weights: w, [averages, steps], each row summing to 1.
        start: θ₀.
        gradient_sd: of the gradient's Gaussian noise.
        average: what A estimates.

    Raises:
        UserError: a first step too small for the grid.
    """
    least = SPACING**2 / 2
    require(lrs[0] >= least, "lrs", lrs[0], f"begin with a step of at least {least:g}")
    x = np.arange(0, REACH + SPACING / 2, SPACING)
    rule = np.full(len(x), SPACING)
    rule[0] /= 2
    phi, drift = x**2, target.slope(x)
    state: Array | None = None

    def kernel(centre: Array, lr: float) -> Array:
        variance = 2 * lr + (lr * gradient_sd) ** 2
        density = np.exp(-((x - centre[:, None]) ** 2) / (2 * variance))
        density += np.exp(-((x + centre[:, None]) ** 2) / (2 * variance))
        density *= rule / math.sqrt(2 * math.pi * variance)
        return density

    count = len(weights)
    for lr, w in lumps(lrs, weights, least):
        if state is None:
            first = np.array([start - lr * float(target.slope(np.asarray(start)))])
            state = np.concatenate([kernel(first, lr), np.zeros((2 * count, len(x)))])
        elif lr:
            state = state @ kernel(x - lr * drift, lr)
        p, q, r = state[0], state[1 : 1 + count], state[1 + count :]
        share = w[:, None] * phi
        r += 2 * share * q + share**2 * p
        q += share * p
    assert state is not None
    mass, *sums = (float(s) for s in state.sum(1))
    pairs = zip(sums[:count], sums[count:], strict=True)
    return [(mean - average * mass, square - 2 * average * mean + average**2 * mass) for mean, square in pairs]
