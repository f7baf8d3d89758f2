"""Bins of confidence, of equal width and of equal mass, and the calibration errors that they give, class by class
too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raychains.evaluation.evaluation import Array, Rows, finite


@dataclass(frozen=True, kw_only=True, eq=False)
class Reliability:
    """A reliability diagram of the top class; every field is [bins], in the order of the confidence.

    An empty bin has count 0 and nan in the other columns but, with equal widths, its edges.
    """

    lower: Array
    """Equal widths: the bin's lower edge, inside the bin. Equal mass: the smallest confidence in it."""
    upper: Array
    """Equal widths: the bin's upper edge, outside (but for 1 in the last). Equal mass: the largest confidence in it."""
    count: Array
    """Examples, int64."""
    confidence: Array
    """Mean confidence of the bin's examples."""
    accuracy: Array
    """Share of them whose top class is the label."""


def equal_width(rows: Rows, bins: int) -> Reliability:
    """Return the reliability diagram of bins [k/bins, (k + 1)/bins), the last one with 1 (Guo et al. 2017).

    torchmetrics keeps a confidence of exactly 1 in a bin of its own: where there are such, its error may be larger.

    Args:
        rows: a view's rows; ``confidence``, ``prediction`` and ``label`` are read.

    Raises:
        UserError: a confidence that is not finite.
    """
    confidence, right = top_class(rows)
    return _diagram(width_bin(confidence, bins), confidence, right, bins, edges=width_edges(bins))


def equal_mass(rows: Rows, bins: int) -> Reliability:
    """Return the reliability diagram of bins that hold equally many examples, as nearly as n and ties allow.

    Nguyen & O'Connor 2015; ATMC has 8 bins. Without ties bin sizes differ by one at most. Examples of the same
    confidence share a bin: that of the middle of their ranks, bin ⌊bins·(examples below + half of the tied)/n⌋. So the
    result does not depend on the order of the rows, bins grow unequal where many confidences are the same, and some are
    empty then (or when n < bins).

    Args and errors: as `equal_width`.
    """
    confidence, right = top_class(rows)
    return _diagram(mass_bins(confidence, bins), confidence, right, bins)


def expected_error(diagram: Reliability) -> float:
    """Return Σ_b n_b/n·|accuracy_b − confidence_b|, in [0, 1] (Naeini et al. 2015); empty bins count nothing."""
    return float((diagram.count * gaps(diagram)).sum() / diagram.count.sum())


def classwise_sums(p: Array, label: Array, bins: int) -> Array:
    """Return, per class and bin of equal width of its probability, examples, Σ p and members, [3, classes, bins].

    The sums of shards add up to those of the split, so that the probabilities of all examples never meet.

    Args:
        p: probabilities [n, classes].
        label: [n] class numbers.
    """
    n, classes = p.shape
    where = width_bin(p, bins) + bins * np.arange(classes)
    size = classes * bins
    count = np.bincount(where.ravel(), minlength=size)
    total = np.bincount(where.ravel(), weights=p.ravel(), minlength=size)
    hits = np.bincount(where[np.arange(n), label], minlength=size)
    return np.stack([count, total, hits]).reshape(3, classes, bins).astype(np.float64)


def classwise_error(sums: Array) -> float:
    """Return the classwise calibration error from `classwise_sums`, in [0, 1].

    (1/K) Σ_k Σ_b n_kb/n·|share of class k in the bin − mean p_k in it|: the static calibration error of Nixon et al.
    2019, which is the classwise ECE of Kull et al. 2019. Every class counts the same, those without examples too.
    """
    count, total, hits = sums
    return float(np.abs(hits - total).sum() / (count[0].sum() * len(count)))


def top_class_sums(confidence: Array, right: Array, bins: int) -> Array:
    """Return, per bin of equal width of the confidence [n], examples, Σ confidence and those that are right, [3, bins].

    The sums of shards add up to those of the split; `top_class_error` of them is the error of `equal_width`.
    """
    confidence = np.clip(confidence, 0, 1)
    where = width_bin(confidence, bins)
    return np.stack([np.bincount(where, weights=w, minlength=bins) for w in (np.ones(len(where)), confidence, right)])


def top_class_error(sums: Array) -> float:
    """Return the expected calibration error from `top_class_sums`, in [0, 1]; nan without examples."""
    count, total, hits = sums
    return float(np.abs(hits - total).sum() / count.sum()) if count.sum() else float("nan")


def top_class(rows: Rows) -> tuple[Array, Array]:
    """Return confidences [n] and whether the top class is right [n]. A rounding above 1 counts as 1."""
    right = np.asarray(rows["prediction"]) == np.asarray(rows["label"])
    return np.clip(finite(rows["confidence"], "confidence"), 0, 1), right


def width_edges(bins: int) -> Array:
    """Return the edges of bins of equal width, [bins + 1]."""
    return np.linspace(0, 1, bins + 1)


def width_bin(values: Array, bins: int) -> Array:
    """Return the bin of equal width of each probability, of any shape."""
    # By the edges themselves: values·bins rounds some edges into the bin below.
    return np.clip(np.searchsorted(width_edges(bins), values, side="right") - 1, 0, bins - 1)


def mass_bin(below: Array, tied: Array, n: int, bins: int) -> Array:
    """Return the bin of equal mass of points, integers of any shape.

    It follows from how many of n points lie below them and how many are tied with them; ``tied`` may be 0.
    """
    return np.minimum((2 * below + tied) * bins // (2 * n), bins - 1)


def mass_bins(values: Array, bins: int) -> Array:
    """Return the bin of equal mass of each value, [n]."""
    _, group, tied = np.unique(values, return_inverse=True, return_counts=True)
    return mass_bin(np.cumsum(tied) - tied, tied, len(values), bins)[group]


def _diagram(which: Array, confidence: Array, right: Array, bins: int, edges: Array | None = None) -> Reliability:
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(which, weights=confidence, minlength=bins) / count
        accuracy = np.bincount(which, weights=right, minlength=bins) / count
    if edges is None:
        lower, upper = np.full(bins, np.inf), np.full(bins, -np.inf)
        np.minimum.at(lower, which, confidence)
        np.maximum.at(upper, which, confidence)
        lower[count == 0] = upper[count == 0] = np.nan
    else:
        lower, upper = edges[:-1], edges[1:]
    return Reliability(lower=lower, upper=upper, count=count, confidence=mean, accuracy=accuracy)


def gaps(diagram: Reliability) -> Array:
    """Return |accuracy − confidence|, 0 in an empty bin."""
    return np.nan_to_num(np.abs(diagram.accuracy - diagram.confidence))
