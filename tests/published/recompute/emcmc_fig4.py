"""The diagonal Fisher at a sample of a LeNet, by backpropagation written out in numpy."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from tests.published.recompute import reading

MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])


def check(folder: Path, store: Path, seed: int) -> tuple[float, float]:
    """The sum of all entries over the training images, at the last sample of one chain and variable."""
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["column"] == "trace" and c["samples"] == 1]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    variable = cell["row"].removeprefix("emcmc-") if cell["row"].startswith("emcmc") else "theta"
    mine = [s for s in reading.samples(store, cell["digests"]) if s["variable"] == variable]
    last = max(mine, key=lambda s: s["index"])
    weights = reading.tensors(store, cell["digests"], last["file"])
    total = sum(fisher_trace(weights, x, y) for x, y in images(store))
    return cell["value"], total / sum(1 for _ in images(store))


def images(store: Path) -> list[tuple[np.ndarray, int]]:
    """Normalised training images [3, 32, 32] of the stand-in with their labels."""
    found = []
    for path in sorted((store / "stand-ins").glob("cifar-10-batches-py/data_batch_*")):
        batch = pickle.loads(path.read_bytes(), encoding="latin1")
        pixels = np.asarray(batch["data"]).reshape(-1, 3, 32, 32) / 255
        found += list(zip((pixels - MEAN[:, None, None]) / STD[:, None, None], batch["labels"], strict=True))
    return found


def fisher_trace(weights: dict[str, np.ndarray], x: np.ndarray, y: int) -> float:
    """‖∂ log p(y | x)/∂θ‖² of one image."""
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    tape = []
    for layer in ("features.0", "features.3"):
        patches = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))  # [in, h, w, 5, 5]
        z = np.einsum("chwij,ocij->ohw", patches, w[f"{layer}.weight"]) + w[f"{layer}.bias"][:, None, None]
        tape.append((layer, x, patches, z))
        x = pooled(np.maximum(z, 0))[0]
    shape, h, dense = x.shape, x.ravel(), []
    for layer in ("classifier.0", "classifier.2", "classifier.4"):
        dense.append((layer, h))
        h = w[f"{layer}.weight"] @ h + w[f"{layer}.bias"]
        h = np.maximum(h, 0) if layer != "classifier.4" else h
    p = np.exp(h - h.max())
    g = p / p.sum()
    g[y] -= 1
    total = 0.0
    for layer, before in reversed(dense):
        total += (g @ g) * (before @ before) + g @ g  # of an outer product, and of the bias
        g = w[f"{layer}.weight"].T @ g
        if layer != "classifier.0":
            g = g * (before > 0)
    back = g.reshape(shape)
    for layer, before, patches, z in reversed(tape):
        chosen = pooled(np.maximum(z, 0))[1]
        dz = np.zeros_like(z)
        np.add.at(dz, chosen, back)
        dz *= z > 0
        total += float((np.einsum("ohw,chwij->ocij", dz, patches) ** 2).sum() + (dz.sum((1, 2)) ** 2).sum())
        back = np.zeros_like(before)
        for i in range(5):
            for j in range(5):
                back[:, i : i + dz.shape[1], j : j + dz.shape[2]] += np.einsum(
                    "ohw,oc->chw", dz, w[f"{layer}.weight"][:, :, i, j]
                )
    return total


def pooled(a: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Maxima of 2×2 squares of [channels, h, w], the first of equal ones, and their places."""
    c, h, w = a.shape[0], a.shape[1] // 2, a.shape[2] // 2
    squares = a.reshape(c, h, 2, w, 2).transpose(0, 1, 3, 2, 4).reshape(c, h, w, 4)
    at = squares.argmax(-1)
    channel, row, column = np.indices((c, h, w))
    return squares.max(-1), (channel, 2 * row + at // 2, 2 * column + at % 2)
