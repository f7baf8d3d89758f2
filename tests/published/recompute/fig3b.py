"""Error and NLL of the samples that lines begin and end at, from their predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The mean over a chain's lines of both ends' errors, plus that of their NLL.

    A network without BatchNorm is the same alone and at the end of a line.
    """
    cell = reading.drawn_cell(folder, seed, "ends")
    y = predicted.labels(store, "fig3b", cell["part"])
    sha = {s["index"]: s["sha256"] for s in reading.samples(store, cell["digests"])}
    stored, again = [], []
    for p in reading.rows(folder / "paths.parquet"):
        end = {0.0: "from", 1.0: "to"}.get(p["t"])
        if end is None or (p["part"], p["row"], p["chain"]) != (cell["part"], cell["row"], cell["repeat"]):
            continue
        predictions = np.exp(reading.log_probabilities(store, sha[p[end]], len(y)).astype(np.float64))
        stored.append(p["nll"])
        again.append((predicted.error(predictions, y), predicted.nll(predictions, y)))
    return cell["value"] + float(np.mean(stored)), float(np.mean(again, axis=0).sum())
