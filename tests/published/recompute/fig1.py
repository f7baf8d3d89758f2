"""Both step sizes from Eq. 1 and from the decreasing step's definition: a point of either curve, and all four cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

STEPS, CYCLE, GAMMA = 2000, 500, 0.55


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of both schedules: a drawn step size, their mean, and restarts per step, so that no number is lost beside another.

    Only the first step size is taken from the curve; the decreasing one ends at a tenth of it.
    """
    curve = reading.rows(folder / "curve.parquet", raw=True)
    cells = {(c["row"], c["column"]): c["value"] for c in reading.rows(folder / "cells.parquet")}
    rng = np.random.default_rng(seed)
    stored, again = 0.0, 0.0
    for name, of in (("cyclical", cyclical), ("decreasing", decreasing)):
        points = [p for p in curve if p["schedule"] == name]
        sizes = of(points[0]["lr"])
        point = points[int(rng.integers(1, len(points)))]
        stored += point["lr"] + cells[name, "mean"] + cells[name, "restarts"] / STEPS
        again += float(sizes[point["step"] - 1] + sizes.mean() + (np.diff(sizes) > 0).sum() / STEPS)
    return stored, again


def cyclical(first: float) -> np.ndarray:
    """Eq. 1 at every step."""
    r = np.arange(STEPS) % CYCLE / CYCLE
    return first / 2 * (np.cos(np.pi * r) + 1)


def decreasing(first: float) -> np.ndarray:
    """a(b + k)^−γ at every step k: (b + K)/(b + 1) is 10^(1/γ) where the last is a tenth of the first."""
    ratio = 10 ** (1 / GAMMA)
    b = (STEPS - ratio) / (ratio - 1)
    return first * ((b + np.arange(1, STEPS + 1)) / (b + 1)) ** -GAMMA
