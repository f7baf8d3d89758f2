"""Detection of other sets' inputs by a predictive's uncertainty, and its entropy there (cSG-MCMC §5.3, Fig. 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from raychains.core.errors import UserError
from raychains.evaluation.bootstrap import intervals
from raychains.evaluation.evaluation import Array, Rows, finite
from raychains.evaluation.metrics import SURE, mutual_information_of
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, available_splits, not_labelled, offered_splits
from raychains.planning.views import Request
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import DOT, DOTTED, Axis, Chart, Line, Mark, Panel, Rule, lines_of
from raychains.plotting.style import GRID, HUES, Drawing

PREFIX = "ood:"
ENTROPIES = 201
"""Entropies at which distribution functions are given, from 0 to the largest possible."""
INSIDE = "inside"
"""The name of the run's own split among the companions of a distribution function."""
SCORES: Mapping[str, Callable[[Rows], Array]] = {
    "entropy": lambda rows: finite(rows["entropy"], "entropy"),
    "mutual_information": mutual_information_of,
    "max_probability": lambda rows: -finite(rows["confidence"], "confidence"),
}
"""Scores [n] of inputs, from a view's rows; higher is further out. Entropy and mutual information are in nats. Of the
confidence it is the negative, so that no two different ones become equal."""
COLUMNS = 3
MARKERS_PER_CURVE = 8
MEASURES = {"auroc": "AUROC (%)   → better", "aupr": "AUPR (%)   → better", "fpr95": "FPR at 95 % (%)   ← better"}
LABELS = ("predictive entropy", "mutual information", "maximum probability")
"""Labels of the scores."""


def tables(context: Context) -> Tables:
    """``ood``, how well each score detects each companion set, and ``entropy_cdf``, the curves of Fig. 4.

    ood: arm, group, repeat, companion, score (`SCORES`, higher further out), auroc; aupr and fpr95 with the companion's
        inputs as positives, aupr_in and fpr95_in with the own inputs as positives (`detect`); mean_inside and
        mean_outside of the score; inside and outside, the numbers of inputs; and of the companion's entropies
        share_below_half_nat with its 95 % bootstrap interval over inputs, low and high: the over-confident share.
    entropy_cdf: arm, group, repeat, companion (``inside`` is the run's own split), entropy in nats, cdf.

    Raises:
        UserError: no companion's data are there.
    """
    available, missing = available_splits(context, offered_splits(context, PREFIX))
    if not available:
        raise UserError(
            f"no companion of task {context.comparison.task} has its data here: {next(iter(missing.values()))}; "
            f"`raychains evaluate --split {next(iter(missing))}` downloads what can be downloaded"
        )
    requests = [Request(arm=arm, group=group) for arm, group in context.groups]
    own, *of_others = (
        [result.rows for result in context.evaluate(name, requests)]
        for name in context.counted("ood", [context.split, *available])
    )
    others = {name.removeprefix(PREFIX): rows for name, rows in zip(available, of_others, strict=True)}
    grid = np.linspace(0, _largest(context, [*own, *(rows for found in others.values() for rows in found)]), ENTROPIES)
    detected: list[Row] = []
    curves: list[Row] = []
    for i, (arm, group) in enumerate(context.groups):
        key = context.key(arm, group)
        curves += _curve({**key, "companion": INSIDE}, own[i], grid)
        for companion, found in others.items():
            detected += _detected({**key, "companion": companion}, own[i], found[i])
            curves += _curve({**key, "companion": companion}, found[i], grid)
    return {"ood": detected, "entropy_cdf": curves}


def _detected(key: Row, inside: Rows, outside: Rows) -> list[Row]:
    low, high = intervals(outside, ["low_entropy"]).get("low_entropy", (math.nan, math.nan))
    below = float(np.mean(finite(outside["entropy"], "values") < SURE))
    share = {"share_below_half_nat": below, "low": low, "high": high}
    out = []
    for by, score in SCORES.items():
        of_own, of_other = score(inside), score(outside)
        means = {"mean_inside": float(of_own.mean()), "mean_outside": float(of_other.mean())}
        numbers = {**detect(of_own, of_other), **means, "inside": len(of_own), "outside": len(of_other)}
        out.append({**key, "score": by, **numbers, **share})
    return out


