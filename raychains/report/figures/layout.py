"""What figures share: panels side by side, a legend outside of them, plain tick labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from raychains.evaluation.base import Metric
from raychains.report.looks import Look
from raychains.report.style import WIDTH, Theme, line, marker

COUNT = FuncFormatter(lambda v, _: f"{v:,.0f}")
PLAIN = FuncFormatter(lambda v, _: f"{v:g}")


def panels(rows: int, columns: int, height: float, **share: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows × columns panels of the common width, each row ``height`` inches high."""
    figure = Figure(figsize=(WIDTH, rows * height + 0.5))
    axes = figure.subplots(rows, columns, squeeze=False, **share)
    return figure, [list(row) for row in axes]


def log_axis(axis: Any, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Few, plain labels (0.01, 1, 50) on a logarithmic axis."""
    axis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def legend(figure: Figure, handles: Sequence[Any], columns: int = 2) -> None:
    """One legend below all panels, where it covers nothing."""
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)))


def handle(theme: Theme, look: Look, *, markers: bool = False) -> Line2D:
    """A legend's entry for one look."""
    return Line2D(
        [],
        [],
        color=theme.colour(look),
        linestyle=line(look),
        label=look.label,
        marker=marker(look) if markers else None,
        markersize=5,
    )


def measure(metric: Metric) -> str:
    """A horizontal axis's label: the metric with its unit, and where its better end is."""
    arrow = {"lower": "   ← better", "higher": "   → better"}.get(metric.better, "")
    return f"{metric.label}{arrow}"


def sentence(items: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
