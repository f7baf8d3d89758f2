"""How many chains end in the flat mode, from where they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.published.recompute import reading

SHARP, FLAT = (0.1, -1.0), (0.5, 1.0)
"""Standard deviation and both coordinates of the centre."""


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """Responsibilities of the flat mode of one method's chains: both modes are equally deep, so that only exponents count.

    SGD's chains end in the middle of a mode and those that begin in the flat one stay there: all are 0 or all are 1,
    whatever is altered.
    """
    cells = [
        c for c in reading.rows(folder / "cells.parquet") if c["part"] not in ("law", "from-flat") and c["row"] != "sgd"
    ]
    groups = sorted({(c["part"], c["row"], c["column"]) for c in cells})
    part, row, column = groups[int(np.random.default_rng(seed).integers(len(groups)))]
    mine = [c["value"] for c in cells if (c["part"], c["row"], c["column"]) == (part, row, column)]
    file = store / f"reproduce/smoke/emcmc-fig2/pieces/{part}-{row}-r1.parquet"
    ends = [r for r in reading.rows(file, raw=True) if (r["what"], r["variable"]) == ("end", column)]
    again = []
    for end in ends:
        sharp, flat = (((end["x"] - c) ** 2 + (end["y"] - c) ** 2) / (2 * s**2) for s, c in (SHARP, FLAT))
        again.append(1 / (1 + np.exp(flat - sharp)))
    return float(np.mean(mine)), float(np.mean(again))
