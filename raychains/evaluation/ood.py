"""Can a predictive tell inputs of another distribution from its own: scores, areas under curves, entropy CDFs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require, unknown_name
from raychains.evaluation.arrays import finite
from raychains.evaluation.base import Array, Rows
from raychains.evaluation.uncertainty import mutual_information_of

SCORES = ("entropy", "mutual_information", "max_probability")
"""By what a predictive may be asked; higher is further out."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How well a score separates two sets; all in [0, 1]. Equal scores are never told apart, whatever the order."""

    auroc: float
    """P(score outside > inside) + ½ P(equal): 0.5 tells nothing. The same whichever set is called positive."""
    aupr_out: float
    """Average precision with the outside points as positives, high scores first. By chance: their share of all points."""
    aupr_in: float
    """Average precision with the inside points as positives, low scores first. By chance: their share of all points."""
    fpr95_out: float
    """Share of inside points flagged by the strictest threshold that flags 95 % of the outside ones or more: positives are
    outside (Hendrycks, Mazeika & Dietterich 2019)."""
    fpr95_in: float
    """Share of outside points accepted by the strictest threshold that accepts 95 % of the inside ones or more: positives
    are inside (Liang, Li & Srikant 2018, and most of the field)."""
    inside: int
    """Points inside. The areas under precision and recall depend on both numbers of points; the others do not."""
    outside: int
    """Points outside."""


def score(rows: Rows, by: str) -> Array:
    """A score per example, [n], higher where the predictive is less sure.

    Args:
        rows: a view's rows.
        by: ``entropy`` (nats, of the mean predictive), ``mutual_information`` (nats) or ``max_probability`` (−max p̄, so
            that no two different confidences become equal).

    Raises:
        UserError: another name, or values that are not finite.
    """
    if by == "entropy":
        return finite(rows["entropy"], "entropy")
    if by == "mutual_information":
        return mutual_information_of(rows)
    if by == "max_probability":
        return -finite(rows["confidence"], "confidence")
    raise unknown_name("score", by, SCORES)


def detect(inside: Any, outside: Any) -> Detection:
    """Every measure of `Detection` for a score.

    Args:
        inside: scores of the model's own kind of inputs, [n].
        outside: scores of others, [m]; higher should be further out.

    Raises:
        UserError: no scores, or one that is not finite.
    """
    inside, outside = finite(inside, "scores inside"), finite(outside, "scores outside")
    return Detection(
        auroc=auroc(outside, inside),
        aupr_out=average_precision(outside, inside),
        aupr_in=average_precision(-inside, -outside),
        fpr95_out=false_positive_rate(outside, inside),
        fpr95_in=false_positive_rate(-inside, -outside),
        inside=len(inside),
        outside=len(outside),
    )


def detect_by(inside: Rows, outside: Rows, by: str) -> Detection:
    """`detect` by one of `SCORES` of both splits' rows. Errors: as `score`."""
    return detect(score(inside, by), score(outside, by))


def auroc(positives: Any, negatives: Any) -> float:
    """P(a positive scores higher than a negative) + ½ P(equal), in [0, 1], by scikit-learn.

    Args:
        positives: scores [n].
        negatives: scores [m].

    Raises:
        UserError: no scores, or one that is not finite.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_labelled(positives, negatives)))


def average_precision(positives: Any, negatives: Any) -> float:
    """Area under precision and recall in steps, Σ (R_k − R_k−1)·P_k over the distinct scores, in (0, 1], by scikit-learn.

    Nothing is interpolated, which would flatter (Davis & Goadrich 2006). Args and errors: as `auroc`.
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_labelled(positives, negatives)))


def false_positive_rate(positives: Any, negatives: Any, at: float = 0.95) -> float:
    """Share of negatives that score t or more, t being the largest score that a share ``at`` of the positives reach.

    Points that score exactly t count as reaching it on both sides, so that a tie is passed whole; nothing is
    interpolated. In [0, 1].

    Args:
        positives: scores [n].
        negatives: scores [m].
        at: the true positive rate asked for, in (0, 1].

    Raises:
        UserError: no scores, one that is not finite, or a rate outside (0, 1].
    """
    positives, negatives = _checked(positives, negatives)
    require(0 < at <= 1, "at", at, "lie in (0, 1]")
    # The smallest k with k/n ≥ at, by that comparison: n·at may round to just above an integer.
    needed = 1 + np.searchsorted(np.arange(1, len(positives) + 1) / len(positives), at)
    threshold = np.sort(positives)[-needed]
    return float(np.mean(negatives >= threshold))


def cdf(values: Any, grid: Any | None = None) -> tuple[Array, Array]:
    """The empirical distribution function F(x) = share of values ≤ x as (x, F), each [points] (cSG-MCMC Fig. 4).

    Args:
        values: [n], e.g. entropies in nats; the lower F at small ones, the less over-confident outside.
        grid: where to evaluate, [points]; the distinct values in ascending order if left out: F jumps there.

    Raises:
        UserError: no values, or entries that are not finite.
    """
    ordered = np.sort(finite(values, "values"))
    x = np.unique(ordered) if grid is None else finite(grid, "grid")
    return x, np.searchsorted(ordered, x, side="right") / len(ordered)


def share_below(values: Any, threshold: float) -> float:
    """P(value < threshold): the share of values [n] that are strictly smaller. Errors: as `cdf`."""
    values = finite(values, "values")
    require(np.isfinite(threshold), "threshold", threshold, "be finite")
    return float(np.mean(values < threshold))


def _checked(positives: Any, negatives: Any) -> tuple[Array, Array]:
    return finite(positives, "scores of positives"), finite(negatives, "scores of negatives")


def _labelled(positives: Any, negatives: Any) -> tuple[Array, Array]:
    """Whether a point is a positive, and its score."""
    positives, negatives = _checked(positives, negatives)
    return np.repeat([1, 0], [len(positives), len(negatives)]), np.concatenate([positives, negatives])
