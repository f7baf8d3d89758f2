"""Predictives of chains that have predictions of several splits of equally many examples: CIFAR-10's and its corruptions."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.published.recompute import reading

PREPARED = {"kind": "normalise", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
"""What is done to CIFAR-10's bytes: the mean and the standard deviation of its training pixels."""


def run_of(store: Path, name: str, digests: str) -> Path:
    """A run of an experiment that holds these chains, separated by spaces; all of them have the same split."""
    first = digests.split()[0]
    return next(run for run in reading.runs(store, name) if first in (run / "plan.json").read_text())


def labels(store: Path, name: str, digests: str) -> np.ndarray:
    """Of the split that the run of these chains is evaluated on: [examples]."""
    table = reading.columns(run_of(store, name, digests) / "rows.parquet")
    return table["label"][(table["arm"] == table["arm"][0]) & (table["group"] == 0)].astype(int)


def clean(store: Path) -> str:
    """The folder of predictions on CIFAR-10's test images."""
    batch = pickle.loads((store / "stand-ins/cifar-10-batches-py/test_batch").read_bytes())
    return folder_of(batch["data"], np.array(batch["labels"]))


def corrupted(store: Path, kind: str, severity: int) -> tuple[str, np.ndarray]:
    """The folder of predictions on a corruption, and its labels [examples]."""
    folder = store / "stand-ins/CIFAR-10-C"
    y = np.load(folder / "labels.npy").reshape(5, -1)[severity - 1]
    images = np.load(folder / f"{kind}.npy").reshape(5, len(y), 32, 32, 3)[severity - 1]
    return folder_of(images.transpose(0, 3, 1, 2), y), y


def folder_of(images: np.ndarray, y: np.ndarray) -> str:
    """From a split's fingerprint: the hash of its bytes, its labels and how the network takes them."""
    h = hashlib.sha256(np.ascontiguousarray(images).tobytes())
    h.update(y.astype(np.int64).tobytes())
    h.update(json.dumps(PREPARED, sort_keys=True).encode())
    return hashlib.sha256(h.hexdigest().encode()).hexdigest()[:32]


def probabilities(store: Path, sha256: str, folder: str) -> np.ndarray:
    """One sample's, [examples, classes]."""
    path = store / "predictions" / folder / f"{sha256}.safetensors"
    reading.READ.append(path)
    shards = load_file(path)
    return np.exp(np.concatenate([shards[name] for name in sorted(shards)]).astype(np.float64))


def mean(store: Path, digests: str, folder: str, only: slice = slice(None)) -> np.ndarray:
    """The mean over the samples of these chains, or some of each chain's: [examples, classes]."""
    shas = [s["sha256"] for digest in digests.split() for s in reading.samples(store, digest)[only]]
    return np.mean([probabilities(store, sha, folder) for sha in shas], axis=0)


def worth(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy and top-5 accuracy in per cent, and NLL in nats; ties go to the first class."""
    own = p[np.arange(len(y)), y]
    top1 = 100 * float((p.argmax(1) == y).mean())
    return {
        "accuracy": top1, "top1": top1, "top5": 100 * float(((p > own[:, None]).sum(1) < 5).mean()),
        "nll": float(-np.log(own).mean()),
    }  # fmt: skip


def calibration_error(p: np.ndarray, y: np.ndarray, edges: Sequence[float] | None, bins: int) -> float:
    """Expected calibration error in per cent: bins of equal width between edges, or of equal mass without.

    Of equal mass: sorted by confidence and cut at multiples of n/bins, by the middle of each example's rank.
    """
    confidence, right = p.max(1), p.argmax(1) == y
    n = len(y)
    if edges is None:
        ranks = np.array([(confidence < c).sum() + (confidence == c).sum() / 2 for c in confidence])
        which = np.minimum((ranks * bins / n).astype(int), bins - 1)
    else:
        which = np.clip(np.digitize(confidence, edges) - 1, 0, bins - 1)
    gaps = [abs(right[which == b].mean() - confidence[which == b].mean()) * (which == b).sum() for b in set(which)]
    return 100 * float(sum(gaps) / n)
