"""How alike two predictives are, and how different the functions that samples compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.arrays import probabilities, same_shape
from raychains.evaluation.base import Array


def agrees(first: Any, second: Any) -> Array:
    """Per example, whether both predictives have the same top class (the first of equals), bool [n].

    Args:
        first, second: probabilities [n, classes] of the same examples. Shards' results are concatenated.

    Raises:
        UserError: not probabilities, or two shapes.
    """
    first, second = _pair(first, second)
    return first.argmax(axis=1) == second.argmax(axis=1)


def total_variations(first: Any, second: Any) -> Array:
    """Per example, the total variation ½ Σ_c |p_c − q_c| of both predictives, in [0, 1], [n]. Args, errors: `agrees`."""
    first, second = _pair(first, second)
    return 0.5 * np.abs(first - second).sum(axis=1)


def agreement(first: Any, second: Any) -> float:
    """Share of examples with the same top class, in [0, 1] (Izmailov et al. 2021). Args, errors: `agrees`."""
    return float(agrees(first, second).mean())


def total_variation(first: Any, second: Any) -> float:
    """Mean over the examples of the total variation, in [0, 1] (Izmailov et al. 2021). Args, errors: `agrees`."""
    return float(total_variations(first, second).mean())


def disagreements(predictions: Any) -> Array:
    """On how many examples each two samples predict different classes, int64 [samples, samples], symmetric.

    Counts of shards add up; divided by the number of examples they are the disagreement of functions (Fort et al. 2019).

    Args:
        predictions: [samples, n], each sample's top classes.

    Raises:
        UserError: another shape, nothing in it, or no integers.
    """
    classes = np.asarray(predictions)
    require(classes.ndim == 2 and classes.size > 0, "predictions", list(classes.shape), "have the shape [samples, n]")
    require(np.issubdtype(classes.dtype, np.integer), "predictions", str(classes.dtype), "be integers")
    # One sample against all at a time: memory is samples × n and not samples² × n.
    return np.stack([np.count_nonzero(classes != one, axis=1) for one in classes])


def disagreement_matrix(p: Any) -> Array:
    """Share of examples on which each two samples predict different classes, [samples, samples], in [0, 1].

    Args:
        p: probabilities [samples, n, classes].

    Raises:
        UserError: not probabilities.
    """
    p = probabilities(p, "probabilities", "samples", "n", "classes")
    return disagreements(p.argmax(axis=2)) / p.shape[1]


def total_variation_matrix(p: Any) -> Array:
    """Mean total variation of each two samples' predictives, [samples, samples], in [0, 1]. Args, errors: above."""
    p = probabilities(p, "probabilities", "samples", "n", "classes")
    out = np.zeros((len(p), len(p)))
    for i in range(len(p)):
        for j in range(i):
            out[i, j] = out[j, i] = 0.5 * np.abs(p[i] - p[j]).sum(axis=1).mean()
    return out


def _pair(first: Any, second: Any) -> tuple[Array, Array]:
    first, second = (probabilities(p, "probabilities", "n", "classes") for p in (first, second))
    same_shape(first, second, "both predictives")
    return first, second
