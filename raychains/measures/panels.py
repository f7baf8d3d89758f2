"""Parts that measures' figures share: tables, small panels per arm, lines of dots, colours, axes and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from raychains.evaluation.evaluation import Array, Metric
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting import layout
from raychains.plotting.style import HEAT, INK, Drawing

COLUMNS = 4
VARIABLES = {"theta": "θ", "anchor": "θₐ"}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SAMPLE = "chain cycle index"
"""The columns of numbers that name a sample."""
APART = 0.3
"""Distance of an arm's outer dots from their line: equal values would hide each other."""
MANY = 40
"""Dots of one arm from which they are smaller and paler."""


def table(run: RunData, name: str, texts: str, numbers: str) -> pd.DataFrame | None:
    """Return a table of the run with these columns of texts and of numbers, as `results.read_rows` does."""
    return results.read_rows(run.store, name, texts=texts.split(), numbers=numbers.split())


def drawn_from(
    name: str, texts: str, numbers: str
) -> Callable[[Callable[[RunData, pd.DataFrame], Drawing | None]], Callable[[RunData], Drawing | None]]:
    """Decorate a figure that is drawn from one `table` of the run: it shows nothing where there is none."""

    def decorate(draw: Callable[[RunData, pd.DataFrame], Drawing | None]) -> Callable[[RunData], Drawing | None]:
        @wraps(draw)
        def figure(run: RunData) -> Drawing | None:
            found = table(run, name, texts, numbers)
            return None if found is None else draw(run, found)

        return figure

    return decorate


def first_groups(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each arm's first group of repeats."""
    return table[table["group"] == table.groupby("arm")["group"].transform("min")]


def present(run: RunData, table: pd.DataFrame) -> list[Arm]:
    """Return the comparison's arms of which the table has rows."""
    names = set(table["arm"])
    return [arm for arm in run.comparison.arms if arm.name in names]


def measured(run: RunData, table: pd.DataFrame, most: int = 2) -> list[Metric]:
    """Return the first of the task's metrics of which the table has numbers: for classifiers error and NLL."""
    numbers = set(table.select_dtypes("number").columns)
    return [m for m in run.metrics if m.name in numbers][:most]


def variable(name: str) -> str:
    """Return θ or θₐ."""
    return VARIABLES.get(name, name)


def heat() -> LinearSegmentedColormap:
    """Return the colours from little to much."""
    return LinearSegmentedColormap.from_list("heat", HEAT)


def colour_bar(figure: Figure, image: Any, axes: Sequence[Axes], label: str, **settings: Any) -> Any:
    """Draw and return one colour bar beside the panels."""
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, panchor=False, **settings)
    bar.set_label(label)
    return bar


def few_ticks(axis: Axes, count: int, **settings: Any) -> None:
    """Put few ticks on both axes."""
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_locator(MaxNLocator(count, **settings))


def powers(axis: Any) -> None:
    """Label a logarithmic axis with a few powers of ten as text: figures draw dollar signs as they are."""
    axis.set_major_locator(LogLocator(base=10, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda v, _: _power(v)))
    axis.set_minor_locator(NullLocator())


def _power(value: float) -> str:
    if 1e-3 <= value <= 1e4:
        return f"{value:,g}" if value < 1 else f"{value:,.0f}"
    return "10" + str(round(math.log10(value))).translate(SUPERSCRIPTS)


def used(axes: Any, count: int) -> list[Axes]:
    """Return the first ``count`` of a grid's panels; the others are hidden."""
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_axis_off()
    return flat[:count]


def dots(axis: Axes, line: int, values: Array, **style: Any) -> None:
    """Draw one arm's values [n] in their line; those that are not finite are left out."""
    finite, many = np.isfinite(values), len(values) > MANY
    look: dict[str, Any] = {"marker": "o", "markersize": 3 if many else 4.5, "markeredgewidth": 0}
    look |= {"alpha": 0.4 if many else 0.75, **style}
    axis.plot(values[finite], line + layout.apart(len(values), APART)[finite], linestyle="", **look)


def target_line(axis: Axes, value: float) -> None:
    """Draw a dashed line at the right value, or at a threshold."""
    axis.axvline(value, color=INK, linestyle=layout.DASHED, linewidth=0.9, zorder=1)
