"""Stacking: the weights of samples whose mixture predicts held-out data best (Yao et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array

TOLERANCE = 1e-9
"""Nats per example that the score may lie below the best possible."""
ROUNDS = 2000


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """The weights and how close to the best they are."""

    weights: Array
    """[samples], not negative, sum 1."""
    score: float
    """Mean log probability of the validation labels under the mixture, nats per example."""
    equal_score: float
    """The same with equal weights; never above ``score`` by more than ``gap``."""
    gap: float
    """How much higher the score of any other weights could be at most, nats per example (a certificate, not a guess)."""


def stack(log_p: Any, *, tolerance: float = TOLERANCE) -> Stacked:
    """Maximise (1/n) Σ_i ln Σ_s w_s p_s(y_i | x_i) over the simplex of w.

    The score is concave. With r_is = p_s(y_i)/Σ_t w_t p_t(y_i) its gradient is g_s = mean_i r_is, and w is best exactly
    when g_s = 1 wherever w_s > 0 and g_s ≤ 1 elsewhere (Karush–Kuhn–Tucker); max_s g_s − 1 bounds what is missing.
    Each round takes a Newton step on the simplex (a non-negative least-squares problem) with a line search, then one EM
    step w_s ← w_s·g_s, which never lowers the score.

    Use a validation split that the samples were not trained on: on training data it picks the samples that overfit. The
    weights describe prediction, not the posterior's mass; with few examples they vary much.

    Args:
        log_p: ln p_s(y_i | x_i), [samples, examples], nats; −∞ is a probability of 0.
        tolerance: the largest gap that ends the search, nats per example.

    Raises:
        UserError: another shape, nan or +∞, or an example to which every sample gives probability 0.

    Source: Yao, Vehtari, Simpson & Gelman 2018; the Newton step as in Kim et al. 2020 (mixsqp).
    """
    logs = np.asarray(log_p, dtype=np.float64)
    require(logs.ndim == 2 and logs.size > 0, "log_p", logs.shape, "have the shape [samples, examples]")
    require(bool((logs < np.inf).all()), "log_p", "nan or +inf", "be log probabilities")
    top = logs.max(0)
    lost = np.flatnonzero(np.isneginf(top))
    require(len(lost) == 0, "log_p", f"-inf from every sample at example {lost[:1].sum()}", "be finite for a sample")
    p = np.exp(logs - top).T
    w = np.full(p.shape[1], 1 / p.shape[1])
    equal_score = _score(p, w)
    ratios, gap = _optimality(p, w)
    for _ in range(ROUNDS):
        if gap <= tolerance:
            break
        w = _newton(p, w, ratios)
        ratios, gap = _optimality(p, w)
        if gap > tolerance:
            w = w * ratios.mean(0)
            w /= w.sum()
            ratios, gap = _optimality(p, w)
    offset = float(top.mean())
    return Stacked(weights=w, score=_score(p, w) + offset, equal_score=equal_score + offset, gap=gap)


def log_mixture(log_p: Any, weights: Any) -> Array:
    """ln Σ_s w_s exp(log_p_s), [...], of ``log_p`` [samples, ...] and ``weights`` [samples], without underflow."""
    logs = np.asarray(log_p, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64).reshape(-1, *[1] * (logs.ndim - 1))
    require(len(w) == len(logs), "weights", len(w), f"have one entry for each of {len(logs)} samples")
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(logs + np.log(w), axis=0)


def _score(p: Array, w: Array) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(p @ w).mean())


def _optimality(p: Array, w: Array) -> tuple[Array, float]:
    """r [examples, samples] and max_s g_s − 1, which is never negative but for rounding."""
    ratios = p / (p @ w)[:, None]
    return ratios, max(float(ratios.mean(0).max()) - 1, 0.0)


def _newton(p: Array, w: Array, ratios: Array) -> Array:
    """The best point of the score's quadratic model at ``w``, approached until the score itself does not fall.

    Maximising mean ln(p·w) − Σ w over w ≥ 0 has the same solution and needs no constraint on the sum. Its model at w is
    −½‖R x‖²/n + x·(2g − 1) with R = ``ratios``, because R w = 1.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls

    n, size = ratios.shape
    hessian = ratios.T @ ratios / n
    hessian[np.diag_indices(size)] += 1e-12 * np.trace(hessian)  # equal samples make it singular
    try:
        root = np.linalg.cholesky(hessian).T
        goal = nnls(root, solve_triangular(root, 2 * ratios.mean(0) - 1, trans="T"))[0]
    except (np.linalg.LinAlgError, RuntimeError):  # then EM alone goes on
        return w
    if not goal.sum() > 0:
        return w
    goal /= goal.sum()
    now, length = _score(p, w), 1.0
    while length > 1e-6:
        new = w + length * (goal - w)
        if _score(p, new) >= now:
            return new
        length /= 2
    return w
