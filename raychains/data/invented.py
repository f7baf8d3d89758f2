"""Images and tables that stand in for published ones: each class has a pattern of its own, which noise covers in part."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
KNOTS = 4
"""Of a smooth pattern, along each side: lines join random values on such a grid."""
NOISE, PIXELS = 0.7, 0.5
"""Standard deviations of an image's own smooth pattern and of its pixels' noise, where a class's pattern has 1."""
OTHER = 0.5
"""The largest share that another class's pattern has in an image."""
STEP = 0.14
"""What each severity takes from an image."""


def stream(seed: int, *names: str) -> np.random.Generator:
    """The generator of one part of the stand-ins: others do not change when one is added."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def images(
    name: str, split: str, n: int, *, seed: int, shape: tuple[int, int, int], classes: int, mean: Array, std: Array
) -> tuple[Array, Array]:
    """Images [n, channels, height, width] uint8 and labels [n] uint8, classes nearly equally many.

    Mirroring changes no class's pattern, and the splits of a set have the same patterns.

    Args:
        name: of the data set: sets have different patterns.
        split: its images differ from those of other splits.
        n: how many.
        seed: of everything.
        shape: (channels, height, width).
        classes: how many there are.
        mean: of each channel on the scale [0, 1], before values outside are cut off.
        std: likewise: of a class's pattern, before the noise.
    """
    patterns = _smooth(stream(seed, name, "patterns"), classes, shape)
    patterns = (patterns + patterns[..., ::-1]) / np.sqrt(2)
    rng = stream(seed, name, split)
    labels = rng.permutation(np.arange(n) % classes)
    other = (labels + rng.integers(1, classes, n)) % classes
    share = rng.uniform(0, OTHER, (n, 1, 1, 1)).astype(np.float32)
    found = (1 - share) * patterns[labels] + share * patterns[other]
    found += NOISE * _smooth(rng, n, shape) + PIXELS * rng.standard_normal((n, *shape), dtype=np.float32)
    scale = np.asarray(std, dtype=np.float32)[:, None, None]
    return _bytes(np.asarray(mean, dtype=np.float32)[:, None, None] + scale * found), labels.astype(np.uint8)


def corruptions(pictures: Array, kind: str, severities: int, *, seed: int) -> Array:
    """Images under one corruption at severity 1, then 2, …: [severities · n, channels, height, width] uint8.

    Severity s keeps 1 − .14·s of an image and adds as much of the corruption's one pattern, and of noise.
    """
    rng = stream(seed, "corruption", kind)
    pattern = 0.5 + 0.25 * _smooth(rng, 1, pictures.shape[1:])
    noise = 0.2 * rng.standard_normal(pictures.shape, dtype=np.float32)
    clean = pictures.astype(np.float32) / 255
    weights = [STEP * s for s in range(1, severities + 1)]
    return np.concatenate([_bytes((1 - w) * clean + w * (pattern + noise)) for w in weights])


def table(name: str, counts: dict[int, int], features: int, *, seed: int) -> Array:
    """Numbers [n, features + 1] with the class last, ``counts`` of each; the larger class has the larger logits."""
    rng = stream(seed, name)
    n = sum(counts.values())
    values = np.round(rng.standard_normal((n, features)) * rng.uniform(0.5, 20, features), 3)
    logits = values / values.std(0) @ rng.standard_normal(features) + 1.5 * rng.logistic(size=n)
    low, high = sorted(counts)
    classes = np.full(n, low)
    classes[np.argsort(logits)[counts[low] :]] = high
    return np.column_stack([values, classes])


def _smooth(rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> Array:
    """Patterns [n, channels, height, width] float32 between random values of variance 1 on a coarse grid."""
    channels, *sides = shape
    rows, columns = (_joined(side) for side in sides)
    return rows @ rng.standard_normal((n, channels, KNOTS, KNOTS), dtype=np.float32) @ columns.T


def _joined(side: int) -> Array:
    """[side, KNOTS]: linear interpolation between knots at equal distances, the first and last at the ends."""
    at = np.linspace(0, KNOTS - 1, side)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(KNOTS))).astype(np.float32)


def _bytes(values: Array) -> Array:
    return np.round(255 * np.clip(values, 0, 1)).astype(np.uint8)
