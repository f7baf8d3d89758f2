"""Accuracy or NLL of all samples of a chain, or of its last one, on prepared pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat."""
    cell = reading.drawn_cell(folder, seed)
    y = ensembles.labels(store, "atmc-table2", cell["digests"])
    if cell["row"].endswith("-single"):
        (digest,) = cell["digests"].split()
        last = reading.samples(store, digest)[-1]["sha256"]
        p = np.exp(reading.log_probabilities(store, last, len(y)).astype(np.float64))
    else:
        p = predicted.predictive(store, cell["digests"], len(y))
    return cell["value"], ensembles.worth(p, y)[cell["column"]]
