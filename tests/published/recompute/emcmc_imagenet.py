"""The NLL on prepared pictures, from the predictions of all samples of a chain."""

from __future__ import annotations

from pathlib import Path

from tests.published.recompute import ensembles, predicted, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat."""
    cell = reading.drawn_cell(folder, seed, "nll")
    y = ensembles.labels(store, "emcmc-imagenet", cell["digests"])
    return cell["value"], ensembles.worth(predicted.predictive(store, cell["digests"], len(y)), y)[cell["column"]]
