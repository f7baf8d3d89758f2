"""Accuracy at one severity: the mean over all types of corruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat."""
    cell = reading.drawn_cell(folder, seed)
    accuracies = []
    for path in sorted((store / "stand-ins/CIFAR-10-C").glob("*.npy")):
        if path.stem != "labels":
            where, y = ensembles.corrupted(store, path.stem, int(cell["column"]))
            accuracies.append(ensembles.worth(ensembles.mean(store, cell["digests"], where), y)["accuracy"])
    return cell["value"], float(np.mean(accuracies))
