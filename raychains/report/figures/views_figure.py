"""The whole ensemble beside single samples, cycles and chains, and beside itself without one chain."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np

from raychains.evaluation.evaluation import Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.charts import DOT, Axis, Chart, Line, Mark, Panel, Rule, Style
from raychains.plotting.layout import apart, measure
from raychains.plotting.style import INK, MUTED, Drawing
from raychains.report.run_tables import Kind, kinds, view_metrics

PANELS = 2
"""Metrics that are drawn: the first ones, for classifiers error and NLL."""
WHOLE: Style = {"color": INK, "linewidth": 1.4, "zorder": 2}
MANY = 60
"""Dots of a row from which on they are small."""


def drawing(run: RunData) -> Drawing | None:
    """None where no parts of the ensembles were evaluated."""
    metrics, found = view_metrics(run)[:PANELS], kinds(run)
    if not metrics or all(kind.ensemble for kind in found):
        return None
    names = " and ".join(m.label for m in metrics)
    columns = ["arm", "group", "repeat", "view", "kind", "weighting", "samples"]
    columns += [column for m in metrics for column in (m.name, *ends(m))]
    return Drawing(
        name="views",
        title="The ensemble and its parts",
        caption=(
            f"One dot per view{' and repeat' if run.repeated else ''}, in the order of samples, cycles or chains; the "
            f"upright line is the ensemble of all samples, equally weighted{run.over_repeats}. What lies right of it "
            "in a panel whose lower values are better is worse than the ensemble. Bars: 95 % bootstrap intervals over "
            "the test points, samples held."
        ),
        alt=f"{names} of the predictives of single samples, cycles and chains of every arm, beside the ensemble's",
        draw=_chart(run, found, metrics),
        data=run.views[[c for c in columns if c in run.views.columns]].to_dict("records"),
    )


def _chart(run: RunData, found: list[Kind], metrics: tuple[Metric, ...]) -> Chart:
    names, heads = dict[float, str](), dict[float, str]()
    marks: dict[str, list[Mark]] = {metric.name: [] for metric in metrics}
    line = 0
    for arm in run.comparison.arms:
        own = [kind for kind in found if kind.arm is arm]
        if not own:
            continue
        heads[line] = textwrap.shorten(arm.label, 44, placeholder="…")
        names |= {line + i: kind.label for i, kind in enumerate(own, start=1)}
        for metric in metrics:
            here = marks[metric.name]
            here += [Rule(at=line - 0.5, style={"color": MUTED, "linewidth": 0.7})] * (line > 0)
            for i, kind in enumerate(own, start=1):
                here += _dots(kind, metric, line + i, run.arm_styles[arm].colour)
            if (value := ensemble(run, arm, metric)) is not None:
                between = (line + 0.5, line + len(own) + 0.5)
                here.append(Rule(at=value * metric.scale, upright=True, ends=between, style=WHOLE))
        line += len(own) + 1
    y = Axis(ticks=names, low=line - 0.4, high=-0.6)
    shown = [
        Panel(marks=marks[m.name], x=Axis(label=measure(m), ticks=5, margin=0.04), y=y, heads={} if i else heads)
        for i, m in enumerate(metrics)
    ]
    legend = [("a view", DOT), ("all samples, equal weights", WHOLE)]
    return Chart(panels=shown, columns=len(shown), height=0.24 * line + 0.6, share_y=True, legend=legend)


def _dots(kind: Kind, metric: Metric, line: float, colour: str) -> Iterator[Line]:
    values = kind.rows[metric.name].to_numpy(dtype=float) * metric.scale
    at, style = line + apart(len(values), 0.22), {**DOT, "color": colour, "alpha": 0.7, "markeredgewidth": 0}
    style["markersize"] = 3.0 if len(values) > MANY else 4.5
    low, high = ends(metric)
    columns = [low, high] if low in kind.rows and high in kind.rows else [metric.name] * 2
    between = kind.rows[columns].to_numpy(dtype=float) * metric.scale
    known = np.isfinite(between).all(axis=1) & (low in columns)
    yield Line(x=values, y=at, style=style)
    if known.any():
        level = (between[known, 0], between[known, 1])
        bars = {"linewidth": 1.3, "alpha": 0.8}
        yield Line(x=values[known], y=at[known], style={**style, "marker": ""}, level=level, bars=bars)


def ends(metric: Metric) -> tuple[str, str]:
    """The columns of a metric's interval."""
    return f"{metric.name}_low", f"{metric.name}_high"


def ensemble(run: RunData, arm: Arm, metric: Metric) -> float | None:
    """The metric of all samples, equally weighted, mean over the repeats; None where it is not known."""
    views = run.of(run.views, arm)
    views = views[(views["kind"] == "all") & (views["weighting"] == "equal")]
    values = views if len(views) else run.of(run.results, arm)
    value = float(values[metric.name].mean()) if metric.name in values else float("nan")
    return value if np.isfinite(value) else None
