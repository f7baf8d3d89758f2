"""The test NLL where the random lines begin: of the last sample itself, from its predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """A network without BatchNorm is the same alone and on a line."""
    points = [p for p in reading.rows(folder / "around.parquet") if p["distance"] == 0]
    point = points[int(np.random.default_rng(seed).integers(len(points)))]
    y = predicted.labels(store, "emcmc-fig5", point["part"])
    p = ensembles.probabilities(store, point["sha256"], ensembles.clean(store))
    return point["test_nll"], float(-np.log(p[np.arange(len(y)), y]).mean())
