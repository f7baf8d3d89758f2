"""Mass of the regions that groups of draws explored, by a harmonic mean over an ellipsoid: for low-dimensional targets."""

from __future__ import annotations

from math import lgamma, log, pi
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.weights import Weights, as_series, grouped, weigh


def truncated(draws: Any, log_density: Any, group: Any) -> Weights:
    """Shares of the groups in proportion to the posterior's mass in the region that each explored.

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
    theta = np.asarray(draws, dtype=np.float64)
    require(theta.ndim == 2 and theta.shape[1] > 0, "draws", theta.shape, "have the shape [draws, dim]")
    require(bool(np.isfinite(theta).all()), "draws", "nan or infinity", "be finite everywhere")
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
    names, evidence, dominance = grouped(terms, labels)
    empty = names[np.isinf(evidence)]
    require(
        len(empty) == 0,
        "draws",
        f"none in group {empty[0] if len(empty) else None}",
        "lie in the ellipsoid of their group's other half: the halves have explored different regions",
    )
    return weigh(names, labels, evidence, dominance, offset=float(top))


def ellipsoid(fitted: Array, asked: Array, name: Any = 0) -> tuple[Array, float]:
    """Which of ``asked`` [n, dim] lie in the √(d+1)-ellipsoid of ``fitted``, [n] bool; and the log of its volume.

    ``name`` is what the group is called in errors.
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
