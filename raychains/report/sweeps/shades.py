"""What the figures of a sweep share: the metric's colours, hatches of what did not finish, axes of swept options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.base import Metric
from raychains.report.figures.layout import COUNT, log_axis
from raychains.report.style import Theme
from raychains.report.sweeps.material import FAILED, STOPPED, WAITING, Option, Sweep

HATCHES = {STOPPED: "////", FAILED: "xxxx", WAITING: "...."}
SAID = {STOPPED: "stopped by the scheduler", FAILED: "failed", WAITING: "not finished"}
SHARES = ("exploration", "momentum", "temperature_ramp")
"""Options between 0 and 1, whose axes are plain however near 0 they come."""
STEEP = 20.0
"""Ratio of the ends above which an axis is logarithmic."""
FAR = 3.0
"""Times the distance from the best to the median, behind which the colours of values end."""


def colours(metric: Metric, theme: Theme) -> Colormap:
    """Viridis, perceptually uniform and safe for colour-blind readers; the better a value, the further from the paper."""
    worst, best = (0.9, 0.0) if theme.name == "light" else (0.14, 1.0)  # no line is lost on its paper
    worse_last = colormaps["viridis"](np.linspace(best, worst, 256))
    return ListedColormap(worse_last[::-1] if metric.better == "higher" else worse_last, name="worth")


def span(values: Sequence[float], metric: Metric) -> Normalize:
    """From the best to the worst value; one that is far out shares the last colour instead of taking all others' range."""
    found = np.array([v for v in values if math.isfinite(v)] or [0.0])
    low, high = float(found.min()), float(found.max())
    middle = float(np.median(found))
    if metric.better == "higher":
        low = max(low, high - FAR * (high - middle)) if middle < high else low
    else:
        high = min(high, low + FAR * (middle - low)) if middle > low else high
    return Normalize(low, high if high > low else low + max(abs(low), 1.0) * 1e-3, clip=True)


def readable(shade: Any) -> str:
    """Black or white, whichever has more contrast on a shade: at least 4.58 : 1."""
    return max(("#000000", "#ffffff"), key=lambda c: contrast(c, shade))


def contrast(one: Any, other: Any) -> float:
    """WCAG's contrast ratio of two colours, from 1 to 21."""
    a, b = sorted((_luminance(one), _luminance(other)))
    return (b + 0.05) / (a + 0.05)


def _luminance(colour: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def number(metric: Metric, value: float) -> str:
    """A metric's value as tables have it."""
    return f"{value * metric.scale:.{metric.digits}f}"


def patch(status: str, theme: Theme, partly: bool = False) -> Patch:
    """A legend's entry of a hatch; ``partly`` says that some of these have values of other repeats, which finished."""
    more = " (value: of its other repeats)" if partly else " (its last value)" if status == STOPPED else ""
    return Patch(
        facecolor=theme.paper, edgecolor=theme.muted, hatch=HATCHES[status], linewidth=0.7, label=SAID[status] + more
    )


def scale(axis: Axes, which: str, option: Option) -> Callable[[Any], float]:
    """Set one axis up for an option's values; gives a value's place on it.

    Numbers over a wide range have a logarithmic axis, other numbers a plain one; texts, and numbers among which a default
    stands, have a place each.
    """
    own = axis.xaxis if which == "x" else axis.yaxis
    own.set_label_text(option.label)
    values = option.values
    if not option.numeric or not values:
        own.set_ticks(range(len(values)), [str(v) for v in values])
        return lambda v: float(values.index(v)) if v in values else math.nan
    if option.name not in SHARES and min(values) > 0 and max(values) / min(values) >= STEEP:
        (axis.set_xscale if which == "x" else axis.set_yscale)("log")
        log_axis(own, (1.0,) if max(values) / min(values) > 300 else (1.0, 2.0, 5.0))
    elif all(isinstance(v, int) for v in values):
        own.set_major_locator(MaxNLocator(8, integer=True))
        own.set_major_formatter(COUNT)
    return lambda v: math.nan if v is None else float(v)


def one_value_each(sweep: Sweep, names: Sequence[str]) -> bool:
    """Whether the points leave at most half of the grid of these options' values empty, and the grid is small enough."""
    options = [o for o in sweep.options if o.name in names]
    cells = math.prod(len(o.values) for o in options)
    there = {tuple(p.values[o.name] for o in options) for p in sweep.points}
    return all(len(o.values) <= 14 for o in options) and 2 * len(there) >= cells
