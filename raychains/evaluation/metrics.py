"""Metrics as plain functions of a view's rows (see `reduce_classification` and `reduce_regression` for the columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from raychains.evaluation import calibration_error
from raychains.evaluation.evaluation import Array, Rows, finite

TOP = 5
"""Classes among which the label may be for the top-5 error."""
SURE = 0.5
"""Nats of predictive entropy below which a prediction counts as sure."""
LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central predictive intervals whose coverage is measured."""
NOMINAL = 0.9
"""That of the interval whose coverage's error is measured."""
ROUNDING = 1e-12
"""Nats below which the difference of two entropies is rounding."""


def ece(rows: Rows, bins: int) -> float:
    """Return the expected calibration error of the top class over equal-width bins, in [0, 1] (Guo et al. 2017)."""
    return calibration_error.expected_error(calibration_error.equal_width(rows, bins))


def ece_mass(rows: Rows, bins: int) -> float:
    """Return the expected calibration error of the top class over bins of equally many examples, in [0, 1]."""
    return calibration_error.expected_error(calibration_error.equal_mass(rows, bins))


def of_points(name: str, rows: Rows) -> float:
    """Return one of the metrics in `POINTS`, e.g. ``mutual_information`` in nats; nan where a row of it is."""
    return float(OF_MEANS.get(name, float)(np.asarray(np.mean(POINTS[name](rows)))))


def low_entropy(entropy: Array) -> Array:
    """Return 1 where an entropy is below `SURE`, else 0; nan where it is nan."""
    return np.where(np.isnan(entropy), np.nan, entropy < SURE)


def mutual_information_of(rows: Rows) -> Array:
    """Return the mutual information in nats, [n], from a view's rows: ``entropy`` − ``expected_entropy``.

    Differences below `ROUNDING` are 0, so that points about which all samples agree are tied and not ordered by chance.

    Raises:
        UserError: entries that are not finite.
    """
    difference = finite(rows["entropy"], "entropy") - finite(rows["expected_entropy"], "expected_entropy")
    return np.where(difference > ROUNDING, difference, 0.0)


def in_top(p: Array, label: Array, k: int) -> Array:
    """Return whether the label [n] is among the k most probable of the classes of p [n, classes], bool [n].

    Of classes with the same probability the one with the smaller number comes first, as with argmax.
    """
    own = p[np.arange(len(p)), label][:, None]
    earlier = np.arange(p.shape[1]) < label[:, None]
    rank = np.count_nonzero((p > own) | ((p == own) & earlier), axis=1)
    return rank < k


def _covered(rows: Rows, level: float) -> Array:
    """Return the share of an example's outputs whose central predictive interval holds the target, [n]."""
    pit = np.asarray(rows["pit"])
    inside = np.where(np.isnan(pit), np.nan, np.abs(pit - 0.5) <= level / 2)
    return inside.reshape(len(inside), -1).mean(axis=1)


def _known(rows: Rows, wrong: Array) -> Array:
    """Return whether examples [n] are wrong as 0 or 1; nan where the predictive is, which has no most probable
    class."""
    return np.where(np.isnan(np.asarray(rows["confidence"])), np.nan, wrong)


def _log_p(rows: Rows) -> Array:
    return rows["log_p_label"] if "log_p_label" in rows else rows["log_p"]


POINTS: Mapping[str, Callable[[Rows], Array]] = {
    "error": lambda rows: _known(rows, np.asarray(rows["prediction"]) != np.asarray(rows["label"])),
    "nll": lambda rows: -_log_p(rows),
    "brier": lambda rows: rows["brier"],
    "top5_error": lambda rows: _known(rows, ~np.asarray(rows["top5"], dtype=bool)),
    "entropy": lambda rows: rows["entropy"],
    "mutual_information": mutual_information_of,
    "low_entropy": lambda rows: low_entropy(rows["entropy"]),
    "confidence": lambda rows: rows["confidence"],
    "rmse": lambda rows: rows["squared_error"],
    "label_error": lambda rows: rows["label_error"],
    "crps": lambda rows: rows["crps"],
    "nll_gaussian": lambda rows: -rows["log_p_gaussian"],
    "rmse_original": lambda rows: rows["squared_error"] * rows["scale"] ** 2,
    "nll_original": lambda rows: np.log(rows["scale"]) - rows["log_p"],
    "crps_original": lambda rows: rows["crps"] * rows["scale"],
    "coverage_error": lambda rows: _covered(rows, NOMINAL),
    **{f"coverage_{100 * level:.0f}": partial(_covered, level=level) for level in LEVELS},
}
"""Numbers per example [n] whose mean a metric is; of rmse, rmse_original and coverage_error the metric is a function of
that mean."""
OF_MEANS: Mapping[str, Callable[[Array], Array]] = {
    "rmse": np.sqrt,
    "rmse_original": np.sqrt,
    "coverage_error": lambda covered: np.abs(covered - NOMINAL),
}
"""That function; all others are the mean itself."""
