"""A calibration error over 8 bins, or the mean confidence less the accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat: all samples of its chains."""
    cell = reading.drawn_cell(folder, seed)
    y = ensembles.labels(store, "atmc-calibration", cell["digests"])
    p = predicted.predictive(store, cell["digests"], len(y))
    if cell["column"] == "overconfidence":
        return cell["value"], 100 * float(p.max(1).mean() - (p.argmax(1) == y).mean())
    edges = np.arange(9) / 8 if cell["column"] == "ece-width" else None
    return cell["value"], ensembles.calibration_error(p, y, edges, 8)
