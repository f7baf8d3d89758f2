"""How far draws of a chain can be trusted: effective sample size, split R-hat and autocorrelation, by arviz-stats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array

FEWEST = 4
"""Draws per chain below which arviz-stats gives no answer."""
FEWEST_FOR_ESS = 10
"""Draws per chain for an effective sample size: with halves of fewer than 5 draws Geyer's sum is empty, and n·log10 n comes
out of it whatever the draws."""
TAIL = (0.05, 0.95)
"""The quantiles whose worse one gives the tail ESS (Vehtari et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and its standard error, which allows for the draws' autocorrelation; nan with fewer than 10 draws a chain."""

    value: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Diagnostics of every coordinate of every lane, each [lanes, dim]."""

    bulk_ess: Array
    """Independent draws that estimate the centre as well; may exceed the number of draws (antithetic chains)."""
    tail_ess: Array
    """The same for the worse of the 5 % and 95 % quantiles."""
    r_hat: Array
    """1 when chains, and the halves of each, agree; above 1.01 they do not (nan for draws that never move)."""
    draws: int
    """Of all chains together, per lane."""


def ess(series: Any, kind: Literal["bulk", "tail", "mean"] = "bulk") -> Array:
    """Effective sample size of ``series`` [chains, draws, …], all chains together: an array [...].

    ``bulk`` is rank-normalised, hence right for heavy tails too; ``tail`` is the smaller one of the 5 % and 95 %
    quantiles; ``mean`` is the classical one, n/(1 + 2 Σ ρ_t), for the mean's standard error. All cut the chains in
    halves and end the sum by Geyer's initial monotone sequence. nan where a value is not finite, and with fewer than 10 draws a chain; n for a constant.

    Raises:
        UserError: fewer than 4 draws, or another shape.

    Source: Vehtari et al. 2021; computed by arviz-stats.
    """
    from arviz_stats.base import array_stats

    values = _series(series)
    if values.shape[1] < FEWEST_FOR_ESS:
        return np.full(values.shape[2:], np.nan)
    tail = {"prob": TAIL} if kind == "tail" else {}
    return _each(values, lambda x: array_stats.ess(x, method=kind, **tail))


def r_hat(series: Any, kind: Literal["rank", "split"] = "rank") -> Array:
    """Split R-hat of ``series`` [chains, draws, …]: an array [...]. 1 is agreement.

    ``rank`` is the larger one of the rank-normalised R-hat of the values and of their distances from the median, which
    sees chains that differ in location or in scale; ``split`` the classical form. Both cut each chain in halves. A
    single chain is cut in halves first, which then count as chains. nan for a constant or where a value is not finite.

    Raises:
        UserError: fewer than 4 draws (8 of a single chain), or another shape.

    Source: Gelman & Rubin 1992; Vehtari et al. 2021; computed by arviz-stats.
    """
    from arviz_stats.base import array_stats

    values = _series(series)
    if len(values) == 1:
        half = values.shape[1] // 2
        require(half >= FEWEST, "series", f"{values.shape[1]} draws", "have at least 8 draws where there is one chain")
        values = np.concatenate([values[:, :half], values[:, -half:]])
    return _each(values, lambda x: array_stats.rhat(x, method=kind), constant=np.nan)


def autocorrelation(series: Any, lags: int | None = None) -> Array:
    """ρ_0 = 1, ρ_1, … of each chain of ``series`` [chains, draws, …]: [chains, lags + 1, …], about the chain's own mean.

    Args:
        series: the draws.
        lags: the largest lag; default all that there are, draws − 1. Sums over t are divided by n, not by n − t.

    Raises:
        UserError: another shape, or more lags than draws.
    """
    from arviz_stats.base import array_stats

    values = _series(series)
    largest = values.shape[1] - 1
    wanted = largest if lags is None else lags
    require(0 <= wanted <= largest, "lags", wanted, f"lie in [0, {largest}]")
    found = array_stats.autocorr(np.ascontiguousarray(np.moveaxis(values, 1, -1)))  # along the last axis
    return np.moveaxis(found[..., : wanted + 1], -1, 1)


def mean(series: Any) -> Estimate:
    """The mean of ``series`` [chains, draws] and its Monte Carlo standard error, sd/√(ESS of the mean)."""
    from arviz_stats.base import array_stats

    values = np.atleast_2d(np.asarray(series, dtype=np.float64))
    require(values.ndim == 2 and values.size > 0, "series", values.shape, "have the shape [chains, draws]")
    if values.shape[1] < FEWEST_FOR_ESS or not np.isfinite(values).all():
        return Estimate(value=float(values.mean()), error=float("nan"))
    return Estimate(value=float(values.mean()), error=float(array_stats.mcse(values, method="mean")))


def of_blocks(chains: Sequence[Any]) -> Diagnosis:
    """Diagnostics of low-dimensional draws, lane by lane, since lanes are repeats.

    Args:
        chains: of each chain of an arm its draws in their order, [draws, lanes, dim], its blocks concatenated. Chains
            of unequal length count with their last draws, as many as the shortest has.

    Raises:
        UserError: no chain, shapes that differ in lanes or dimensions, or too few draws.
    """
    arrays = [np.asarray(c, dtype=np.float64) for c in chains]
    require(len(arrays) > 0, "chains", 0, "be at least 1")
    for a in arrays:
        require(a.ndim == 3, "chains", a.shape, "hold arrays [draws, lanes, dim]")
        same = a.shape[1:] == arrays[0].shape[1:]
        require(same, "chains", a.shape[1:], f"have the same lanes and dimensions as the first, {arrays[0].shape[1:]}")
    shortest = min(len(a) for a in arrays)
    values = np.stack([a[len(a) - shortest :] for a in arrays])
    return Diagnosis(
        bulk_ess=ess(values, "bulk"), tail_ess=ess(values, "tail"), r_hat=r_hat(values), draws=values[..., 0, 0].size
    )


def _series(series: Any) -> Array:
    values = np.asarray(series, dtype=np.float64)
    require(values.ndim >= 2 and values.size > 0, "series", values.shape, "have the shape [chains, draws, …]")
    require(values.shape[1] >= FEWEST, "series", f"{values.shape[1]} draws", f"have at least {FEWEST} draws a chain")
    return values


def _each(values: Array, measure: Any, constant: float | None = None) -> Array:
    """``measure`` of every [chains, draws] of ``values`` [chains, draws, …]; nan where one is not finite.

    arviz-stats logs a warning per array that is not finite; here nan says it. ``constant`` is what values that never
    move give, where that is not for ``measure`` to say.
    """
    flat = values.reshape(*values.shape[:2], -1)
    out = np.full(flat.shape[2], np.nan)
    for i in range(flat.shape[2]):
        one = flat[:, :, i]
        if not np.isfinite(one).all():
            continue
        still = constant is not None and one.min() == one.max()
        out[i] = constant if still else measure(one)
    return out.reshape(values.shape[2:])
