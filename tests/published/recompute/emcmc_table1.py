"""The NLL of all samples of a chain, of θ and θₐ together for Entropy-MCMC."""

from __future__ import annotations

from pathlib import Path

from tests.published.recompute import ensembles, reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Of one arm and repeat."""
    cell = reading.drawn_cell(folder, seed, "nll")
    y = ensembles.labels(store, "emcmc-table1", cell["digests"])
    p = ensembles.mean(store, cell["digests"], ensembles.clean(store))
    return cell["value"], ensembles.worth(p, y)[cell["column"]]
