"""Is a probability of 0.8 right in 80 % of the cases: reliability in bins, the errors read off it, class by class too.

Bins of equal width and of equal mass, the errors that they give (`metrics.ece` is the headline), the maximum and the
classwise error, and the parts that the Brier score of the top class is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.arrays import at_least, finite, labels, probabilities, same_shape
from raychains.evaluation.base import BINS, Array, Rows


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
    standard_error: Array
    """Binomial standard error √(a(1 − a)/count) of that share a: 0 where all or none are right, see `wilson`."""


def equal_width(rows: Rows, bins: int = BINS) -> Reliability:
    """Bins [k/bins, (k + 1)/bins), the last one with 1 (Guo et al. 2017).

    torchmetrics keeps a confidence of exactly 1 in a bin of its own: where there are such, its error may be larger.

    Args:
        rows: a view's rows; ``confidence``, ``prediction`` and ``label`` are read.

    Raises:
        UserError: no rows, a confidence that is not in [0, 1], or bins below 1.
    """
    confidence, right = _top_class(rows)
    edges = np.linspace(0, 1, at_least(bins, 1, "bins") + 1)
    return _diagram(width_bin(confidence, bins), confidence, right, bins, edges=edges)


def equal_mass(rows: Rows, bins: int = BINS) -> Reliability:
    """Bins that hold equally many examples, as nearly as n and ties allow (ATMC: 8; Nguyen & O'Connor 2015).

    Without ties bin sizes differ by one at most. Examples of the same confidence share a bin: that of the middle of
    their ranks, bin ⌊bins·(examples below + half of the tied)/n⌋. So the result does not depend on the order of the
    rows, bins grow unequal where many confidences are the same, and some are empty then (or when n < bins).

    Args and errors: as `equal_width`.
    """
    confidence, right = _top_class(rows)
    return _diagram(_mass_bins(confidence, at_least(bins, 1, "bins")), confidence, right, bins)


def wilson(diagram: Reliability, level: float = 0.95) -> tuple[Array, Array]:
    """Wilson's interval of each bin's accuracy (lower, upper), each [bins]; nan in an empty bin.

    (a + z²/2n ± z√(a(1 − a)/n + z²/4n²))/(1 + z²/n): unlike the standard error it does not vanish where all of a bin are
    right. Source: Wilson 1927.
    """
    require(0 < level < 1, "level", level, "lie in (0, 1)")
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    a = diagram.accuracy
    n = np.where(diagram.count > 0, diagram.count, np.nan)
    middle, half = a + z2 / (2 * n), np.sqrt(z2 * (a * (1 - a) / n + z2 / (4 * n**2)))
    return np.maximum((middle - half) / (1 + z2 / n), 0.0), np.minimum((middle + half) / (1 + z2 / n), 1.0)


def expected_error(diagram: Reliability) -> float:
    """Σ_b n_b/n·|accuracy_b − confidence_b|, in [0, 1] (Naeini et al. 2015); empty bins count nothing."""
    return float((diagram.count * _gaps(diagram)).sum() / diagram.count.sum())


def equal_mass_ece(rows: Rows, bins: int = BINS) -> float:
    """Expected calibration error of the top class over `equal_mass` bins, in [0, 1]."""
    return expected_error(equal_mass(rows, bins))


def maximum_error(rows: Rows, bins: int = BINS) -> float:
    """Maximum calibration error: the largest |accuracy − confidence| of an `equal_width` bin, in [0, 1].

    Source: Naeini et al. 2015. One bin of few examples decides it: read it beside the diagram's counts.
    """
    return float(_gaps(equal_width(rows, bins)).max())


def classwise_sums(p: Any, label: Any, bins: int = BINS) -> Array:
    """Per class and equal-width bin of its probability: examples, Σ p, and how many have that class, [3, classes, bins].

    The sums of shards add up to those of the split, so that the probabilities of all examples never meet.

    Args:
        p: probabilities [n, classes].
        label: [n] class numbers.

    Raises:
        UserError: no probabilities, labels that are none of the classes, or bins below 1.
    """
    p = probabilities(p, "probabilities", "n", "classes")
    n, classes = p.shape
    label, bins = labels(label, n, classes), at_least(bins, 1, "bins")
    where = width_bin(p, bins) + bins * np.arange(classes)
    size = classes * bins
    count = np.bincount(where.ravel(), minlength=size)
    total = np.bincount(where.ravel(), weights=p.ravel(), minlength=size)
    hits = np.bincount(where[np.arange(n), label], minlength=size)
    return np.stack([count, total, hits]).reshape(3, classes, bins).astype(np.float64)


def classwise_error(sums: Array) -> float:
    """Classwise calibration error from `classwise_sums`, in [0, 1].

    (1/K) Σ_k Σ_b n_kb/n·|share of class k in the bin − mean p_k in it|: the static calibration error of Nixon et al.
    2019, which is the classwise ECE of Kull et al. 2019. Every class counts the same, those without examples too.
    """
    count, total, hits = sums
    return float(np.abs(hits - total).sum() / (count[0].sum() * len(count)))


@dataclass(frozen=True, kw_only=True)
class BrierParts:
    """What the mean of (confidence − right)² consists of when confidences are put into bins.

    reliability − resolution + uncertainty is Murphy's (1973) decomposition, exact where all confidences in a bin are the
    same; the two terms within bins (Stephenson, Coelho & Jolliffe 2008) make it exact always. In units of probability².
    """

    reliability: float
    """Σ n_b/n·(confidence_b − accuracy_b)²; 0 is calibrated."""
    resolution: float
    """Σ n_b/n·(accuracy_b − accuracy)²; more of it is better."""
    uncertainty: float
    """accuracy·(1 − accuracy): what a constant, calibrated confidence would score."""
    within_variance: float
    """Mean squared distance of the confidences from their bin's mean."""
    within_covariance: float
    """Twice the mean product of that distance and of right's from its bin's accuracy."""

    @property
    def score(self) -> float:
        """The Brier score of the top class, (1/n) Σ (confidence − right)². `metrics.brier` is that of all classes."""
        calibrated = self.uncertainty - self.resolution
        return calibrated + self.reliability + self.within_variance - self.within_covariance


def brier_parts(rows: Rows, bins: int = BINS) -> BrierParts:
    """`BrierParts` over `equal_mass` bins. Args and errors: as `equal_width`."""
    confidence, right = _top_class(rows)
    which = _mass_bins(confidence, at_least(bins, 1, "bins"))
    diagram = _diagram(which, confidence, right, bins)
    share, accuracy = diagram.count / len(right), float(right.mean())
    away = confidence - diagram.confidence[which]
    return BrierParts(
        reliability=float((share * _gaps(diagram) ** 2).sum()),
        resolution=float((share * np.nan_to_num(diagram.accuracy - accuracy) ** 2).sum()),
        uncertainty=accuracy * (1 - accuracy),
        within_variance=float(np.mean(away**2)),
        within_covariance=float(2 * np.mean(away * (right - diagram.accuracy[which]))),
    )


def _top_class(rows: Rows) -> tuple[Array, Array]:
    """Confidences [n] and whether the top class is right [n], checked. A rounding above 1 counts as 1."""
    confidence = finite(rows["confidence"], "confidence")
    right = np.asarray(rows["prediction"]) == np.asarray(rows["label"])
    same_shape(confidence, right, "confidence and label")
    for extreme in (float(confidence.min()), float(confidence.max())):
        require(-1e-6 <= extreme <= 1 + 1e-6, "confidence", extreme, "lie in [0, 1]")
    return np.clip(confidence, 0, 1), right


def width_bin(values: Array, bins: int) -> Array:
    """The equal-width bin of each probability, of any shape."""
    # By the edges themselves: values·bins rounds some edges into the bin below.
    edges = np.linspace(0, 1, bins + 1)
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)


