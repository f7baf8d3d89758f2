"""Reads what lies in a store with numpy, pyarrow and safetensors, and remembers which files values were made of."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

READ: list[Path] = []
"""Files of predictions, draws and raw tables that were read: changing one must change what is made of it."""
PREPARED = {"kind": "normalise", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
"""What is done to CIFAR-10's bytes: the mean and the standard deviation of its training pixels."""


def rows(path: Path, *, raw: bool = False) -> list[dict[str, Any]]:
    """A parquet file's rows; ``raw`` where the recomputed value is made of them."""
    READ.extend([path] * raw)
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def columns(path: Path, *, raw: bool = False) -> dict[str, np.ndarray]:
    READ.extend([path] * raw)
    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def drawn_cell(folder: Path, seed: int, column: str = "", row: str = "") -> dict[str, Any]:
    """A row of cells.parquet drawn by the seed, of columns and rows that end and begin so."""
    cells = [c for c in rows(folder / "cells.parquet") if c["column"].endswith(column) and c["row"].startswith(row)]
    return cells[int(np.random.default_rng(seed).integers(len(cells)))]


def samples(store: Path, digest: str) -> list[dict[str, Any]]:
    """A chain's samples in order: file, sha256, index, variable, cycle, …"""
    return rows(store / "chains" / digest / "samples.parquet")


def tensors(store: Path, digest: str, file: str) -> dict[str, np.ndarray]:
    """The tensors of one sample, or of one block of draws [draws, lanes, dim]."""
    READ.append(store / "chains" / digest / file)
    found: dict[str, np.ndarray] = load_file(READ[-1])
    return found


def labels(store: Path, cell: dict[str, Any], name: str) -> np.ndarray:
    """Of the split that the run of a cell's chains is evaluated on, in the split's order: [examples]."""
    return _of_split(store, cell, name, "label").astype(int)


def targets(store: Path, cell: dict[str, Any], name: str) -> tuple[np.ndarray, float]:
    """The same of a regression: standardised targets, and their unit in the original one."""
    return _of_split(store, cell, name, "target"), float(_of_split(store, cell, name, "scale")[0])


def _of_split(store: Path, cell: dict[str, Any], name: str, column: str) -> np.ndarray:
    first = cell["digests"].split()[0]
    plans = sorted((store / "runs").glob(f"smoke-{name}-*/plan.json"))
    table = columns(next(p for p in plans if first in p.read_text()).with_name("rows.parquet"))
    return table[column][(table["arm"] == table["arm"][0]) & (table["group"] == 0)]


def inputs(store: Path, cell: dict[str, Any], name: str) -> np.ndarray:
    """Of the first classic split's test examples, standardised by its training examples: [examples, features]."""
    (file,) = (store / "stand-ins/uci").glob(f"*{cell['part']}*")
    features = np.loadtxt(file)[:, :-1]
    order = np.random.RandomState(1).permutation(len(features))
    train, test = np.split(order, [round(0.9 * len(order))])
    sd = features[train].std(0)
    found = (features[test] - features[train].mean(0)) / np.where(sd > 0, sd, 1)
    return np.asarray(found, dtype=np.float32)


def references(store: Path) -> list[np.ndarray]:
    """HMC's draws in rounds, [chains, draws, numbers] each."""
    READ.extend(sorted((store / "references").glob("*/*.safetensors")))
    return [load_file(path)["draws"] for path in sorted((store / "references").glob("*/*.safetensors"))]


def block(store: Path, sha256: str) -> np.ndarray:
    """A sample's means and σ of the one split that it was kept for, [examples, 2]."""
    (path,) = (store / "predictions").glob(f"*/{sha256}.safetensors")
    READ.append(path)
    shards = load_file(path)
    return np.concatenate([shards[name] for name in sorted(shards)])


# Kept predictions


def probabilities(store: Path, sha256: str, split: int | str) -> np.ndarray:
    """What a sample predicts, [examples, classes], of a split by its folder or by its number of examples.

    No two splits of one task's stand-ins have equally many examples, but for CIFAR-10's corruptions.
    """
    fitting = []
    for path in sorted(
        (store / "predictions").glob(f"{split if isinstance(split, str) else '*'}/{sha256}.safetensors")
    ):
        shards = load_file(path)
        log_p = np.concatenate([shards[name] for name in sorted(shards)])
        if isinstance(split, str) or len(log_p) == split:
            fitting.append((path, log_p))
    ((path, log_p),) = fitting
    READ.append(path)
    return np.exp(log_p.astype(np.float64))


def mean(store: Path, digests: str, split: int | str) -> np.ndarray:
    """The mean over all samples of these chains, separated by spaces."""
    shas = [sample["sha256"] for digest in digests.split() for sample in samples(store, digest)]
    return np.mean([probabilities(store, sha, split) for sha in shas], axis=0)


def clean(store: Path) -> str:
    """The folder of predictions on CIFAR-10's test images."""
    batch = pickle.loads((store / "stand-ins/cifar-10-batches-py/test_batch").read_bytes())
    return folder_of(batch["data"], np.array(batch["labels"]))


def folder_of(images: np.ndarray, y: np.ndarray) -> str:
    """From a split's fingerprint: the hash of its bytes, its labels and how the network takes them."""
    h = hashlib.sha256(np.ascontiguousarray(images).tobytes())
    h.update(y.astype(np.int64).tobytes())
    h.update(json.dumps(PREPARED, sort_keys=True).encode())
    return hashlib.sha256(h.hexdigest().encode()).hexdigest()[:32]


def worth(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Errors and accuracies in per cent, and NLL in nats; ties go to the first class."""
    own = p[np.arange(len(y)), y]
    right = 100 * float((p.argmax(1) == y).mean())
    five = 100 * float(((p > own[:, None]).sum(1) < 5).mean())
    return {"error": 100 - right, "accuracy": right, "top1": right, "top5": five, "nll": float(-np.log(own).mean())}


def entropy(p: np.ndarray) -> np.ndarray:
    """In nats, [examples]."""
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)


def calibration_error(p: np.ndarray, y: np.ndarray, bins: int, *, width: bool) -> float:
    """Expected calibration error in per cent: bins of equal width, or of equal mass.

    Of equal mass: sorted by confidence and cut at multiples of n/bins, by the middle of each example's rank.
    """
    confidence, right = p.max(1), p.argmax(1) == y
    middle = (confidence[:, None] > confidence).mean(1) + (confidence[:, None] == confidence).mean(1) / 2
    which = np.minimum(((confidence if width else middle) * bins).astype(int), bins - 1)
    return 100 * float(np.abs(np.bincount(which, right - confidence)).sum() / len(y))
