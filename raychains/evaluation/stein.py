"""Kernel Stein discrepancy: do draws follow a density that is known only through its gradient?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array

MOST = 2000
"""Draws that are looked at; longer series are thinned evenly to this."""
ROWS = 128
"""Rows of the Stein kernel's matrix that are held at a time."""
BETA, C = -0.5, 1.0
"""Of the inverse multiquadric kernel (c² + ‖x−y‖²)^β (Gorham & Mackey 2017)."""


@dataclass(frozen=True, kw_only=True)
class SteinDiscrepancy:
    """What the draws' law lacks to the target, as far as gradients can tell. Blind to how mass divides among modes."""

    ksd: float
    """√ of the mean of the Stein kernel over all pairs of draws, each with itself too: 0 only in the limit n → ∞."""
    unbiased: float
    """Its square without the pairs of a draw with itself: mean 0 under the target, and then sometimes negative."""
    p_value: float
    """Share of bootstrap replicates at least as large, in [1/(replicates + 1), 1]."""
    draws: int
    """How many were looked at, after thinning."""


def thin(values: Any, most: int = MOST) -> Array:
    """At most ``most`` entries along axis 0, evenly spread, first and last among them."""
    array = np.asarray(values)
    if len(array) <= most:
        return array
    return array[np.linspace(0, len(array) - 1, most).round().astype(int)]


def stein_discrepancy(
    draws: Any,
    score: Any,
    *,
    scale: Any = 1.0,
    replicates: int = 999,
    flip: float = 0.5,
    seed: int = 0,
    most: int = MOST,
) -> SteinDiscrepancy:
    """KSD of ``draws`` to the density p whose score is ∇ln p, with a wild-bootstrap test of "the draws follow p".

    With the kernel k(x, y) = (1 + ‖x−y‖²)^(−½) (inverse multiquadric, β −½, c 1) and s = ∇ln p,
    u(x, y) = s(x)·s(y) k + s(x)·∇_y k + s(y)·∇_x k + tr ∇_x∇_y k has mean 0 under p in either argument; KSD² is the
    mean of u over pairs of draws. A replicate is the same sum with signs ±1 on the draws. This kernel's KSD → 0 only
    if the draws converge to p (unlike a Gaussian kernel's from three dimensions on).

    **Blind to mode weights**: between modes that lie apart ln p's gradient says nothing of their masses, so draws of
    one mode alone, or of two in the wrong shares, pass. Print mode masses beside it.

    The kernel's length is 1 in the unit of ``scale``: pass the target's standard deviations (or those of a trusted
    run) where they are far from 1. Draws must be all but independent, or ``flip`` small: dependence among them reads
    as a misfit. Memory: 128 rows of the matrix of pairs, not all of it. Cost: n²(dim + replicates).

    Args:
        draws: θ, [draws, dim], one chain's in their order.
        score: ∇ln p at each, [draws, dim]: −∇U/T of what was sampled, over the whole data.
        scale: length unit of the kernel, one number or [dim].
        replicates: of the bootstrap.
        flip: chance that a replicate's sign changes from one draw to the next; .5 is for independent draws, about
            1/(the thinned draws' autocorrelation time) else.
        seed: of the signs.
        most: draws to thin to.

    Raises:
        UserError: shapes that differ, fewer than 2 draws, values that are not finite, or settings outside their ranges.

    Source: Gorham & Mackey 2017; Liu, Lee & Jordan 2016; Chwialkowski, Strathmann & Gretton 2016 (the wild bootstrap).
    """
    x, s = np.asarray(draws, dtype=np.float64), np.asarray(score, dtype=np.float64)
    good = x.ndim == 2 and len(x) > 1 and x.shape[1] > 0
    require(good, "draws", x.shape, "have the shape [draws, dim] with at least 2 draws")
    require(s.shape == x.shape, "score", s.shape, f"have the draws' shape {x.shape}")
    for field, values in (("draws", x), ("score", s)):
        require(bool(np.isfinite(values).all()), field, "nan or infinity", "be finite everywhere")
    unit = np.asarray(scale, dtype=np.float64)
    require(unit.shape in ((), x.shape[1:]), "scale", unit.shape, f"be one number or have the shape {x.shape[1:]}")
    require(bool((unit > 0).all()), "scale", float(unit.min()), "be positive")
    require(replicates >= 1, "replicates", replicates, "be at least 1")
    require(0 < flip <= 0.5, "flip", flip, "lie in (0, 0.5]")
    require(most >= 2, "most", most, "be at least 2")
    x, s = thin(x / unit, most), thin(s * unit, most)
    n = len(x)
    signs = wild_signs(replicates, n, flip, np.random.default_rng(seed))
    total, diagonal, sums = 0.0, 0.0, np.zeros(replicates)
    for rows, u in stein_rows(x, s):
        total += float(u.sum())
        diagonal += float(u[np.arange(len(u)), rows].sum())
        sums += ((signs @ u.T) * signs[:, rows]).sum(1)
    as_large = np.count_nonzero(sums >= total)
    return SteinDiscrepancy(
        ksd=float(np.sqrt(max(total, 0.0)) / n),
        unbiased=(total - diagonal) / (n * (n - 1)),
        p_value=(1 + as_large) / (replicates + 1),
        draws=n,
    )


def wild_signs(replicates: int, n: int, flip: float, rng: np.random.Generator) -> Array:
    """±1, [replicates, n]: a fair first sign, then a chain that flips with chance ``flip``."""
    signs = np.where(rng.random((replicates, n), dtype=np.float32) < flip, -1.0, 1.0)
    signs[:, 0] = np.where(rng.random(replicates) < 0.5, -1.0, 1.0)
    return np.cumprod(signs, axis=1)


def stein_rows(x: Array, s: Array) -> Iterator[tuple[Array, Array]]:
    """Rows of the matrix u(x_i, x_j): their numbers [rows] and values [rows, n], ROWS at a time.

    Args:
        x: points, [n, dim].
        s: scores there, [n, dim].
    """
    dim = x.shape[1]
    x = x - x.mean(0)  # only differences matter: less to cancel
    squares, own = (x**2).sum(1), (s * x).sum(1)
    for start in range(0, len(x), ROWS):
        rows = np.arange(start, min(start + ROWS, len(x)))
        a, b = x[rows], s[rows]
        distance = np.maximum(squares[rows, None] + squares - 2 * a @ x.T, 0.0)
        distance[np.arange(len(rows)), rows] = 0.0
        base = C**2 + distance
        kernel = base**BETA
        slope = 2 * BETA * kernel / base  # ∇_x k = slope·(x − y) = −∇_y k
        # s(y)·(x − y) − s(x)·(x − y)
        across = (a @ s.T - own) - (own[rows, None] - b @ x.T)
        curl = -dim * slope - 2 * (BETA - 1) * slope * distance / base
        yield rows, (b @ s.T) * kernel + slope * across + curl
