"""Modes covered, from the draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of SGLD and a repeat, modes with more than 100 draws within .25, over all of its chains: each chain stays in one."""
    cells = [
        c for c in reading.rows(folder / "cells.parquet") if c["column"] == "modes" and c["row"].startswith("sgld")
    ]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    counts = np.zeros(25)
    centres = np.array([(x, y) for x in (-4, -2, 0, 2, 4) for y in (-4, -2, 0, 2, 4)])
    for digest in cell["digests"].split():
        for sample in reading.samples(store, digest):
            (block,) = reading.tensors(store, digest, sample["file"]).values()
            away = np.linalg.norm(block[:, cell["repeat"], None] - centres, axis=-1)
            counts += (away < 0.25).sum(0)
    return cell["value"], float((counts > 100).sum())
