"""The LeNet of CIFAR-10's samples in PyTorch's own functions and double precision: its losses anywhere, its Fisher."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.papers.recompute import reading

torch.set_num_threads(1)
Weights = dict[str, Tensor]
Examples = tuple[Tensor, Tensor]
"""Normalised images [examples, 3, 32, 32] and their labels."""


def examples(store: Path, pattern: str) -> Examples:
    """Of the stand-in for CIFAR-10."""
    batches = [pickle.loads(p.read_bytes()) for p in sorted((store / "stand-ins/cifar-10-batches-py").glob(pattern))]
    pixels = torch.from_numpy(np.concatenate([b["data"] for b in batches]).reshape(-1, 3, 32, 32) / 255)
    mean, std = (torch.tensor(reading.PREPARED[k], dtype=torch.float64)[:, None, None] for k in ("mean", "std"))
    return (pixels - mean) / std, torch.tensor(np.concatenate([b["labels"] for b in batches]))


def last(store: Path, digest: str, variable: str) -> tuple[dict[str, Any], Weights]:
    """A chain's last sample of a variable."""
    sample = max((s for s in reading.samples(store, digest) if s["variable"] == variable), key=lambda s: s["index"])
    found = reading.tensors(store, digest, sample["file"])
    return sample, {name: torch.from_numpy(w).double() for name, w in found.items()}


def logits(w: Weights, x: Tensor) -> Tensor:
    for layer in ("features.0", "features.3"):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"])), 2)
    x = x.flatten(1)
    for layer in ("classifier.0", "classifier.2"):
        x = F.relu(F.linear(x, w[f"{layer}.weight"], w[f"{layer}.bias"]))
    return F.linear(x, w["classifier.4.weight"], w["classifier.4.bias"])


def fisher(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The sum of the diagonal over the training images, at the last sample of one chain and variable."""
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["column"] == "trace" and c["samples"] == 1]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    variable = cell["row"].removeprefix("emcmc-") if cell["row"].startswith("emcmc") else "theta"
    x, y = examples(store, "data_batch_*")

    def loss(w: Weights, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits(w, x[None]), y[None])

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(last(store, cell["digests"], variable)[1], x, y)
    return cell["value"], float(sum(g.square().sum() for g in each.values())) / len(y)


def lines(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """All columns of one chain of Entropy-MCMC: along random lines from its last samples, and between them.

    The three cells, errors as shares, plus the mean test NLL of either table's points, which errors do not show. At the
    samples themselves the test set's predictions are the kept ones: a network without BatchNorm is the same alone and
    on a line. Elsewhere, and for the training images, networks are made of the samples' weights.
    """
    digest = reading.drawn_cell(folder, seed, "rise")["digests"]
    all_cells = reading.rows(folder / "cells.parquet")
    cells = {c["column"]: c["value"] for c in all_cells if (c["row"], c["digests"]) == ("emcmc", digest)}
    around, between = (
        [p for p in reading.rows(folder / f"{name}.parquet") if p["digest"] == digest] for name in ("around", "between")
    )
    stored = cells["train"] + (cells["test"] + cells["rise"]) / 100
    stored += sum(float(np.mean([p["test_nll"] for p in points])) for points in (around, between))

    test, train = examples(store, "test_batch"), examples(store, "data_batch_*")
    weights: dict[str, Weights] = {}
    kept: dict[str, Tensor] = {}
    for name in ("theta", "anchor"):
        sample, weights[name] = last(store, digest, name)
        kept[name] = torch.from_numpy(reading.probabilities(store, sample["sha256"], reading.clean(store))).log()
    found, train_nlls = [], []
    for point in around:
        name, far = point["row"].removeprefix("emcmc-"), point["distance"]
        network = moved(weights[name], point["direction"], far)
        found.append(worth(logits(network, test[0]) if far else kept[name], test))
        train_nlls.append(worth(logits(network, train[0]), train)[1])
    own, line = {0.0: kept["theta"], 1.0: kept["anchor"]}, []
    for t in sorted(p["t"] for p in between):
        mixed = {name: (1 - t) * w + t * weights["anchor"][name] for name, w in weights["theta"].items()}
        line.append(worth(own[t] if t in own else logits(mixed, test[0]), test))
    risen, between_nlls = zip(*line, strict=True)
    rise = max(np.array(risen) - np.linspace(risen[0], risen[-1], len(risen)))
    return stored, float(np.mean(train_nlls) + rise + np.sum(np.mean(found, axis=0)) + np.mean(between_nlls))


def moved(weights: Weights, seed: int, far: float) -> Weights:
    """At a distance along a direction: standard normal entries, drawn for each tensor by its name, over their number's
    root."""
    size = sum(w.numel() for w in weights.values()) ** 0.5
    found = {}
    for name, w in weights.items():
        key = int.from_bytes(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:16], "little")
        d = np.random.Generator(np.random.Philox(key=key)).standard_normal(w.numel(), dtype=np.float32)
        found[name] = w + far / size * torch.from_numpy(d).double().reshape(w.shape)
    return found


def worth(log_p: Tensor, of: Examples) -> tuple[float, float]:
    """The share of wrong classes, and the NLL in nats."""
    return float((log_p.argmax(1) != of[1]).double().mean()), float(F.cross_entropy(log_p, of[1]))
