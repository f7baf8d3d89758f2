"""Whether a chain ends in the flat mode, from where it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

SHARP, FLAT = (0.1, -1.0), (0.5, 1.0)
"""Standard deviation and both coordinates of the centre."""


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The flat mode's responsibility: both modes are equally deep, so that only exponents count."""
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["part"] != "law"]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    file = store / f"reproduce/smoke/emcmc-fig2/pieces/{cell['part']}-{cell['row']}-r1.parquet"
    (end,) = [
        r for r in reading.rows(file, raw=True)
        if (r["what"], r["variable"], r["at"]) == ("end", cell["column"], cell["repeat"])
    ]  # fmt: skip
    sharp, flat = (((end["x"] - c) ** 2 + (end["y"] - c) ** 2) / (2 * s**2) for s, c in (SHARP, FLAT))
    return cell["value"], float(1 / (1 + np.exp(flat - sharp)))
