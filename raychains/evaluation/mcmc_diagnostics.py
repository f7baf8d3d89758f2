"""Statistics of draws along chains: effective sample size, split R-hat, autocorrelation and mean, by arviz-stats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raychains.evaluation.evaluation import Array

FEWEST = 4
"""Draws per chain below which arviz-stats gives no answer."""
FEWEST_FOR_ESS = 10
"""Draws per chain for an effective sample size: with halves of fewer than 5 draws Geyer's sum is empty, and n·log10 n
comes out of it whatever the draws."""
TAIL = (0.05, 0.95)
"""The quantiles whose worse one gives the tail ESS (Vehtari et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and its standard error, which allows for the draws' autocorrelation; nan with fewer than 10 draws a
    chain."""

    value: float
    error: float


def ess(series: Array, kind: Literal["bulk", "tail", "mean"] = "bulk") -> Array:
    """Return the effective sample size of ``series`` [chains, draws, …], all chains together: an array [...].

    ``bulk`` is rank-normalised, hence right for heavy tails too; ``tail`` is the smaller one of the 5 % and 95 %
    quantiles; ``mean`` is the classical one, n/(1 + 2 Σ ρ_t), for the mean's standard error. All cut the chains in
    halves and end the sum by Geyer's initial monotone sequence. nan where a value is not finite, and with fewer than 10
    draws a chain; n for a constant.

    Source: Vehtari et al. 2021; computed by arviz-stats.
    """
    from arviz_stats.base import array_stats

    if series.shape[1] < FEWEST_FOR_ESS:
        return np.full(series.shape[2:], np.nan)
    tail = {"prob": TAIL} if kind == "tail" else {}
    return _each(series, lambda x: array_stats.ess(x, method=kind, **tail))


def r_hat(series: Array) -> Array:
    """Return the split R-hat of ``series`` [chains, draws, …]: an array [...]. 1 is agreement.

    It is the larger one of the rank-normalised R-hat of the values and of their distances from the median, which sees
    chains that differ in location or in scale, each cut in halves. A single chain, of 8 draws at least, is cut in
    halves first, which then count as chains. nan for a constant or where a value is not finite.

    Source: Gelman & Rubin 1992; Vehtari et al. 2021; computed by arviz-stats.
    """
    from arviz_stats.base import array_stats

    if len(series) == 1:
        half = series.shape[1] // 2
        series = np.concatenate([series[:, :half], series[:, -half:]])
    return _each(series, lambda x: array_stats.rhat(x, method="rank"), constant=np.nan)


def autocorrelation(series: Array, lags: int) -> Array:
    """Return ρ_0 = 1, ρ_1, … of each chain of ``series`` [chains, draws, …]: [chains, lags + 1, …], about the chain's
    own mean.

    Sums over t are divided by n, not by n − t.
    """
    from arviz_stats.base import array_stats

    found = array_stats.autocorr(np.ascontiguousarray(np.moveaxis(series, 1, -1)))  # along the last axis
    return np.moveaxis(found[..., : lags + 1], -1, 1)


def mean(series: Array) -> Estimate:
    """Return the mean of ``series`` [chains, draws] and its Monte Carlo standard error, sd/√(ESS of the mean)."""
    from arviz_stats.base import array_stats

    if series.shape[1] < FEWEST_FOR_ESS or not np.isfinite(series).all():
        return Estimate(value=float(series.mean()), error=float("nan"))
    return Estimate(value=float(series.mean()), error=float(array_stats.mcse(series, method="mean")))


def _each(values: Array, measure: Any, constant: float | None = None) -> Array:
    """Return ``measure`` of every [chains, draws] of ``values`` [chains, draws, …]; nan where one is not finite.

    arviz-stats logs a warning per array that is not finite. ``constant`` is the result for values that never move,
    where ``measure`` is not to be asked.
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
