"""Distances between the samples that the map shows, from their weights."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from tests.published.recompute import reading


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The mean distance of all pairs, or that of pairs of two cycles over that of pairs of one."""
    column = ("distance", "apart")[int(np.random.default_rng(seed).integers(2))]
    cell = reading.drawn_cell(folder, seed, column)
    where = ("part", "row", "repeat")
    shown = [p for p in reading.rows(folder / "map.parquet") if all(p[k] == cell[k] for k in where)]
    files = {s["index"]: s["file"] for s in reading.samples(store, cell["digests"])}
    at = []
    for point in shown:
        tensors = reading.tensors(store, cell["digests"], files[point["index"]])
        at.append(np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64))
    found: dict[bool, list[float]] = {True: [], False: []}
    for i, j in itertools.combinations(range(len(at)), 2):
        found[shown[i]["group"] == shown[j]["group"]].append(float(np.linalg.norm(at[i] - at[j])))
    if column == "distance":
        return cell["value"], float(np.mean(found[True] + found[False]))
    return cell["value"], float(np.mean(found[False]) / np.mean(found[True]))