def _curve(key: Row, rows: Rows, grid: Array) -> list[Row]:
    ordered = np.sort(np.minimum(finite(rows["entropy"], "values"), grid[-1]))  # log(classes) but for rounding
    shares = np.searchsorted(ordered, grid, side="right") / len(ordered)
    return [{**key, "entropy": e, "cdf": f} for e, f in zip(grid.tolist(), shares.tolist(), strict=True)]


def _largest(context: Context, rows: Sequence[Rows]) -> float:
    """Return log(classes), or where the task does not say how many there are the largest entropy."""
    classes = getattr(context.task, "classes", None)
    if isinstance(classes, int) and classes > 1:
        return math.log(classes)
    return max(float(r["entropy"].max()) for r in rows)


def why_not(context: Context) -> str | None:
    """Return the reason where there is no classifier, no labelled split, or no companion set."""
    if reason := not_labelled(context):
        return reason
    if not offered_splits(context, PREFIX):
        return f"task {context.comparison.task} has no companion sets: no split is called {PREFIX}NAME"
    return None


def detect(inside: Array, outside: Array) -> dict[str, float]:
    """Return how well a score separates two sets; all in [0, 1]. Equal scores are never told apart, whatever the order.

    Args:
        inside: scores of the model's own kind of inputs, [n].
        outside: scores of others, [m]; higher should be further out.

    Returns:
        auroc: P(score outside > inside) + ½ P(equal); 0.5 by chance.
        aupr: average precision with the outside points as positives, high scores first, in steps: nothing is
            interpolated, which would flatter (Davis & Goadrich 2006). By chance: their share of all points.
        fpr95: share of inside points flagged by the strictest threshold that flags 95 % of the outside ones or more
            (Hendrycks, Mazeika & Dietterich 2019).
        aupr_in: average precision with the inside points as positives, low scores first.
        fpr95_in: share of outside points accepted by the strictest threshold that accepts 95 % of the inside ones or
            more (Liang, Li & Srikant 2018, and most of the field).
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    is_outside, is_inside = (
        np.repeat([1, 0], [len(outside), len(inside)]),
        np.repeat([1, 0], [len(inside), len(outside)]),
    )
    scores = np.concatenate([outside, inside])
    return {
        "auroc": float(roc_auc_score(is_outside, scores)),
        "aupr": float(average_precision_score(is_outside, scores)),
        "fpr95": false_positive_rate(outside, inside),
        "aupr_in": float(average_precision_score(is_inside, np.concatenate([-inside, -outside]))),
        "fpr95_in": false_positive_rate(-inside, -outside),
    }


def false_positive_rate(positives: Array, negatives: Array) -> float:
    """Return the share of negatives [m] that score t or more, t being the largest score that 95 % of the positives [n]
    reach.

    Points that score exactly t count as reaching it on both sides, so that a tie is passed whole; nothing is
    interpolated. In [0, 1].
    """
    return float(np.mean(negatives >= -np.quantile(-positives, 0.95, method="inverted_cdf")))


# Figures


@panels.drawn_from("entropy_cdf", "arm companion", "group entropy cdf")
def entropy(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw distribution functions of the predictive entropy; None unless other sets' inputs were evaluated."""
    mean = table.groupby(["companion", "arm", "entropy"], sort=False)["cdf"].mean().reset_index()
    companions = [name for name in dict.fromkeys(mean["companion"]) if name != INSIDE]
    if not companions:
        return None
    return Drawing(
        name="entropy",
        title="Predictive entropy of other sets' inputs",
        caption=(
            "Share of the inputs whose predictive entropy is at most x: of another set's inputs a curve that stays "
            "low is less over-confident, of the run's own inputs one that rises early is surer. The dotted line marks "
            f"{SURE:g} nats.{' Mean over the repeats.' if run.repeated else ''}"
        ),
        alt="Distribution functions of predictive entropy of every arm, a panel for every set of inputs",
        draw=_entropies(run, mean, companions),
        data=mean.to_dict("records"),
    )


