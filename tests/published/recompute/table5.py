"""Bulk effective sample size of one lane, from its draws, by arviz-stats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

from tests.published.recompute import reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Mean over coefficients, each at most the number of draws."""
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["column"].endswith("-ess")]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    rule = cell["column"].removesuffix("-ess")
    name = f"{cell['part']}-{cell['row']}-{rule}.parquet"
    lanes = reading.columns(store / "reproduce/smoke/table5/draws" / name, raw=True)
    draws = np.stack(lanes[f"lane{cell['repeat']}"]).astype(np.float64)
    each = [
        float(array_stats.ess(draws[None, :, i], chain_axis=0, draw_axis=1, method="bulk"))
        for i in range(draws.shape[1])
    ]
    return cell["value"], float(np.minimum(each, len(draws)).mean())
