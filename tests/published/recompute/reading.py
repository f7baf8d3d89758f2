"""Reads what lies in a store with pyarrow and safetensors alone, and remembers which files values were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

READ: list[Path] = []
"""Files of predictions, draws and raw tables that were read: changing one must change what is made of it."""


def rows(path: Path, *, raw: bool = False) -> list[dict[str, Any]]:
    """A parquet file's rows; ``raw`` where the recomputed value is made of them."""
    if raw:
        READ.append(path)
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def columns(path: Path, *, raw: bool = False) -> dict[str, np.ndarray]:
    """A parquet file's columns as arrays."""
    if raw:
        READ.append(path)
    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def drawn_cell(folder: Path, seed: int, column: str | None = None) -> dict[str, Any]:
    """A row of cells.parquet drawn by the seed, of one column or any."""
    cells = [c for c in rows(folder / "cells.parquet") if column in (None, c["column"])]
    return cells[int(np.random.default_rng(seed).integers(len(cells)))]


def runs(store: Path, name: str) -> list[Path]:
    """Folders of the runs of an experiment at scale smoke."""
    return sorted(p for p in (store / "runs").glob(f"smoke-{name}-*") if (p / "plan.json").exists())


def plan(run: Path) -> dict[str, Any]:
    """A run's comparison: chains by digest, and arms with their chains' digests by group."""
    found: dict[str, Any] = json.loads((run / "plan.json").read_text())["comparison"]
    return found


def samples(store: Path, digest: str) -> list[dict[str, Any]]:
    """A chain's samples in order: file, sha256, index, variable, cycle, …"""
    return rows(store / "chains" / digest / "samples.parquet")


def tensors(store: Path, digest: str, file: str) -> dict[str, np.ndarray]:
    """The tensors of one sample, or of one block of draws [draws, lanes, dim]."""
    path = store / "chains" / digest / file
    READ.append(path)
    found: dict[str, np.ndarray] = load_file(path)
    return found


def log_probabilities(store: Path, sha256: str, examples: int) -> np.ndarray:
    """What a sample predicts of the split that has so many examples: [examples, classes].

    No two splits of one task's stand-ins have equally many examples.
    """
    fitting = []
    for path in sorted((store / "predictions").glob(f"*/{sha256}.safetensors")):
        shards = load_file(path)
        whole = np.concatenate([shards[name] for name in sorted(shards)])
        if len(whole) == examples:
            fitting.append((path, whole))
    ((path, whole),) = fitting
    READ.append(path)
    return whole
