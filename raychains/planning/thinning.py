"""Options that spread a chain's kept draws over the part of its steps that has noise, and those of a point estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONE_COSINE: Mapping[str, Any] = {"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
"""Options of a point estimate, which is the last iterate: its step size falls once, from the first step to the last."""


def steps_apart(share: float, steps: int, draws: int) -> int:
    """Return the steps between draws that spread them over nine tenths of a last share of the steps."""
    return max(1, int(0.9 * share * steps / draws))


def cyclical(steps: int, draws: int, cycles: int, exploration: float) -> dict[str, Any]:
    """Return options of a chain under a cyclical schedule."""
    return {
        "cycles": cycles,
        "exploration": exploration,
        "samples_per_cycle": max(1, draws // cycles),
        "thinning": steps_apart(1 - exploration, steps, draws),
    }


def decreasing(steps: int, draws: int, noise_from: float) -> dict[str, Any]:
    """Return options of a chain under a schedule without cycles, without noise before a share of its steps."""
    return {
        "schedule_settings": (f"samples={draws}", f"noise_from={noise_from}"),
        "thinning": steps_apart(1 - noise_from, steps, draws),
    }
