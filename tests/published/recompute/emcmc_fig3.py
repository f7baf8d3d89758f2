"""The mean NLL of the samples of θ that a chain drew in the first epoch, from their predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one method and repeat."""
    cell = reading.drawn_cell(folder, seed, "early")
    own = [p for p in reading.rows(folder / "points.parquet") if p["digest"] == cell["digests"]]
    until = max(1, min(p["epochs"] for p in own)) + 1e-6
    wanted = {p["index"] for p in own if p["epochs"] <= until}
    y = predicted.labels(store, "emcmc-fig3", cell["part"])
    found = []
    for sample in reading.samples(store, cell["digests"]):
        if sample["index"] in wanted and sample["variable"] != "anchor":
            log_p = reading.log_probabilities(store, sample["sha256"], len(y)).astype(np.float64)
            found.append(-log_p[np.arange(len(y)), y].mean())
    return cell["value"], float(np.mean(found))
