"""A run's predictive beside predictions of the user's own on the same examples: paired differences with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from raychains.core.errors import UserError, require
from raychains.data import probabilities
from raychains.evaluation import bootstrap, metrics
from raychains.evaluation.classification import TINY, Classification
from raychains.evaluation.evaluation import Array, Evaluation, Rows, gather
from raychains.evaluation.regression import Regression
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, networks_only
from raychains.planning.views import Request
from raychains.plotting.charts import DASHED, DOT, Axis, Chart, Line, Mark, Rule, in_lines
from raychains.plotting.style import Drawing

METRICS = {"error": "Error (%)", "nll": "NLL (nats)", "brier": "Brier score", "crps": "CRPS"}
"""Metrics that are means over examples, lower is better, and their labels."""
SCALES = {"error": 100}


def why_not(context: Context) -> str | None:
    """Return the reason where there are no metrics of another's predictions."""
    if reason := networks_only(context):
        return reason
    if isinstance(context.task.splits()[context.split], Classification | Regression):
        return None
    return f"the split {context.split} has neither one label per example nor a Gaussian regression's targets"


def predicted(given: Any, evaluation: Evaluation) -> Rows:
    """Return the rows of a user's predictions on a split, as those of a predictive.

    Args:
        given: an array or a file (.npy, .npz, .csv): of a classification probabilities [examples, classes]; of a
            regression [examples, outputs + 1], the means and in the last column the standard deviation, noise included.

    Raises:
        UserError: no such file, another shape, or numbers that are no predictions.
    """
    require(given is not None, "against", given, "be given: predictions of your own on the split, or their file")
    if isinstance(evaluation, Classification):
        found = probabilities.load(given, "against")
        width, what = evaluation.classes, "classes"
    else:
        assert isinstance(evaluation, Regression)
        found = probabilities.numbers(given, "against", "outputs + 1")
        width, what = evaluation.targets.shape[1] + 1, "means and a standard deviation"
    shape = [evaluation.examples, width]
    allowed = f"have the shape {shape} of the split: examples, {what}"
    require(list(found.shape) == shape, "against", f"shape {list(found.shape)}", allowed)
    if isinstance(evaluation, Classification):
        found = np.log(np.maximum(found, TINY))
    else:
        ok = bool(np.isfinite(found).all() and (found[:, -1] > 0).all())
        least = float(found[:, -1].min())
        require(ok, "against", f"smallest standard deviation {least:g}", "hold finite means and positive deviations")
    shards = range(evaluation.shards)
    return gather([evaluation.reduce([found[evaluation.range_of(s)]], s) for s in shards])


def tables(context: Context) -> Tables:
    """``against``: arm, group, repeat, metric, value, against (that of the user's predictions), and the mean over
    examples of the metric's difference, ``difference``, with the ends ``low`` and ``high`` of its paired 95 % bootstrap
    interval."""
    theirs = points(predicted(context.settings.get("against"), context.task.splits()[context.split]))
    results = context.evaluate(context.split, [Request(arm=arm, group=group) for arm, group in context.groups])
    found: list[Row] = []
    for (arm, group), result in zip(context.groups, results, strict=True):
        ours = points(result.rows)
        for name, interval in bootstrap.paired(ours, theirs).items():
            values = {"value": float(ours[name].mean()), "against": float(theirs[name].mean())}
            ends = {"difference": interval.value, "low": interval.low, "high": interval.high}
            found.append({**context.key(arm, group), "metric": name, **values, **ends})
    return {"against": found}


def points(rows: Rows) -> dict[str, Array]:
    """Return each metric's numbers per example, where the rows have them and all are finite."""
    found = {}
    for name in METRICS:
        try:
            values = np.asarray(metrics.POINTS[name](rows), dtype=float)
        except (KeyError, UserError):
            continue
        if np.isfinite(values).all():
            found[name] = values
    return found


def _shown(value: float, name: str, sign: str = "") -> str:
    return f"{value * SCALES.get(name, 1):{sign}.{2 if name in SCALES else 4}f}"


def in_words(run: RunData) -> list[str]:
    """Return a line for each arm's first repeat."""
    table = panels.table(run, "against", "arm metric", "group value against difference low high")
    if table is None:
        return []
    lines = []
    for arm in panels.present(run, table):
        rows = panels.first_groups(table)
        parts = [
            f"{METRICS[r.metric]} {_shown(r.value, r.metric)} beside {_shown(r.against, r.metric)}, difference "
            f"{_shown(r.difference, r.metric, '+')} [{_shown(r.low, r.metric, '+')}, {_shown(r.high, r.metric, '+')}]"
            for r in rows[rows["arm"] == arm.name].itertuples()
        ]
        lines.append(f"{arm.label} against your predictions: {'; '.join(parts)}")
    return lines


@panels.drawn_from("against", "arm metric", "group value against difference low high")
def drawing(run: RunData, table: pd.DataFrame) -> Drawing:
    """Draw the differences with their intervals."""
    first = panels.first_groups(table)
    repeat = ", of the first repeat" if run.repeated else ""
    return Drawing(
        name="against",
        title="Against your predictions",
        caption=(
            f"Each metric of the predictive less that of your predictions on the same examples{repeat}, with 95 % "
            "intervals over the examples: left of 0 the predictive is better."
        ),
        alt="Differences of metrics between every arm and the user's predictions, with intervals",
        draw=_chart(run, first),
        data=first.to_dict("records"),
    )


def _chart(run: RunData, table: pd.DataFrame) -> Chart:
    arms = panels.present(run, table)
    shown = []
    for name in (name for name in METRICS if name in set(table["metric"])):
        scaled = table[table["metric"] == name].set_index("arm")[["difference", "low", "high"]] * SCALES.get(name, 1)
        marks: list[Mark] = [Rule(at=0, upright=True)]
        for line, arm in enumerate(arms):
            if arm.name in scaled.index:
                middle, low, high = scaled.loc[arm.name]
                style = {**DOT, "color": run.arm_styles[arm].colour, "marker": run.arm_styles[arm].marker}
                marks.append(Line(x=[middle], y=[line], style=style, level=(low, high), bars={"linewidth": 1.6}))
        shown.append((Axis(label=f"{METRICS[name]}, difference   ← better"), marks))
    return in_lines([arm.label for arm in arms], shown, legend=[("no difference", DASHED)])


MEASURE = Measure(
    name="against",
    section="Uncertainty",
    about="paired differences to predictions of your own (--against FILE)",
    tables=tables,
    why_not=why_not,
    figures={"against": drawing},
    in_words=in_words,
)
