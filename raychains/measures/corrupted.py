"""Metrics on corrupted inputs, by type and severity (CIFAR-10-C: Hendrycks & Dietterich 2019)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raychains.core.errors import UserError
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Metric
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, available_splits, not_labelled, offered_splits
from raychains.planning.views import Request
from raychains.plotting import layout
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import Axis, Chart, Line, Panel
from raychains.plotting.style import Drawing

PREFIX = "corrupted:"
CLEAN = "none"
"""The name of the run's own split among the corruptions; its severity is 0."""
ABOUT = ("arm", "group", "repeat", "corruption", "severity")
SHOWN = ("error", "ece")


def tables(context: Context) -> Tables:
    """``corrupted``, every metric by corruption and severity, and ``corrupted_types``, means over the severities.

    corrupted: arm, group, repeat, corruption (``none`` at severity 0 is the run's own split), severity, and one column
    per
        metric of the split.
    corrupted_types: arm, group, repeat, corruption (``mean`` is that over all types), and the metrics' means over
        severities; types with fewer severities than others are left out.

    Raises:
        UserError: no corruption's data are there.
    """
    grid = _grid(context)
    # A type's severities share a file: the first tells of the others, whose images need not be held for that.
    available, missing = available_splits(context, [names[min(names)] for names in grid.values()])
    grid = {kind: names for kind, names in grid.items() if names[min(names)] in available}
    if not grid:
        raise UserError(
            f"no corruption of task {context.comparison.task} has its data here: {next(iter(missing.values()))}"
        )
    requests = [Request(arm=arm, group=group, rows=False) for arm, group in context.groups]
    splits = [(CLEAN, 0, context.split)]
    splits += [(kind, severity, name) for kind, names in grid.items() for severity, name in sorted(names.items())]
    rows: list[Row] = []
    for kind, severity, split in context.counted("corruptions", splits):
        for (arm, group), result in zip(context.groups, context.evaluate(split, requests), strict=True):
            rows.append({**context.key(arm, group), "corruption": kind, "severity": severity, **result.metrics[0]})
    return {"corrupted": rows, "corrupted_types": by_type(rows)}


def _grid(context: Context) -> dict[str, dict[int, str]]:
    """Return the splits' names by corruption and severity."""
    grid: dict[str, dict[int, str]] = {}
    for name in offered_splits(context, PREFIX):
        kind, _, severity = name.removeprefix(PREFIX).rpartition(":")
        if kind and severity.isdecimal():
            grid.setdefault(kind, {})[int(severity)] = name
    return grid


def by_type(rows: list[Row]) -> list[Row]:
    """Return the rows of ``corrupted_types``; a metric that is not finite somewhere is nan for all types."""
    table = pd.DataFrame([row for row in rows if row["severity"] > 0])
    severities = table.groupby("corruption", sort=False)["severity"].nunique()
    types = severities.index[severities == severities.max()]
    table = table[table["corruption"].isin(types)].sort_values("severity", kind="stable")
    metrics = [name for name in table if name not in ABOUT]
    found: list[Row] = []
    for arm, group in dict.fromkeys((row["arm"], row["group"]) for row in rows):
        mine = table[(table["arm"] == arm) & (table["group"] == group)]
        means: dict[str, Row] = {kind: {} for kind in [*types, "mean"]}
        for metric in metrics:
            values = mine.pivot(index="corruption", columns="severity", values=metric).loc[types].to_numpy(dtype=float)
            each = [*values.mean(axis=1).tolist(), float(values.mean())]
            for kind, value in zip(means, each, strict=True):
                means[kind][metric] = value if np.isfinite(each).all() else float("nan")
        found += [{"arm": arm, "group": group, "repeat": group, "corruption": k, **v} for k, v in means.items()]
    return found


def why_not(context: Context) -> str | None:
    """Return the reason where the task is no classification, or offers no corruptions."""
    if reason := not_labelled(context):
        return reason
    if not _grid(context):
        return f"task {context.comparison.task} has no corrupted inputs: no split is called {PREFIX}KIND:SEVERITY"
    return None


@panels.drawn_from("corrupted", "arm corruption", f"group severity {' '.join(SHOWN)}")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw error and calibration error against the severity; None unless corrupted inputs were evaluated."""
    metrics = [m for name in SHOWN for m in Classification.metrics if m.name == name]
    by = table.groupby(["arm", "corruption", "severity"], sort=False)[list(SHOWN)].mean().reset_index()
    types = by.loc[by["corruption"] != CLEAN, "corruption"].nunique()
    data = []
    for (arm, severity), rows in by.groupby(["arm", "severity"], sort=False):
        for m in metrics:
            values = rows[m.name].to_numpy()
            low, high = np.quantile(values, [0.25, 0.75])
            about = {"arm": arm, "severity": int(severity), "metric": m.name, "types": len(rows)}
            data.append({**about, "mean": float(values.mean()), "low": float(low), "high": float(high)})
    return Drawing(
        name="corrupted",
        title="Corrupted inputs",
        caption=(
            f"Mean over {types} type{'s' * (types != 1)} of "
            f"corruption{' and over the repeats' if run.repeated else ''}; upright lines hold the middle half of the "
            "types. Severity 0 is the clean split. corrupted_types.parquet has the numbers by type."
        ),
        alt="Error and calibration error of every arm against the severity of the inputs' corruption",
        draw=_chart(run, pd.DataFrame(data), metrics),
        data=data,
    )


def _chart(run: RunData, table: pd.DataFrame, metrics: list[Metric]) -> Chart:
    names, severities = set(table["arm"]), sorted(set(table["severity"]))
    styles = {name: style for name, style in in_one_panel(run.comparison.arms).items() if name in names}
    shown = []
    for metric in metrics:
        lines = []
        for i, (name, style) in enumerate(styles.items()):
            mine = table[(table["arm"] == name) & (table["metric"] == metric.name)].sort_values("severity")
            mean, low, high = (metric.scale * mine[column] for column in ("mean", "low", "high"))
            # Arms are set apart sideways: their spreads would hide each other.
            x, look = mine["severity"] + layout.apart(len(styles), 0.035 * (len(styles) - 1))[i], style.style(size=5)
            lines.append(Line(x=x, y=mean, style={**look, "linewidth": 1.2}, label=style.label, upright=(low, high)))
        ticks = {severity: str(severity) for severity in severities}
        x_axis = Axis(label="Severity of the corruption", ticks=ticks, grid=False, margin=0.05)
        shown.append(Panel(marks=lines, x=x_axis, y=Axis(label=metric.label, low=0)))
    return Chart(panels=shown, columns=len(shown), height=2.9)


MEASURE = Measure(
    name="corrupted",
    section="Uncertainty",
    about="every metric on corrupted inputs, by type and severity",
    tables=tables,
    why_not=why_not,
    figures={"corrupted": figure},
)
