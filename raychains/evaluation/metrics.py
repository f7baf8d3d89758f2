"""Metrics as plain functions of a view's rows (see `reduce_classification` and `reduce_regression` for the columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from raychains.evaluation import calibration, uncertainty
from raychains.evaluation.base import BINS, Array, Rows

TOP = 5
"""Classes among which the label may be for the top-5 error."""
SURE = 0.5
"""Nats of predictive entropy below which a prediction counts as sure."""
LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central predictive intervals whose coverage is measured."""
NOMINAL = 0.9
"""That of the interval whose coverage's error is measured."""


def error(rows: Rows) -> float:
    """Share of examples whose most probable class is wrong, in [0, 1]."""
    return of_points("error", rows)


def nll(rows: Rows) -> float:
    """Mean negative log posterior-predictive probability of the label (density of the target), in nats."""
    return of_points("nll", rows)


def brier(rows: Rows) -> float:
    """Mean of Σ_c (p_c − 1[c = label])², in [0, 2] (Brier 1950)."""
    return of_points("brier", rows)


def ece(rows: Rows, bins: int = BINS) -> float:
    """Expected calibration error of the top class over equal-width bins, in [0, 1] (Guo et al. 2017)."""
    return calibration.expected_error(calibration.equal_width(rows, bins))


def ece_mass(rows: Rows, bins: int = BINS) -> float:
    """Expected calibration error of the top class over bins of equally many examples, in [0, 1]."""
    return calibration.equal_mass_ece(rows, bins)


def of_points(name: str, rows: Rows) -> float:
    """One of the metrics in `POINTS`, e.g. ``mutual_information`` in nats; nan where a row of it is."""
    return float(OF_MEANS.get(name, _itself)(np.asarray(np.mean(POINTS[name](rows)))))


def _itself(mean: Array) -> Array:
    return mean


def _covered(rows: Rows, level: float) -> Array:
    """Share of an example's outputs whose central predictive interval holds the target, [n]."""
    pit = np.asarray(rows["pit"])
    inside = np.abs(pit - 0.5) <= level / 2
    return inside.reshape(len(inside), -1).mean(axis=1)


def _log_p(rows: Rows) -> Array:
    return rows["log_p_label"] if "log_p_label" in rows else rows["log_p"]


POINTS: Mapping[str, Callable[[Rows], Array]] = {
    "error": lambda rows: rows["prediction"] != rows["label"],
    "nll": lambda rows: -_log_p(rows),
    "brier": lambda rows: rows["brier"],
    "top5_error": lambda rows: ~np.asarray(rows["top5"], dtype=bool),
    "entropy": lambda rows: rows["entropy"],
    "mutual_information": uncertainty.mutual_information_of,
    "low_entropy": lambda rows: rows["entropy"] < SURE,
    "confidence": lambda rows: rows["confidence"],
    "rmse": lambda rows: rows["squared_error"],
    "crps": lambda rows: rows["crps"],
    "coverage_error": lambda rows: _covered(rows, NOMINAL),
    **{f"coverage_{100 * level:.0f}": lambda rows, level=level: _covered(rows, level) for level in LEVELS},  # type: ignore[misc]
}
"""What a metric is the mean of, per example [n]: itself, or for rmse and coverage_error what it is a function of."""
OF_MEANS: Mapping[str, Callable[[Array], Array]] = {
    "rmse": np.sqrt,
    "coverage_error": lambda covered: np.abs(covered - NOMINAL),
}
"""That function; all others are the mean itself."""