def mass_bin(below: Array, tied: Array, n: int, bins: int) -> Array:
    """The equal-mass bin of points, integers of any shape, from how many of n points are below them and tied with them.

    A value that no point has (``tied`` 0) may be given a bin too.
    """
    return np.minimum((2 * below + tied) * bins // (2 * n), bins - 1)


def _mass_bins(values: Array, bins: int) -> Array:
    _, group, tied = np.unique(values, return_inverse=True, return_counts=True)
    return mass_bin(np.cumsum(tied) - tied, tied, len(values), bins)[group]


def _diagram(which: Array, confidence: Array, right: Array, bins: int, edges: Array | None = None) -> Reliability:
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(which, weights=confidence, minlength=bins) / count
        accuracy = np.bincount(which, weights=right, minlength=bins) / count
        error = np.sqrt(accuracy * (1 - accuracy) / count)
    if edges is None:
        lower, upper = np.full(bins, np.inf), np.full(bins, -np.inf)
        np.minimum.at(lower, which, confidence)
        np.maximum.at(upper, which, confidence)
        lower[count == 0] = upper[count == 0] = np.nan
    else:
        lower, upper = edges[:-1], edges[1:]
    return Reliability(lower=lower, upper=upper, count=count, confidence=mean, accuracy=accuracy, standard_error=error)


def _gaps(diagram: Reliability) -> Array:
    """|accuracy − confidence|, 0 in an empty bin."""
    return np.nan_to_num(np.abs(diagram.accuracy - diagram.confidence))
