"""A jackknife pseudo-value of a slope, from every lane's raw averages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

A = 1.5
"""Half the distance of the two modes: E θ² = 1 + a²."""


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one sweep, average, quantity and group: G·slope(all) − (G−1)·slope(all but the group)."""
    cell = reading.drawn_cell(folder, seed)
    sweep, average = cell["row"].split("-")
    points = sorted({r["steps"] for r in reading.rows(folder / "errors.parquet") if r["sweep"] == sweep})
    used = points[len(points) // 2 :] if sweep == "fixed" else points
    count = len({c["repeat"] for c in reading.rows(folder / "cells.parquet")})
    raw = store / "reproduce/smoke/theorem1/draws"
    away = np.stack([reading.columns(raw / f"{sweep}-{k}.parquet", raw=True)[average] for k in used], 1) - (1 + A**2)
    groups = (away if cell["column"] == "bias" else away**2).reshape(count, -1, len(used)).mean(1)
    x = np.log(used)

    def slope(some: np.ndarray) -> float:
        return float(np.polyfit(x, np.log(np.abs(some.mean(0))), 1)[0])

    left = np.delete(groups, cell["repeat"], axis=0)
    return cell["value"], count * slope(groups) - (count - 1) * slope(left)
