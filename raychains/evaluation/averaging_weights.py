"""Weights of the samples in an average: by harmonic means of likelihoods (plain and truncated), and by stacking."""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Any

import numpy as np

from raychains.core.errors import require
from raychains.evaluation.evaluation import Array, finite

DOMINANT = 0.1
"""A sum of 1/L of which one term carries more than this says little: its estimate hangs on a single draw."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weight of each sample in an average over the posterior, and what it follows from."""

    samples: Array
    """[samples], not negative, sum 1."""
    groups: Array
    """[groups], the labels, ascending."""
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


def harmonic_mean(log_likelihood: Any, group: Any) -> Weights:
    """Weigh groups (cycles) in proportion to the harmonic mean of their samples' likelihoods.

    ŵ_m = [(1/K_m) Σ_j 1/L(θ_j)]⁻¹ over the K_m samples of cycle m, L the likelihood of the *whole training set*. All
    in logs, so that values such as −1e5 ± 50 nats are no trouble.

    What it estimates is Z·w_m/prior(Θ_m), not w_m: the shares are right only for regions of equal prior mass. Its
    variance is finite only where ∫ prior/L is: likelihoods with lighter tails than the prior's (most) make it rest on
    the few draws farthest out, however many there are; `Weights.warning` tells. On a mixture with standard deviations
    .3 and .6 in two dimensions it tends to .90 for a true share of .70. `truncated` is the sound relative for
    low-dimensional targets, `stack` for networks.

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
    return shared(top - logs, labels, offset=float(top))


def truncated(draws: Any, log_density: Any, group: Any) -> Weights:
    """Weigh groups in proportion to the posterior's mass in the region that each explored.

    For any set A of volume V inside the region, E[1[θ ∈ A]/(V·p̃(θ))] = 1/Z_m over the region's draws, Z_m = ∫ p̃, and
    on a set where p̃ is not small no term is large. A is the ellipsoid (θ−μ)ᵀΣ⁻¹(θ−μ) < d + 1 with μ and Σ of the
    *other half* of the group's draws (first half, second half, in their order), so that A does not depend on the draws
    it is asked about; both halves are used. For a Gaussian the relative variance is .55/n at d = 2.

    It needs more draws than dimensions by far (a network has neither), and draws that have settled inside one mode: A
    of a group that spans two modes holds the empty land between them, where p̃ is tiny and one term carries all
    (`Weights.warning` tells).

    Args:
        draws: [draws, dim].
        log_density: ln p̃ of each, [draws], nats: the unnormalised posterior *that was sampled*, −U/T, up to one
            constant that all groups share.
        group: the cycle or region of each, [draws], integers.

    Raises:
        UserError: shapes that differ, values that are not finite, a half of a group with fewer than dim + 2 draws or
            with draws that lie in a plane, or a group none of whose draws lies in the ellipsoid.

    Source: Robert & Wraith 2009; Metodiev et al. 2023 (THAMES), for the radius √(d + 1) and the halves.
    """
    theta = finite(draws, "draws")
    require(theta.ndim == 2 and theta.shape[1] > 0, "draws", theta.shape, "have the shape [draws, dim]")
    logs, labels = as_series("log_density", log_density), np.asarray(group)
    for field, values in (("log_density", logs), ("group", labels)):
        require(values.shape == theta.shape[:1], field, values.shape, f"have one entry for each of {len(theta)} draws")
    top = logs.max()
    terms = np.full(len(theta), -np.inf)
    for name in np.unique(labels):
        at = np.flatnonzero(labels == name)
        halves = at[: len(at) // 2], at[len(at) // 2 :]
        for fitted, asked in (halves, halves[::-1]):
            inside, log_volume = ellipsoid(theta[fitted], theta[asked], name)
            terms[asked[inside]] = top - logs[asked[inside]] - log_volume
        require(
            bool(np.isfinite(terms[at]).any()),
            "draws",
            f"none in group {name}",
            "lie in the ellipsoid of their group's other half: the halves have explored different regions",
        )
    return shared(terms, labels, offset=float(top))


def ellipsoid(fitted: Array, asked: Array, name: Any = 0) -> tuple[Array, float]:
    """Return which of ``asked`` [n, dim] lie in the √(d+1)-ellipsoid of ``fitted``, [n] bool; and the log of its
    volume.

    ``name`` is the group's name in errors.
    """
    dim = fitted.shape[1]
    require(
        len(fitted) >= dim + 2,
        f"draws of group {name}",
        2 * len(fitted),
        f"be at least {2 * (dim + 2)} for {dim} dimensions: an ellipsoid is fitted to each half",
    )
    mean = fitted.mean(0)
    covariance = np.atleast_2d(np.cov(fitted, rowvar=False))
    eigenvalues, axes = np.linalg.eigh(covariance)
    require(
        bool(eigenvalues[0] > 1e-12 * eigenvalues[-1]),
        f"draws of group {name}",
        f"rank {np.count_nonzero(eigenvalues > 1e-12 * eigenvalues[-1])}",
        f"span all {dim} dimensions",
    )
    squared = (((asked - mean) @ axes) ** 2 / eigenvalues).sum(1)
    log_ball = dim / 2 * log(pi) - lgamma(dim / 2 + 1)
    return squared < dim + 1, log_ball + dim / 2 * log(dim + 1) + float(np.log(eigenvalues).sum()) / 2


def as_series(field: str, values: Any) -> Array:
    """Return ``values`` as float64 [n], n ≥ 1; raise `UserError` unless all are finite."""
    out = finite(values, field)
    require(out.ndim == 1 and len(out) > 0, field, out.shape, "have the shape [samples] with at least one sample")
    return out


def shared(log_terms: Array, labels: Array, *, offset: float) -> Weights:
    """Return the weights of groups whose evidence is 1 over the mean of exp(log_terms), of which a term of −∞ counts as
    0.

    ``offset`` is added to the log evidence that is returned; shares do not depend on it.
    """
    names, where, counts = np.unique(labels, return_inverse=True, return_counts=True)
    evidence, dominance = np.empty(len(names)), np.empty(len(names))
    for m in range(len(names)):
        terms = log_terms[where == m]
        largest = terms.max()
        total = np.exp(terms - largest).sum()
        evidence[m], dominance[m] = -(largest + np.log(total / len(terms))), 1 / total
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    each = (shares / counts)[where]
    return Weights(samples=each, groups=names, shares=shares, log_evidence=evidence + offset, dominance=dominance)


MISSING, ROUNDS = 1e-8, 20
"""Nats per example that stacking may miss, and the most rounds of its optimiser."""


def stack(log_p: Any) -> Array:
    """Return the w [samples] of the simplex that maximise (1/n) Σ_i ln Σ_s w_s p_s(y_i | x_i), by `scipy.optimize`.

    The score is concave. With g_s = mean_i p_s(y_i)/Σ_t w_t p_t(y_i) w is best exactly when g_s = 1 wherever w_s > 0
    and g_s ≤ 1 elsewhere (Karush–Kuhn–Tucker); max_s g_s − 1 bounds what is missing, in nats per example: `MISSING`.
    Score − Σ w over w ≥ 0 has the same solution and needs no constraint on the sum.

    Use a validation split that the samples were not trained on: on training data it picks the samples that overfit. The
    weights describe prediction, not the posterior's mass; with few examples they vary much.

    Args:
        log_p: ln p_s(y_i | x_i), [samples, examples], nats; −∞ is a probability of 0.

    Raises:
        UserError: nan or +∞, or an example to which every sample gives probability 0.

    Source: Yao, Vehtari, Simpson & Gelman 2018.
    """
    from scipy.optimize import minimize

    logs = np.asarray(log_p, dtype=np.float64)
    require(bool((logs < np.inf).all()), "log_p", "nan or +inf", "be log probabilities")
    top = logs.max(0)
    lost = np.flatnonzero(np.isneginf(top))
    require(len(lost) == 0, "log_p", f"-inf from every sample at example {lost[:1].sum()}", "be finite for a sample")
    p = np.exp(logs - top).T
    size = p.shape[1]

    def loss(w: Array) -> tuple[float, Array]:
        mixed = np.maximum(p @ w, np.finfo(np.float64).tiny)
        return float(w.sum() - np.log(mixed).mean()), 1 - (p / mixed[:, None]).mean(0)

    limits = {"ftol": 0.0, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000}
    w, bounds = np.full(size, 1 / size), [(0, None)] * size
    for _ in range(ROUNDS):  # where samples predict alike, one ends as soon as rounding hides a step's gain
        w = minimize(loss, w, jac=True, bounds=bounds, method="L-BFGS-B", options=limits).x
        w = np.asarray(w / w.sum())
        if -loss(w)[1].min() < MISSING:
            break
    return w
