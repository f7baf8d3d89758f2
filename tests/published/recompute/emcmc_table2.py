"""The area under the ROC curve of predictive entropy, or the calibration error over 10 bins of equal mass."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, predicted, reading


def digits(store: Path) -> int:
    """Images of the stand-in for SVHN's test set: what has neither CIFAR's number nor that of another set."""
    from scipy.io import loadmat

    return int(loadmat(store / "stand-ins/test_32x32.mat")["y"].size)


def entropy(p: np.ndarray) -> np.ndarray:
    """In nats, [examples]."""
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat: the share of pairs of a foreign and an own image whose entropies are in that order."""
    cell = reading.drawn_cell(folder, seed)
    inside = ensembles.mean(store, cell["digests"], ensembles.clean(store))
    if cell["column"] == "ece":
        y = ensembles.labels(store, "emcmc-table2", cell["digests"])
        return cell["value"], ensembles.calibration_error(inside, y, None, 10)
    outside = entropy(predicted.predictive(store, cell["digests"], digits(store)))
    own = entropy(inside)
    above = (outside[:, None] > own).mean() + (outside[:, None] == own).mean() / 2
    return cell["value"], 100 * float(above)
