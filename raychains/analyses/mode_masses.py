"""The share of the draws that each mode of a mixture holds, beside the mass that it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from raychains.analyses import blocks
from raychains.analyses.base import Context
from raychains.analyses.followed import finished
from raychains.analyses.target import target_of
from raychains.evaluation.base import Array
from raychains.evaluation.exact import Modes
from raychains.evaluation.mode_share import ModeShare

AT_ONCE = 2_000
"""Draws that are told apart at a time."""


def rows(context: Context) -> list[dict[str, Any]]:
    """Rows of ``modes``: arm, group, repeat, mode, number (of the mode, from 0), draws, share, exact (nan at T ≠ 1).

    None of a task that has no modes. A draw counts for a mode with its responsibility, see `ModeShare`.
    """
    known = context.task.reference() if context.task.low_dimensional else None
    if known is None or known.modes is None:
        return []
    modes, found = known.modes, []
    for a, g in context.groups:
        arm = context.comparison.arms[a]
        chains = arm.chains[g]
        exact = target_of(context.task, chains[0]).exact
        sums = sum(
            _sums(blocks.read(context.store.root, spec).values, modes)
            for _, spec in finished(context.store.root, chains)
        )
        for lane, (count, *held) in enumerate(np.asarray(sums)):
            for k, name in enumerate(modes.names):
                found.append(
                    {
                        "arm": arm.name,
                        "group": g,
                        "repeat": g * chains[0].lanes + lane,
                        "mode": name,
                        "number": k,
                        "draws": int(count),
                        "share": float(held[k] / count),
                        "exact": float(modes.weights[k]) if exact is not None else float("nan"),
                    }
                )
    return found


def _sums(values: Array, modes: Modes) -> Array:
    """Number of draws [draws, lanes, dim] and the sum of each mode's responsibilities, [lanes, 1 + modes]."""
    share = ModeShare(centres=modes.centres, scales=modes.scales, weights=modes.weights, mode=0)
    parts = [share.predict({"theta": values[i : i + AT_ONCE]}, 0) for i in range(0, len(values), AT_ONCE)]
    return np.sum(parts, axis=0)
