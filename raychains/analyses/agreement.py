"""How alike the arms' predictives are: agreement and total variation of each two (Izmailov et al. 2021)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from raychains.analyses.base import Analysis, Context, Tables
from raychains.errors import UserError
from raychains.evaluation import agreement
from raychains.evaluation.base import Array


def tables(context: Context) -> Tables:
    """``agreement``: between, first, first_group, second, second_group, agreement and total_variation, both in [0, 1].

    Where ``between`` is ``arms``: each two arms of one group of repeats on the run's split, in both orders, and each arm
    with itself. Where it is ``repeats``: the first of an arm's groups with each other one. How alike repeats of an arm
    are is what the likeness of two arms is to be held against.

    Raises:
        UserError: a predictive is not finite.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for arm, group in context.groups:
        groups[group].append(arm)
    first_of: dict[int, tuple[int, Array]] = {}
    rows: list[dict[str, Any]] = []
    for done, (group, arms) in enumerate(sorted(groups.items())):
        context.progress("agreement", done, len(groups))
        means = {arm: _mean(context, arm, group) for arm in arms}
        for a in arms:
            for b in arms:
                rows.append(_row(context, "arms", (a, group, means[a]), (b, group, means[b])))
            if a in first_of:
                g, mean = first_of[a]
                rows.append(_row(context, "repeats", (a, g, mean), (a, group, means[a])))
            else:
                first_of[a] = (group, means[a])
    context.progress("agreement", len(groups), len(groups))
    return {"agreement": rows}


def _row(context: Context, between: str, one: tuple[int, int, Array], other: tuple[int, int, Array]) -> dict[str, Any]:
    arms = context.comparison.arms
    return {
        "between": between,
        "first": arms[one[0]].name,
        "first_group": one[1],
        "second": arms[other[0]].name,
        "second_group": other[1],
        "agreement": agreement.agreement(one[2], other[2]),
        "total_variation": agreement.total_variation(one[2], other[2]),
    }


def _mean(context: Context, arm: int, group: int) -> Array:
    """The equally weighted predictive, [examples, classes]."""
    total: Array | None = None
    samples = 0
    for block in context.predictions(arm, group):
        samples += 1
        p = np.exp(np.asarray(block, dtype=np.float64))
        total = p if total is None else total + p
    if total is None:
        raise UserError(f"arm {context.comparison.arms[arm].name!r} has no samples")
    # Half-precision blocks sum to 1 within 1e-3 only; float32 halves what is held of every arm.
    return (total / samples).astype(np.float32)


def why_not(context: Context) -> str | None:
    """It needs classifiers."""
    if context.task.low_dimensional or context.task.predicts != "classes":
        return f"task {context.comparison.task} is no classification"
    return None


ANALYSIS = Analysis(
    name="agreement",
    about="agreement and total variation of the arms' predictives with each other",
    tables=tables,
    why_not=why_not,
)
