"""Random predictives that partly agree with the labels and with each other, and their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
import torch
from torchmetrics.functional.classification import binary_calibration_error

from raychains.evaluation.classification import reduce_classification
from raychains.evaluation.evaluation import Rows

Array = np.ndarray[Any, Any]


def softmax_samples(
    seed: int, *, samples: int = 4, n: int = 500, classes: int = 7, sharpness: float = 2.0
) -> tuple[Array, Array]:
    """Probabilities [samples, n, classes] and labels [n]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    shared = rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[labels]
    logits = sharpness * (shared + 0.7 * rng.normal(size=(samples, n, classes)))
    return scipy.special.softmax(logits, axis=-1), labels


def rows_of(p: Array, labels: Array) -> Rows:
    """The rows of probabilities [samples, n, classes]."""
    return reduce_classification(list(np.log(p)), labels, bins=15).rows


def top_class_rows(confidence: Any, right: Any) -> Rows:
    """Rows of which only the top class's confidence and whether it is right are told."""
    right = np.asarray(right)
    return {
        "confidence": np.asarray(confidence, dtype=float),
        "prediction": np.zeros(len(right), dtype=int),
        "label": np.where(right, 0, 1),
    }


def tied_rows(seed: int, n: int = 200) -> Rows:
    """Confidences in few distinct values, 0.5 and 1 among them."""
    rng = np.random.default_rng(seed)
    confidence = rng.choice([0.2, 0.5, 0.55, 0.9, 1.0], p=[0.05, 0.3, 0.15, 0.2, 0.3], size=n)
    return top_class_rows(confidence, rng.random(n) < confidence)


def torchmetrics_error(rows: Rows, bins: int, norm: str) -> float:
    right = torch.from_numpy((rows["prediction"] == rows["label"]).astype(np.int64))
    return float(binary_calibration_error(torch.from_numpy(rows["confidence"]), right, n_bins=bins, norm=norm))
