"""Which arms an analysis's table is about, and how the figures of samples name and grade them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report.material import Material
from raychains.report.style import WIDTH, Theme

COLUMNS = 4
VARIABLES = {"theta": "θ", "anchor": "θₐ"}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
ABOUT = ("chain", "cycle", "index")


def first_groups(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each arm's first group of repeats."""
    return table[table["group"] == table.groupby("arm")["group"].transform("min")]


def present(material: Material, table: pd.DataFrame) -> list[Arm]:
    """The comparison's arms that the table has rows of."""
    there = set(table["arm"])
    return [arm for arm in material.comparison.arms if arm.name in there]


def measured(material: Material, table: pd.DataFrame, most: int = 2) -> list[Metric]:
    """The first of the task's metrics that the table has numbers of: for classifiers error and NLL."""
    numbers = set(table.select_dtypes("number").columns)
    return [m for m in material.metrics if m.name in numbers][:most]


def variable(name: str) -> str:
    """θ or θₐ."""
    return VARIABLES.get(name, name)


def title(arm: Arm, width: int = 26) -> str:
    """An arm's label over a small panel."""
    return "\n".join(textwrap.wrap(arm.label, width)) or arm.label


def heat(theme: Theme) -> LinearSegmentedColormap:
    """Little to much, in the theme's colours."""
    return LinearSegmentedColormap.from_list("heat", theme.heat)


def powers(axis: Any) -> None:
    """A logarithmic axis with a few powers of ten as text: figures draw dollar signs as they are."""
    axis.set_major_locator(LogLocator(base=10, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda v, _: _power(v)))
    axis.set_minor_locator(NullLocator())


def _power(value: float) -> str:
    if 1e-3 <= value <= 1e4:
        return f"{value:,g}" if value < 1 else f"{value:,.0f}"
    return "10" + str(round(math.log10(value))).translate(SUPERSCRIPTS)


def maps(arms: Sequence[Arm], height: float, **share: Any) -> tuple[Figure, list[Axes]]:
    """A figure with one small panel per arm, spare ones empty."""
    columns = min(COLUMNS, len(arms))
    rows = -(-len(arms) // columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.3))
    axes = [axis for row in figure.subplots(rows, columns, squeeze=False, **share) for axis in row]
    for spare in axes[len(arms) :]:
        spare.set_axis_off()
    return figure, axes[: len(arms)]
