"""Accuracy or NLL of all samples of a chain, or of its last one."""

from __future__ import annotations

from pathlib import Path

from tests.published.recompute import ensembles, predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat."""
    cell = reading.drawn_cell(folder, seed)
    y = ensembles.labels(store, "atmc-table1", cell["digests"])
    if cell["row"].endswith("-single"):
        (digest,) = cell["digests"].split()
        last = reading.samples(store, digest)[-1]["sha256"]
        p = ensembles.probabilities(store, last, ensembles.clean(store))
    else:
        p = predicted.predictive(store, cell["digests"], len(y))
    return cell["value"], ensembles.worth(p, y)[cell["column"]]
