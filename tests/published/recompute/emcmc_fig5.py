"""All columns of one chain of Entropy-MCMC: along random lines from its last samples, and between them."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np

from tests.published.recompute import ensembles, reading

Weights = dict[str, np.ndarray]
Examples = tuple[np.ndarray, np.ndarray]
"""Normalised images [examples, 3, 32, 32] and their labels."""
MEAN, STD = (np.array(ensembles.PREPARED[k])[:, None, None] for k in ("mean", "std"))


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The three cells, errors as shares, plus the mean test NLL of either table's points, which errors do not show.

    At the samples themselves the test set's predictions are the kept ones: a network without BatchNorm is the same alone
    and on a line. Elsewhere, and for the training images, networks are made of the samples' weights.
    """
    digest = reading.drawn_cell(folder, seed, "rise")["digests"]
    cells = {
        c["column"]: c["value"]
        for c in reading.rows(folder / "cells.parquet")
        if c["row"] == "emcmc" and c["digests"] == digest
    }
    around, between = (
        [p for p in reading.rows(folder / f"{name}.parquet") if p["digest"] == digest] for name in ("around", "between")
    )
    stored = cells["train"] + (cells["test"] + cells["rise"]) / 100
    stored += sum(float(np.mean([p["test_nll"] for p in points])) for points in (around, between))

    test, train = examples(store, "test_batch"), examples(store, "data_batch_*")
    weights, kept = {}, {}
    for name in ("theta", "anchor"):
        samples = [s for s in reading.samples(store, digest) if s["variable"] == name]
        end = max(samples, key=lambda s: s["index"])
        weights[name] = reading.tensors(store, digest, end["file"])
        kept[name] = np.log(ensembles.probabilities(store, end["sha256"], ensembles.clean(store)))
    errors, nlls, train_nlls = [], [], []
    for point in around:
        name, far = point["row"].removeprefix("emcmc-"), point["distance"]
        network = moved(weights[name], point["direction"], far)
        error, nll = worth(log_probabilities(network, test) if far else kept[name], test)
        errors.append(error)
        nlls.append(nll)
        train_nlls.append(worth(log_probabilities(network, train), train)[1])
    own = {0.0: kept["theta"], 1.0: kept["anchor"]}
    line = [
        worth(own[t] if t in own else log_probabilities(mixed(weights, t), test), test)
        for t in sorted(p["t"] for p in between)
    ]
    risen, between_nlls = zip(*line, strict=True)
    rise = max(np.array(risen) - np.linspace(risen[0], risen[-1], len(risen)))
    again = np.mean(train_nlls) + np.mean(errors) + rise + np.mean(nlls) + np.mean(between_nlls)
    return stored, float(again)


def examples(store: Path, pattern: str) -> Examples:
    """Of the stand-in for CIFAR-10."""
    batches = [pickle.loads(p.read_bytes()) for p in sorted((store / "stand-ins/cifar-10-batches-py").glob(pattern))]
    pixels = np.concatenate([b["data"] for b in batches]).reshape(-1, 3, 32, 32) / 255
    return (pixels - MEAN) / STD, np.concatenate([b["labels"] for b in batches])


def moved(weights: Weights, seed: int, far: float) -> Weights:
    """At a distance along a direction: standard normal entries, drawn for each tensor by its name, over their number's root."""
    size = sum(w.size for w in weights.values()) ** 0.5
    found = {}
    for name, w in weights.items():
        key = int.from_bytes(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:16], "little")
        d = np.random.Generator(np.random.Philox(key=key)).standard_normal(w.size, dtype=np.float32).reshape(w.shape)
        found[name] = w + far / size * d.astype(np.float64)
    return found


def mixed(ends: dict[str, Weights], t: float) -> Weights:
    """(1 − t)·θ + t·θₐ."""
    return {name: (1 - t) * w + t * ends["anchor"][name] for name, w in ends["theta"].items()}


def log_probabilities(weights: Weights, of: Examples) -> np.ndarray:
    """Of the LeNet with these weights: [examples, classes]."""
    w = {name: v.astype(np.float64) for name, v in weights.items()}
    x = of[0]
    for layer in ("features.0", "features.3"):
        patches = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))  # [examples, in, h, w, 5, 5]
        z = np.tensordot(patches, w[f"{layer}.weight"], ((1, 4, 5), (1, 2, 3))) + w[f"{layer}.bias"]
        n, height, width, channels = z.shape
        x = np.maximum(z, 0).reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4)).transpose(0, 3, 1, 2)
    x = x.reshape(len(x), -1)
    for layer in ("classifier.0", "classifier.2", "classifier.4"):
        x = x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]
        x = np.maximum(x, 0) if layer != "classifier.4" else x
    return x - np.logaddexp.reduce(x, axis=1, keepdims=True)


def worth(log_p: np.ndarray, of: Examples) -> tuple[float, float]:
    """The share of wrong classes, and the NLL in nats."""
    y = of[1]
    return float((log_p.argmax(1) != y).mean()), float(-log_p[np.arange(len(y)), y].mean())
