"""What corruption of the inputs costs: error and calibration error against its severity."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains.analyses.corrupted import CLEAN
from raychains.evaluation.base import Metric
from raychains.report import results
from raychains.report.figures.layout import legend, panels
from raychains.report.figures.styles import Style, styles
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme

SHOWN = ("error", "ece")


def drawing(material: Material) -> Drawing | None:
    """None unless corrupted inputs were evaluated."""
    table = results.read_rows(
        material.store, "corrupted", texts=("arm", "corruption"), numbers=("group", "severity", *SHOWN)
    )
    if table is None:
        return None
    metrics = [m for name in SHOWN for m in _known() if m.name == name]
    by = table.groupby(["arm", "corruption", "severity"], sort=False)[list(SHOWN)].mean().reset_index()
    types = by.loc[by["corruption"] != CLEAN, "corruption"].nunique()
    data = [
        {
            "arm": arm,
            "severity": int(severity),
            "metric": m.name,
            "types": len(rows),
            **_spread(rows[m.name].to_numpy()),
        }
        for (arm, severity), rows in by.groupby(["arm", "severity"], sort=False)
        for m in metrics
    ]
    return Drawing(
        name="corrupted",
        title="Corrupted inputs",
        caption=(
            f"Mean over {types} type{'s' * (types != 1)} of corruption and over the repeats; upright lines hold the middle "
            "half of the types. Severity 0 is the clean split. corrupted_types.parquet has the numbers by type."
        ),
        alt="Error and calibration error of every arm against the severity of the inputs' corruption",
        draw=lambda theme: _draw(material, pd.DataFrame(data), metrics, theme),
        data=data,
    )


def _known() -> tuple[Metric, ...]:
    from raychains.evaluation.classification import Classification

    return Classification.metrics


def _spread(values: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(values, [0.25, 0.75])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def _draw(material: Material, table: pd.DataFrame, metrics: list[Metric], theme: Theme) -> Figure:
    figure, axes = panels(1, len(metrics), 2.9)
    found = {
        name: style for name, style in styles(material.comparison.arms, theme).items() if name in set(table["arm"])
    }
    severities = sorted(set(table["severity"]))
    for axis, metric in zip(axes[0], metrics, strict=True):
        for i, (name, style) in enumerate(found.items()):
            mine = table[(table["arm"] == name) & (table["metric"] == metric.name)].sort_values("severity")
            # Arms are set apart sideways: their spreads would hide each other.
            _line(axis, mine, metric, style, 0.07 * (i - (len(found) - 1) / 2))
        axis.set_xticks(severities)
        axis.set_xlabel("Severity of the corruption")
        axis.set_ylabel(metric.label)
        axis.set_ylim(bottom=0)
        axis.grid(False, axis="x")
    legend(figure, [style.handle() for style in found.values()], columns=3)
    return figure


def _line(axis: Axes, rows: pd.DataFrame, metric: Metric, style: Style, aside: float) -> None:
    x = rows["severity"].to_numpy() + aside
    mean, low, high = (metric.scale * rows[name].to_numpy() for name in ("mean", "low", "high"))
    axis.plot(
        x, mean, color=style.colour, linestyle=style.line, marker=style.marker, markersize=5, linewidth=1.2, zorder=3
    )
    axis.vlines(x, low, high, color=style.colour, linewidth=1.2, alpha=0.7, zorder=2)
