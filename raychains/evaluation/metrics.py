"""Metrics as plain functions of a view's rows (see `classification.reduce_classification` for the columns)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raychains.evaluation.base import Array

Rows = Mapping[str, Array]
BINS = 15
"""Equal-width confidence bins, as in Guo et al. 2017."""


def error(rows: Rows) -> float:
    """Share of examples whose most probable class is wrong, in [0, 1]."""
    return float(np.mean(rows["prediction"] != rows["label"]))


def nll(rows: Rows) -> float:
    """Mean negative log posterior-predictive probability of the label, in nats."""
    return float(-np.mean(rows["log_p_label"]))


def brier(rows: Rows) -> float:
    """Mean of Σ_c (p_c − 1[c = label])², in [0, 2] (Brier 1950)."""
    return float(np.mean(rows["brier"]))


def ece(rows: Rows, bins: int = BINS) -> float:
    """Expected calibration error of the top class over equal-width bins, in [0, 1], by torchmetrics (Guo et al. 2017)."""
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    # The binary form bins a probability against an event: here the confidence against being right.
    confidence = torch.from_numpy(np.clip(rows["confidence"], 0.0, 1.0))
    right = torch.from_numpy((rows["prediction"] == rows["label"]).astype(np.int64))
    return float(binary_calibration_error(confidence, right, n_bins=bins, norm="l1"))


def reliability(rows: Rows, bins: int = BINS) -> dict[str, Array]:
    """Per equal-width confidence bin: ``count``, mean ``confidence`` and ``accuracy`` (nan in an empty bin)."""
    which = np.minimum((rows["confidence"] * bins).astype(int), bins - 1)
    right = rows["prediction"] == rows["label"]
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(which, weights=rows["confidence"], minlength=bins) / count
        accuracy = np.bincount(which, weights=right, minlength=bins) / count
    return {"count": count, "confidence": confidence, "accuracy": accuracy}
