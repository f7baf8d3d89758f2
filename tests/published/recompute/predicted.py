"""What the mean of several samples' predictions is worth, from kept predictions and the labels of a run's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading


def labels(store: Path, name: str, part: str) -> np.ndarray:
    """Of the split that a part's run is evaluated on, in the split's order: [examples]."""
    (run,) = reading.runs(store, f"{name}-{part}")
    table = reading.columns(run / "rows.parquet")
    return table["label"][(table["arm"] == table["arm"][0]) & (table["group"] == 0)].astype(int)


def predictive(store: Path, digests: str, examples: int) -> np.ndarray:
    """Probabilities [examples, classes]: the mean over all samples of these chains, separated by spaces."""
    found = [
        np.exp(reading.log_probabilities(store, sample["sha256"], examples).astype(np.float64))
        for digest in digests.split()
        for sample in reading.samples(store, digest)
    ]
    return np.mean(found, axis=0)


def error(p: np.ndarray, y: np.ndarray) -> float:
    """In per cent."""
    return float(100 * (p.argmax(1) != y).mean())


def nll(p: np.ndarray, y: np.ndarray) -> float:
    """In nats per example."""
    return float(-np.log(p[np.arange(len(y)), y]).mean())


def of_cell(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """A test error in per cent plus its NLL: predictions that change no class change the second."""
    cell = reading.drawn_cell(folder, seed)
    where = ("part", "row", "column", "repeat")
    (likelihood,) = [r["nll"] for r in reading.rows(folder / "nll.parquet") if all(r[k] == cell[k] for k in where)]
    y = labels(store, folder.name, cell["part"])
    p = predictive(store, cell["digests"], len(y))
    return cell["value"] + likelihood, error(p, y) + nll(p, y)
