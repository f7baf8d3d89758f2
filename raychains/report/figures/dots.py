"""Panels with an arm per line: a dot per repeat or quantity, what they should be as a dashed line."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report.style import WIDTH, Theme

DASHED = (0, (4, 2))
APART = 0.3
"""How far dots of one arm are set apart, in lines: equal values would hide each other."""

MANY = 40
"""Dots of one arm from which they are smaller and paler."""


def grid(arms: Sequence[Arm], count: int, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels with an arm per line, and the panels."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, rows * (0.34 * len(arms) + 0.75) + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for i, axis in enumerate(axes.flat):
        if i >= count:
            axis.set_axis_off()
            continue
        axis.set_yticks(range(len(arms)), [wrapped(a.label) for a in arms])
        axis.set_ylim(len(arms) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0, labelleft=i % columns == 0)
    return figure, list(axes.flat)[:count]


def dots(axis: Axes, line: int, values: Array, **style: Any) -> None:
    """One arm's values [n] in their line; what is not finite is left out."""
    apart = np.linspace(-APART, APART, len(values)) if len(values) > 1 else np.zeros(len(values))
    there = np.isfinite(values)
    many = len(values) > MANY
    look: dict[str, Any] = {"marker": "o", "markersize": 3 if many else 4.5, "markeredgewidth": 0}
    look |= {"alpha": 0.4 if many else 0.75, **style}
    axis.plot(values[there], line + apart[there], linestyle="", **look)


def wanted(axis: Axes, value: float, theme: Theme) -> None:
    """A dashed line where values should be, or a threshold."""
    axis.axvline(value, color=theme.ink, linestyle=DASHED, linewidth=0.9, zorder=1)


def handle(label: str, **style: Any) -> Line2D:
    """A legend's entry."""
    return Line2D([], [], label=label, **style)


def wrapped(label: str, width: int = 22) -> str:
    """An arm's label in at most three lines."""
    return "\n".join(textwrap.wrap(label, width)[:3]) or label
