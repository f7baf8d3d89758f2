"""Layout of figures: panels side by side, a legend outside of them, plain tick labels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from raychains.evaluation.evaluation import Metric
from raychains.plotting.style import WIDTH

DASHED = (0, (4, 2))
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(value: float, _: int | None = None) -> str:
    """A number as a tick's text: 1,000, 0.05, 10⁻⁵. Figures draw dollar signs as they are."""
    if value <= 0 or 1e-3 <= value < 1e6:
        return f"{value:,.10g}"
    power = round(math.log10(value))
    return "10" + str(power).translate(SUPERSCRIPTS) if math.isclose(value, 10.0**power) else f"{value:g}"


PLAIN = FuncFormatter(plain)


def panels(rows: int, columns: int, height: float, **share: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows × columns panels of the common width, each row ``height`` inches high."""
    figure = Figure(figsize=(WIDTH, rows * height + 0.5))
    axes = figure.subplots(rows, columns, squeeze=False, **share)
    return figure, [list(row) for row in axes]


def log_axis(axis: Any, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Few, plain labels (0.01, 1, 50) on a logarithmic axis, at these multiples of powers of ten."""
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=7 if len(subs) == 1 else None))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def legend(figure: Figure, handles: Sequence[Any], columns: int = 2) -> None:
    """One legend below all panels, where it covers nothing."""
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)))


def entry(label: str, **style: Any) -> Line2D:
    """A legend's entry of any style."""
    return Line2D([], [], label=label, **style)


def apart(count: int, width: float) -> Any:
    """Offsets [count] from −width to width, so that equal values do not hide each other."""
    return np.linspace(-width, width, count) if count > 1 else np.zeros(count)


def wrapped(label: str, width: int = 22, lines: int = 3) -> str:
    """An arm's label in at most ``lines`` lines."""
    return "\n".join(textwrap.wrap(label, width)[:lines]) or label


def measure(metric: Metric) -> str:
    """A horizontal axis's label: the metric with its unit, and where its better end is."""
    arrow = {"lower": "   ← better", "higher": "   → better"}.get(metric.better, "")
    return f"{metric.label}{arrow}"


def sentence(items: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
