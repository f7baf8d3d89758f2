"""The share of letters below half a nat, from kept predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

LETTERS = 102
"""In the stand-in for notMNIST."""


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat: all samples of its chains, equally weighted."""
    cell = reading.drawn_cell(folder, seed, "sure")
    found = []
    for digest in cell["digests"].split():
        for sample in reading.samples(store, digest):
            found.append(np.exp(reading.log_probabilities(store, sample["sha256"], LETTERS).astype(np.float64)))
    p = np.mean(found, axis=0)
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)
    return cell["value"], float(100 * (entropy < 0.5).mean())
