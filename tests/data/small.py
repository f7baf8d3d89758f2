"""Small data sets in the published file formats, with a catalogue's entry for each."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from raychains.data import catalogue
from raychains.data.catalogue import Entry

TRAIN, TEST = 30, 20
"""Images of each split."""


def made(name: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random images [n, c, h, w] uint8 and labels [n] of the shape and classes of the data set ``name``."""
    entry = catalogue.SETS[name]
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, *entry.shape), dtype=np.uint8)
    return images, np.concatenate([np.arange(n) % entry.classes])


def idx_bytes(array: np.ndarray) -> bytes:
    """An idx file of bytes, written as its format says."""
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_bytes(images: np.ndarray, labels: np.ndarray, key: str = "labels", **more: Any) -> bytes:
    """A python batch as CIFAR's authors pickled them."""
    rows = images.reshape(len(images), -1)
    return pickle.dumps({"batch_label": "made", key: labels.tolist(), "data": rows, **more}, protocol=3)


def write(name: str, root: Path) -> Entry:
    """All files of a small ``name`` below ``root``; the entry that describes them, with their md5s."""
    entry = catalogue.SETS[name]
    splits, counts = {}, {}
    (root / entry.folder).mkdir(parents=True, exist_ok=True)
    for i, (split, files) in enumerate(entry.splits.items()):
        n = TRAIN if split == "train" else TEST
        parts = _files(entry, *made(name, n, seed=i), len(files))
        written = []
        for file, data in zip(files, parts, strict=True):
            (root / entry.folder / file.name).write_bytes(data)
            md5 = hashlib.md5(data).hexdigest() if file.md5 else None
            written.append(dataclasses.replace(file, md5=md5, unpacked_md5=None))
        splits[split], counts[split] = tuple(written), n
    return dataclasses.replace(entry, splits=splits, counts=counts)


def _files(entry: Entry, images: np.ndarray, labels: np.ndarray, files: int) -> list[bytes]:
    if entry.format == "idx":
        return [gzip.compress(idx_bytes(a)) for a in (images[:, 0], labels.astype(np.uint8))]
    if entry.format == "cifar":
        key = "labels" if entry.classes == 10 else "fine_labels"
        coarse = {} if entry.classes == 10 else {"coarse_labels": [0] * (len(labels) // files)}
        pieces = zip(np.split(images, files), np.split(labels, files), strict=True)
        return [cifar_bytes(x, y, key, **coarse) for x, y in pieces]
    from io import BytesIO

    from scipy.io import savemat

    file = BytesIO()
    named = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": named}, do_compression=True)
    return [file.getvalue()]
