"""Step sizes by a rule on a grid: the largest one that still samples right, or the one that gives a wanted figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from raychains.errors import require
from raychains.schedules.base import is_number, positive, positive_int

Measure = Callable[[float], float]
"""A step size to a figure; nan or infinity where the chain broke down."""


def log_grid(low: float, high: float, per_decade: int) -> list[float]:
    """Step sizes 10^(i/per_decade) from ``low`` to ``high``, rising, with three significant digits.

    Raises:
        UserError: numbers that are not positive, or ``high`` below ``low``.
    """
    positive("low", low)
    positive("high", high)
    positive_int("per_decade", per_decade)
    require(high >= low, "high", high, f"be at least low ({low})")
    first = math.ceil(per_decade * math.log10(low) - 1e-9)
    last = math.floor(per_decade * math.log10(high) + 1e-9)
    return [float(f"{10 ** (i / per_decade):.3g}") for i in range(first, last + 1)]


def largest(steps: Sequence[float], measure: Measure, limit: float) -> float | None:
    """The largest of ``steps`` whose figure is at most ``limit``; None if there is none.

    They are tried from the largest down, because a figure such as a ratio of standard deviations need not be monotone:
    it is wrong for steps that are too large and again for those too small to get anywhere.
    """
    for step in sorted(steps, reverse=True):
        if measure(step) <= limit:  # false for nan
            return step
    return None


STRIDE = 4
"""`nearest` first looks at every fourth step."""


def nearest(steps: Sequence[float], measure: Measure, wanted: float) -> float:
    """The step whose figure is nearest to ``wanted`` on a logarithmic scale, for a figure that grows with the step.

    They are tried from the smallest up to the first that reaches ``wanted``, every fourth and then those just below; of
    all tried it is the nearest. Where none reaches it, all are tried but those at and above the first without a figure.

    Raises:
        UserError: ``wanted`` is not positive, there are no steps, or none has a figure.
    """
    positive("wanted", wanted)
    require(len(steps) > 0, "steps", "none", "be at least one")
    rising, found = sorted(steps), {}

    def reached(step: float) -> bool:
        """Whether its figure is what is wanted, or it has none because the chain breaks down."""
        found[step] = measure(step)
        return not found[step] < wanted

    end = next((i for i in range(0, len(rising), STRIDE) if reached(rising[i])), len(rising))
    coarse = end < len(rising) and is_number(found[rising[end]])
    first = max(0, end - STRIDE + 1) if coarse else 0
    for step in rising[first:end]:
        if step not in found and reached(step):
            break
    known = [
        (abs(math.log(figure / wanted)), step) for step, figure in found.items() if is_number(figure) and figure > 0
    ]
    require(len(known) > 0, "steps", list(steps), "have one at which the chain does not break down")
    return min(known)[1]
