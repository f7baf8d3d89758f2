"""A point of the curves, from Eq. 1 and from the decreasing step's definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The step size halfway between two other points: both curves are smooth inside a cycle."""
    points = [p for p in reading.rows(folder / "curve.parquet", raw=True) if p["schedule"] == "cyclical"]
    rng = np.random.default_rng(seed)
    point = points[int(rng.integers(1, len(points)))]
    first = points[0]["lr"]
    r = ((point["step"] - 1) % 500) / 500
    return point["lr"], first / 2 * (np.cos(np.pi * r) + 1)
