"""Small random data sets of the published shapes, in the place of the real ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from raychains.data import catalogue, sets
from raychains.data.sets import ImageSet, content_hash

NETWORKS = {
    "mnist-mlp": "mnist", "mnist-cnn": "mnist", "fashion-mnist-mlp": "fashion-mnist", "cifar10-resnet18": "cifar10",
    "cifar100-resnet18": "cifar100", "cifar10-resnet18-frn": "cifar10", "cifar10-resnetpp56": "cifar10",
    "cifar10-resnet20": "cifar10", "cifar10-lenet": "cifar10", "cifar100-lenet": "cifar100",
    "cifar10-resnet20-frn-silu": "cifar10",
}  # fmt: skip
"""Every image task and its data set."""
LIGHT = {"cifar10-resnetpp56": {"depth": 8, "width": 4}, "cifar10-resnet20-frn-silu": {"depth": 8, "width": 4}}
"""Smaller networks, where a test runs one."""
TRAIN, TEST = 240, 110
Load = Callable[[str, str], ImageSet]


def made(name: str, split: str) -> ImageSet:
    """Random images in which the classes are unevenly many."""
    entry = catalogue.entry(name)
    n = TRAIN if split == "train" else TEST
    rng = np.random.default_rng([n, len(name)])
    images = rng.integers(0, 256, (n, *entry.shape), dtype=np.uint8)
    labels = np.concatenate([np.arange(entry.classes), rng.integers(0, entry.classes, n) // 2])[:n]
    return ImageSet(
        name, torch.from_numpy(images), torch.from_numpy(labels), entry.classes, content_hash(images, labels)
    )


def use(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Have tasks read the made sets; the (set, split) that were read so far, in order."""
    read: list[tuple[str, str]] = []

    def load(name: str, split: str, root: object = None) -> ImageSet:
        read.append((name, split))
        return made(name, split)

    monkeypatch.setattr(sets, "load", load)
    return read
