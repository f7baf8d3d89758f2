"""NLL and top-1 or top-5 accuracy, from the predictions of all samples of a chain."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """An accuracy plus its NLL; a label is among the first five if fewer than five classes are more probable."""
    column, among = (("top1", 1), ("top5", 5))[int(np.random.default_rng(seed).integers(2))]
    cell = reading.drawn_cell(folder, seed, column)
    same = {**cell, "column": "nll"}
    (likelihood,) = [
        c["value"]
        for c in reading.rows(folder / "cells.parquet")
        if all(c[k] == same[k] for k in ("row", "column", "repeat"))
    ]
    y = predicted.labels(store, "table3", cell["part"])
    p = predicted.predictive(store, cell["digests"], len(y))
    above = (p > p[np.arange(len(y)), y][:, None]).sum(1)
    return cell["value"] + likelihood, float(100 * (above < among).mean()) + predicted.nll(p, y)
