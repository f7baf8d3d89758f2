"""How unsure a predictive is, in nats, and which part of that its samples disagree about."""

from __future__ import annotations

from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.arrays import at_least, finite, labels, probabilities, same_shape
from raychains.evaluation.base import Array, Rows

ROUNDING = 1e-12
"""Nats below which the difference of two entropies is rounding."""


def entropy(p: Any) -> Array:
    """H = −Σ_c p_c log p_c in nats, [n], of probabilities [n, classes]; 0·log 0 is 0.

    Raises:
        UserError: not probabilities.
    """
    return _entropy(probabilities(p, "probabilities", "n", "classes"))


def predictive_entropy(p: Any) -> Array:
    """Entropy in nats of the samples' mean p̄, [n], of probabilities [samples, n, classes]: the total uncertainty.

    Raises:
        UserError: not probabilities.
    """
    return _entropy(probabilities(p, "probabilities", "samples", "n", "classes").mean(axis=0))


def expected_entropy(p: Any) -> Array:
    """Mean entropy in nats of the samples' own predictives, [n], of probabilities [samples, n, classes]: the aleatoric part.

    Raises:
        UserError: not probabilities.
    """
    p = probabilities(p, "probabilities", "samples", "n", "classes")
    return np.mean([_entropy(sample) for sample in p], axis=0)


def mutual_information(p: Any) -> Array:
    """Mutual information of label and parameters in nats, [n], of probabilities [samples, n, classes]: the epistemic part.

    It is predictive minus expected entropy, in [0, log classes], and computed as the mean of KL(p_s ‖ p̄) in the form
    Σ_c p̄_c·((1 + u) log(1 + u) − u) with u = p_sc/p̄_c − 1, of which no term is negative and which keeps its digits
    where samples nearly agree and the difference of entropies is all rounding. Of equal samples it is 0 exactly.

    Raises:
        UserError: not probabilities.

    Source: Houlsby et al. 2011 (BALD); Depeweg et al. 2018 for the decomposition.
    """
    p = probabilities(p, "probabilities", "samples", "n", "classes")
    mean = p.mean(axis=0)
    out, differs = np.zeros(len(mean)), np.zeros(len(mean), dtype=bool)
    divisor = np.where(mean > 0, mean, 1.0)
    for sample in p:
        # (p − p̄)/p̄ and not p/p̄ − 1: the small difference is exact in the numerator.
        u = np.maximum((sample - mean) / divisor, -1.0)
        log = np.log1p(np.where(u > -1, u, 0.0))
        out += (mean * ((1 + u) * log - u)).sum(axis=1)
        differs |= (sample != p[0]).any(axis=1)
    # The mean of equal samples may round.
    return np.where(differs, np.maximum(out / len(p), 0.0), 0.0)


def mutual_information_of(rows: Rows) -> Array:
    """Mutual information in nats, [n], from a view's rows: ``entropy`` − ``expected_entropy``.

    What is below `ROUNDING` is 0, so that points about which all samples agree are tied and not ordered by chance.

    Raises:
        UserError: columns of different lengths, or entries that are not finite.
    """
    total, expected = finite(rows["entropy"], "entropy"), finite(rows["expected_entropy"], "expected_entropy")
    same_shape(total, expected, "entropy and expected_entropy")
    difference = total - expected
    return np.where(difference > ROUNDING, difference, 0.0)


def top_k_error(p: Any, label: Any, k: int) -> float:
    """Share of examples whose label is not among the k most probable classes, in [0, 1].

    Of classes with the same probability the one with the smaller number comes first, as with argmax: k = 1 is
    `metrics.error` exactly, and a constant predictive is not right about everything.

    Args:
        p: probabilities [n, classes].
        label: [n] class numbers.

    Raises:
        UserError: not probabilities, labels that are none of the classes, or k outside [1, classes].
    """
    p = probabilities(p, "probabilities", "n", "classes")
    n, classes = p.shape
    label, k = labels(label, n, classes), at_least(k, 1, "k")
    require(k <= classes, "k", k, f"be at most {classes}, the number of classes")
    return float(np.mean(~in_top(p, label, k)))


def in_top(p: Array, label: Array, k: int) -> Array:
    """Whether the label [n] is among the k most probable of the classes of p [n, classes], bool [n]: see `top_k_error`."""
    own = p[np.arange(len(p)), label][:, None]
    earlier = np.arange(p.shape[1]) < label[:, None]
    rank = np.count_nonzero((p > own) | ((p == own) & earlier), axis=1)
    return rank < k


def _entropy(p: Array) -> Array:
    # + 0.0: minus a sum of zeros is −0.
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1) + 0.0
