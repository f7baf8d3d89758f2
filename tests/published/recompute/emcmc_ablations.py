"""The NLL of one setting and repeat, from the predictions of the draws that it predicts with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """All draws but for the two rows that say which variable."""
    cell = reading.drawn_cell(folder, seed, "nll")
    only = cell["row"].removeprefix("variables-")
    y = predicted.labels(store, "emcmc-ablations", cell["part"])
    draws = [
        s for s in reading.samples(store, cell["digests"]) if only not in ("theta", "anchor") or s["variable"] == only
    ]
    p = [np.exp(reading.log_probabilities(store, s["sha256"], len(y)).astype(np.float64)) for s in draws]
    return cell["value"], float(-np.log(np.mean(p, axis=0)[np.arange(len(y)), y]).mean())
