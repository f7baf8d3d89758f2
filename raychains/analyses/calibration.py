"""Calibration in bins: what reliability diagrams show, of equal width and of equal mass, and what the Brier score consists of."""

from __future__ import annotations

from typing import Any

from raychains.analyses.base import Analysis, Context, Tables
from raychains.evaluation import calibration, metrics
from raychains.evaluation.base import BINS, Rows
from raychains.planning.views import Request

NEEDED = ("confidence", "prediction", "label")
WIDTH, MASS = "width", "mass"


def tables(context: Context) -> Tables:
    """``reliability``, the bins of every diagram, and ``calibration``, the numbers read off them.

    reliability: arm, group, repeat, binning (``width`` or ``mass``), bin (from 0), bins, lower, upper (edges, or smallest
        and largest confidence), count, confidence, accuracy, low, high (Wilson's 95 % interval of the accuracy).
    calibration: arm, group, repeat, bins, ece, ece_mass, mce (the largest gap of a bin of equal width), and the Brier
        score of the top class with its parts: brier_top, reliability, resolution, uncertainty, within_variance,
        within_covariance (`raychains.evaluation.calibration.BrierParts`).
    """
    bins = int(context.settings.get("bins", BINS))
    results = context.evaluate(context.split, [Request(arm=arm, group=group) for arm, group in context.groups])
    diagrams: list[dict[str, Any]] = []
    numbers: list[dict[str, Any]] = []
    for (arm, group), result in zip(context.groups, results, strict=True):
        rows = result.rows
        key = {"arm": context.comparison.arms[arm].name, "group": group, "repeat": group}
        diagrams += [{**key, **row} for row in diagram_rows(rows, bins)]
        parts = calibration.brier_parts(rows, bins)
        numbers.append(
            {
                **key,
                "bins": bins,
                "ece": metrics.ece(rows, bins),
                "ece_mass": metrics.ece_mass(rows, bins),
                "mce": calibration.maximum_error(rows, bins),
                "brier_top": parts.score,
                "reliability": parts.reliability,
                "resolution": parts.resolution,
                "uncertainty": parts.uncertainty,
                "within_variance": parts.within_variance,
                "within_covariance": parts.within_covariance,
            }
        )
    return {"reliability": diagrams, "calibration": numbers}


def diagram_rows(rows: Rows, bins: int) -> list[dict[str, Any]]:
    """The bins of a predictive's two diagrams, as `tables` puts them into ``reliability``; empty bins are left out.

    Raises:
        UserError: no rows, or a confidence that is none.
    """
    found = []
    for binning, diagram in ((WIDTH, calibration.equal_width(rows, bins)), (MASS, calibration.equal_mass(rows, bins))):
        low, high = calibration.wilson(diagram)
        for b in range(bins):
            if diagram.count[b]:
                found.append(
                    {
                        "binning": binning,
                        "bin": b,
                        "bins": bins,
                        "lower": float(diagram.lower[b]),
                        "upper": float(diagram.upper[b]),
                        "count": int(diagram.count[b]),
                        "confidence": float(diagram.confidence[b]),
                        "accuracy": float(diagram.accuracy[b]),
                        "low": float(low[b]),
                        "high": float(high[b]),
                    }
                )
    return found


def why_not(context: Context) -> str | None:
    """Only classifiers on labelled inputs have a calibration."""
    return not_labelled(context)


def not_labelled(context: Context) -> str | None:
    """Why there is neither confidence nor correctness on the run's split."""
    if context.task.low_dimensional or context.task.predicts != "classes":
        return f"task {context.comparison.task} is no classification"
    if context.split.startswith("ood:"):
        return f"the inputs of the split {context.split} have no labels"
    return None


ANALYSIS = Analysis(
    name="calibration", about="reliability in bins of equal width and equal mass", tables=tables, why_not=why_not
)
