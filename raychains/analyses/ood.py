"""Can the predictives tell the inputs of other sets from their own (cSG-MCMC §5.3, Fig. 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raychains.analyses import companions
from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.calibration import not_labelled
from raychains.errors import UserError
from raychains.evaluation import ood
from raychains.evaluation.base import Array, Rows
from raychains.evaluation.intervals import intervals
from raychains.evaluation.metrics import SURE
from raychains.planning.views import Request

PREFIX = "ood:"
GRID = 201
"""Entropies at which distribution functions are told, from 0 to the largest possible."""
INSIDE = "inside"
"""What the run's own split is called among the companions of a distribution function."""

Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``ood``, how well each score detects each companion set, and ``entropy_cdf``, the curves of Fig. 4.

    ood: arm, group, repeat, companion, score (`raychains.evaluation.ood.SCORES`, higher further out), auroc; aupr and
        fpr95 with the companion's inputs as positives, aupr_in and fpr95_in with the own inputs as positives
        (`raychains.evaluation.ood.Detection`); mean_inside and mean_outside of the score; inside and outside, the numbers
        of inputs; and of the companion's entropies share_below_half_nat with its 95 % bootstrap interval over inputs, low
        and high: the over-confident share.
    entropy_cdf: arm, group, repeat, companion (``inside`` is the run's own split), entropy in nats, cdf.

    Raises:
        UserError: no companion's data are there.
    """
    there, missing = companions.present(context, companions.offered(context, PREFIX))
    if not there:
        raise UserError(
            f"no companion of task {context.comparison.task} has its data here: {next(iter(missing.values()))}; "
            f"`raychains evaluate --split {next(iter(missing))}` downloads what can be downloaded"
        )
    requests = [Request(arm=arm, group=group) for arm, group in context.groups]
    context.progress("ood", 0, len(there) + 1)
    own = [result.rows for result in context.evaluate(context.split, requests)]
    others: dict[str, Sequence[Rows]] = {}
    for done, name in enumerate(there, start=1):
        context.progress("ood", done, len(there) + 1)
        others[name.removeprefix(PREFIX)] = [result.rows for result in context.evaluate(name, requests)]
    context.progress("ood", len(there) + 1, len(there) + 1)
    grid = np.linspace(0, _largest(context, [*own, *(rows for found in others.values() for rows in found)]), GRID)
    detected: list[Row] = []
    curves: list[Row] = []
    for i, (arm, group) in enumerate(context.groups):
        key = {"arm": context.comparison.arms[arm].name, "group": group, "repeat": group}
        curves += _curve({**key, "companion": INSIDE}, own[i], grid)
        for companion, found in others.items():
            detected += _detected({**key, "companion": companion}, own[i], found[i])
            curves += _curve({**key, "companion": companion}, found[i], grid)
    return {"ood": detected, "entropy_cdf": curves}


def _detected(key: Row, inside: Rows, outside: Rows) -> list[Row]:
    low, high = intervals(outside, ["low_entropy"]).get("low_entropy", (math.nan, math.nan))
    share = ood.share_below(outside["entropy"], SURE)
    out = []
    for score in ood.SCORES:
        of_own, of_other = ood.score(inside, score), ood.score(outside, score)
        found = ood.detect(of_own, of_other)
        out.append(
            {
                **key,
                "score": score,
                "auroc": found.auroc,
                "aupr": found.aupr_out,
                "fpr95": found.fpr95_out,
                "aupr_in": found.aupr_in,
                "fpr95_in": found.fpr95_in,
                "mean_inside": float(of_own.mean()),
                "mean_outside": float(of_other.mean()),
                "inside": found.inside,
                "outside": found.outside,
                "share_below_half_nat": share,
                "low": low,
                "high": high,
            }
        )
    return out


def _curve(key: Row, rows: Rows, grid: Array) -> list[Row]:
    x, shares = ood.cdf(rows["entropy"], grid)
    return [{**key, "entropy": float(e), "cdf": float(f)} for e, f in zip(x, shares, strict=True)]


def _largest(context: Context, rows: Sequence[Rows]) -> float:
    """log(classes), or where the task does not say how many there are the largest entropy that was met."""
    classes = getattr(context.task, "classes", None)
    return (
        math.log(classes) if isinstance(classes, int) and classes > 1 else max(float(r["entropy"].max()) for r in rows)
    )


def why_not(context: Context) -> str | None:
    """It needs a classifier, a split of its own inputs, and companions."""
    if reason := not_labelled(context):
        return reason
    if not companions.offered(context, PREFIX):
        return f"task {context.comparison.task} has no companion sets: no split is called {PREFIX}NAME"
    return None


ANALYSIS = Analysis(
    name="ood",
    about="detection of other sets' inputs by entropy, mutual information and maximum probability; entropy CDFs",
    tables=tables,
    why_not=why_not,
)