def _entropies(run: RunData, table: pd.DataFrame, companions: list[str]) -> Chart:
    titles = {INSIDE: f"own inputs ({run.comparison.split})"}
    styles = {n: style for n, style in in_one_panel(run.comparison.arms).items() if n in set(table["arm"])}
    x, y = Axis(label="Predictive entropy (nats)", low=0, high=table["entropy"].max()), Axis(low=0, high=1.02)
    shown = []
    for companion in (name for name in (INSIDE, *companions) if name in set(table["companion"])):
        marks: list[Mark] = [Rule(at=SURE, upright=True, style=DOTTED)]
        for i, (name, style) in enumerate(styles.items()):
            curve = table[(table["arm"] == name) & (table["companion"] == companion)]
            # Markers of different arms stand at different places, so that curves which coincide are seen.
            every = max(1, len(curve) // MARKERS_PER_CURVE)
            look = style.style(size=4.5, markevery=((i * 5) % every, every), linewidth=1.3)
            marks.append(Line(x=curve["entropy"], y=curve["cdf"], style=look, label=style.label))
        share = replace(y, label="Share of inputs at or below")
        shown.append(Panel(marks=marks, x=x, y=share, title=titles.get(companion, companion)))
    return Chart(panels=shown, columns=COLUMNS, share_x=True, share_y=True)


@panels.drawn_from("ood", "arm companion score", f"group inside outside {' '.join(MEASURES)}")
def detection(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw AUROC, AUPR and FPR by score and arm; None unless other sets' inputs were evaluated."""
    chance = "; ".join(
        f"{companion} {100 * rows['outside'].iloc[0] / (rows['outside'].iloc[0] + rows['inside'].iloc[0]):.0f} %"
        for companion, rows in table.groupby("companion", sort=False)
    )
    more = " Mean over the repeats ± one standard error." if run.repeated else ""
    return Drawing(
        name="detection",
        title="Detection of other sets' inputs",
        caption=(
            "How well a threshold on each score tells another set's inputs (the positives) from the run's own. By "
            f"chance the AUROC is 50 %, the FPR 95 % and the AUPR the share of the other set's inputs: {chance}. FPR: "
            f"share of the own inputs that are flagged where 95 % of the others are.{more}"
        ),
        alt="Areas under curves and false positive rates of every arm, by score, a row of panels for every set of "
        "inputs",
        draw=_detected_by(run, table),
        data=table[["arm", "group", "companion", "score", *MEASURES]].to_dict("records"),
    )


def _detected_by(run: RunData, table: pd.DataFrame) -> Chart:
    arms, shown = panels.present(run, table), []
    styles = [{**DOT, "color": HUES[i], "marker": mark, "markersize": 5.5} for i, mark in enumerate("os^")]
    for companion, rows in table.groupby("companion", sort=False):
        for measure, label in MEASURES.items():
            marks: list[Mark] = [
                Rule(at=y + 0.5, style={"color": GRID, "linewidth": 0.7}) for y in range(len(arms) - 1)
            ]
            for (line, arm), (i, score) in itertools.product(enumerate(arms), enumerate(SCORES)):
                values = 100 * rows.loc[(rows["arm"] == arm.name) & (rows["score"] == score), measure].to_numpy()
                if len(values):
                    mean = values.mean()
                    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                    level, at = (mean - error, mean + error), line + 0.22 * (i - 1)
                    marks.append(Line(x=[mean], y=[at], style=styles[i], label=LABELS[i], level=level))
            title = str(companion) if measure == next(iter(MEASURES)) else ""
            x, y = Axis(label=label, ticks=5, margin=0.08), lines_of([arm.label for arm in arms], lines=2)
            shown.append(Panel(marks=marks, x=x, y=y, title=title))
    height = 0.3 * len(arms) + 0.75
    return Chart(panels=shown, columns=len(MEASURES), height=height, share_x="col", share_y=True)


MEASURE = Measure(
    name="ood",
    section="Uncertainty",
    about="detection of other sets' inputs by entropy, mutual information and maximum probability; entropy CDFs",
    tables=tables,
    why_not=why_not,
    figures={"entropy": entropy, "detection": detection},
)
