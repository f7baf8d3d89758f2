"""A jackknife pseudo-value of the smallest log₁₀(bound / W₂), from every lane's last state."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

EIGENVALUES = np.array([2.0, 2.5, 3.0])


def w2(lanes: np.ndarray) -> float:
    """Between the Gaussian with these lanes' mean and covariance and N(0, Λ⁻¹)."""
    mean, covariance, root = lanes.mean(0), np.cov(lanes.T), np.diag(EIGENVALUES**-0.5)
    values = np.linalg.eigvalsh(root @ covariance @ root)
    squared = mean @ mean + np.trace(covariance) + (1 / EIGENVALUES).sum() - 2 * np.sqrt(np.maximum(values, 0)).sum()
    return float(np.sqrt(max(squared, 0)))


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one step size that falls or restarts, one bound and one group of lanes."""
    rows = [r for r in reading.rows(folder / "distances.parquet")]
    own = {r["schedule"] for r in rows}
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["row"] in own and c["column"] != "agreement"]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    kept = store / "reproduce/smoke/theorem2/draws"
    bounds = {r["steps"]: r[cell["column"]] for r in rows if r["schedule"] == cell["row"]}
    bounds = {k: b for k, b in bounds.items() if (kept / f"{cell['row']}-{k}.parquet").exists()}
    count = 1 + max(c["repeat"] for c in cells)

    def lanes(k: int, raw: bool) -> np.ndarray:
        columns = reading.columns(kept / f"{cell['row']}-{k}.parquet", raw=raw)
        return np.stack([columns[f"theta{i}"] for i in range(3)], 1).reshape(count, -1, 3)

    def logs(some: np.ndarray, k: int) -> float:
        return float(np.log10(bounds[k] / w2(some.reshape(-1, 3))))

    # Groups of lanes are so large that leaving one out does not change where the bound is tightest.
    tightest = min(bounds, key=lambda k: logs(lanes(k, False), k))
    found = lanes(tightest, True)
    left = np.delete(found, cell["repeat"], axis=0)
    return cell["value"], count * logs(found, tightest) - (count - 1) * logs(left, tightest)
