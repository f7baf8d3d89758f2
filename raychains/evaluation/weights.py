"""Weights of the samples in a predictive: equal, or by cycle with the harmonic mean of likelihoods (cSG-MCMC, App. F)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array

DOMINANT = 0.1
"""A sum of 1/L of which one term carries more than this says little: its estimate hangs on a single draw."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What each sample counts in an average over the posterior, and where that comes from."""

    samples: Array
    """[samples], not negative, sum 1."""
    groups: Array
    """[groups], the labels that were met, ascending; empty for equal weights."""
    shares: Array
    """[groups], each group's part of the posterior's mass; its samples divide it evenly."""
    log_evidence: Array
    """[groups], ln Ẑ_m: what the shares are proportional to, in nats."""
    dominance: Array
    """[groups], the largest term's part of the sum that ln Ẑ_m is taken from, in (0, 1]."""

    @property
    def warning(self) -> str | None:
        """One line when a single draw carries more than a tenth of a group's sum, else None."""
        bad = np.flatnonzero(self.dominance > DOMINANT)
        if len(bad) == 0:
            return None
        worst = bad[np.argmax(self.dominance[bad])]
        return (
            f"weights rest on single draws in {len(bad)} of {len(self.groups)} groups: in group {self.groups[worst]} "
            f"one draw carries {self.dominance[worst]:.0%} of its sum of reciprocals (more than {DOMINANT:.0%} is too "
            f"much); equal weights are safer"
        )


def equal(count: int) -> Weights:
    """Every one of ``count`` samples counts the same: the default, and right when draws visit regions by their mass.

    Raises:
        UserError: ``count`` is below 1.
    """
    require(count >= 1, "count", count, "be at least 1: there is no average of nothing")
    none = np.empty(0)
    return Weights(
        samples=np.full(count, 1 / count), groups=none.astype(int), shares=none, log_evidence=none, dominance=none
    )


def harmonic_mean(log_likelihood: Any, group: Any) -> Weights:
    """Shares of the groups (cycles) in proportion to the harmonic mean of their samples' likelihoods.

    ŵ_m = [(1/K_m) Σ_j 1/L(θ_j)]⁻¹ over the K_m samples of cycle m, L the likelihood of the *whole training set*. All
    in logs, so that values such as −1e5 ± 50 nats are no trouble.

    What it estimates is Z·w_m/prior(Θ_m), not w_m: the shares are right only for regions of equal prior mass. Its
    variance is finite only where ∫ prior/L is: likelihoods with lighter tails than the prior's (most) make it rest on
    the few draws farthest out, however many there are; `Weights.warning` tells. On a mixture with standard deviations
    .3 and .6 in two dimensions it tends to .90 for a true share of .70. `truncated.truncated` is the sound relative for
    low-dimensional targets, `stacking.stack` for networks.

    Cycles that overlap: App. F then counts a sample where it lies and not when it was drawn. Pass the number of the
    disjoint region Θ*_m that holds each sample as ``group``.

    Args:
        log_likelihood: ln L per sample, [samples], nats: −N times the mean NLL over the training set. For draws at
            temperature T, ln L / T.
        group: the cycle (or region) of each sample, [samples], integers. Cycles of different chains are different.

    Raises:
        UserError: shapes that differ, no sample, or a log-likelihood that is not finite.

    Source: Zhang et al. 2020 (cSG-MCMC), App. F; Newton & Raftery 1994.
    """
    logs, labels = as_series("log_likelihood", log_likelihood), np.asarray(group)
    require(labels.shape == logs.shape, "group", labels.shape, f"have the log-likelihoods' shape {logs.shape}")
    # Differences of neighbouring numbers are exact: with the largest taken off, −1e5 costs no digits.
    top = logs.max()
    names, evidence, dominance = grouped(top - logs, labels)
    return weigh(names, labels, evidence, dominance, offset=float(top))


def as_series(field: str, values: Any) -> Array:
    """``values`` as float64 [n], n ≥ 1, all finite; a `UserError` otherwise."""
    out = np.asarray(values, dtype=np.float64)
    require(out.ndim == 1 and len(out) > 0, field, out.shape, "have the shape [samples] with at least one sample")
    bad = np.flatnonzero(~np.isfinite(out))
    require(len(bad) == 0, field, float(out[bad[0]]) if len(bad) else None, f"be finite everywhere: {len(bad)} are not")
    return out


def grouped(log_terms: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Per label, ascending: the label, −ln of the mean of exp(log_terms), and the largest term's part of their sum.

    A term of −∞ counts as 0. A group of which all terms are 0 has evidence ∞ and dominance nan.
    """
    names = np.unique(labels)
    evidence, dominance = np.empty(len(names)), np.empty(len(names))
    for m, name in enumerate(names):
        terms = log_terms[labels == name]
        largest = terms.max()
        if largest == -np.inf:
            evidence[m], dominance[m] = np.inf, np.nan
            continue
        total = np.exp(terms - largest).sum()
        evidence[m], dominance[m] = -(largest + np.log(total / len(terms))), 1 / total
    return names, evidence, dominance


def weigh(names: Array, labels: Array, log_evidence: Array, dominance: Array, *, offset: float = 0.0) -> Weights:
    """Normalise ``exp(log_evidence)`` over the groups and divide each share among its group's samples.

    ``offset`` is added to the evidence that is told; shares do not depend on it.
    """
    shares = np.exp(log_evidence - log_evidence.max())
    shares /= shares.sum()
    where = np.searchsorted(names, labels)
    samples = (shares / np.bincount(where))[where]
    return Weights(
        samples=samples, groups=names, shares=shares, log_evidence=log_evidence + offset, dominance=dominance
    )
