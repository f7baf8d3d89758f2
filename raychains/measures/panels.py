"""Parts that measures' figures share: their tables, and the arms and metrics that these hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from raychains.evaluation.evaluation import Array, Metric
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting import charts, layout
from raychains.plotting.style import Drawing

COLUMNS = 4
VARIABLES = {"theta": "θ", "anchor": "θₐ"}
SAMPLE = "chain cycle index"
"""The columns of numbers that name a sample."""


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


# For the figures of published tables, which are drawn without charts


def powers(axis: Any) -> None:
    """Label a logarithmic axis with a few powers of ten as text."""
    layout.log_axis(axis, (1.0,))


def dots(axis: Axes, line: int, values: Array, **style: Any) -> None:
    """Draw one arm's values [n] in their line; those that are not finite are left out."""
    mark = charts.dots(line, values, style)
    axis.plot(mark.x, mark.y, **mark.style)


def target_line(axis: Axes, value: float) -> None:
    """Draw a dashed line at the right value, or at a threshold."""
    axis.axvline(value, zorder=1, **charts.DASHED)
