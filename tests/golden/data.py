"""A data root of small sets in the published file formats, with the same content on every machine.

Nothing of raychains is imported: the formats on disk are what earlier and later versions read alike.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

IMAGES, EXAMPLES, ROWS = 1000, 90, 200
"""Training images of each set; examples of each table with classes, and of each with real targets."""
IDX = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
CIFAR = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], "labels", 10),
    "cifar100": ("cifar-100-python", ["train"], "fine_labels", 100),
}
TABLES = {
    "australian": ("australian.dat", 14, (0, 1)),
    "german": ("german.data-numeric", 24, (1, 2)),
    "heart": ("heart.dat", 13, (1, 2)),
}
BIKES = "season yr mnth hr holiday weekday workingday weathersit temp atemp hum windspeed cnt"
REGRESSION_TABLES = {
    "airfoil": ("airfoil.data", 5, ""),
    "bikesharing": ("bikesharing-hour.csv", 12, BIKES),
    "concrete": ("concrete.data", 8, ""),
    "energy": ("energy.data", 8, ""),
    "protein": ("protein.data", 9, ""),
    "yacht": ("yacht.data", 6, ""),
}
"""By name: the file, its number of inputs, and the names in the first line of one whose cells stand between commas."""


def write(root: Path) -> Path:
    """Write training images, tables and the manifest of a prepared set below ``root``, and return it."""
    md5s = {}
    for file, content in [*_idx(), *_cifar(), *_tables(), *_regression_tables()]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(content)
        md5s[file] = hashlib.md5(content, usedforsecurity=False).hexdigest()
    counts: dict[str, dict[str, int]] = {name: {"train": IMAGES} for name in (*IDX, *CIFAR)}
    counts |= {name: {str(c): EXAMPLES // 2 for c in classes} for name, (_, _, classes) in TABLES.items()}
    counts |= {name: {"examples": ROWS} for name in REGRESSION_TABLES}
    declared = {"format": 1, "made": {"golden": 1}, "counts": counts, "md5": md5s}
    (root / "stand-ins.json").write_text(json.dumps(declared))
    (root / "imagenet").mkdir(exist_ok=True)
    (root / "imagenet" / "manifest.json").write_text(json.dumps(_manifest()))
    return root


def _bytes(name: str, *shape: int) -> np.ndarray:
    """Bytes that depend on their name alone."""
    drawn = hashlib.shake_256(name.encode()).digest(int(np.prod(shape)))
    return np.frombuffer(drawn, np.uint8).reshape(shape)


def _idx() -> Iterator[tuple[str, bytes]]:
    for name, folder in IDX.items():
        labels = (np.arange(IMAGES) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", _bytes(name, IMAGES, 28, 28)), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            yield f"{folder}/raw/train-{kind}-ubyte.gz", gzip.compress(head + array.tobytes())


def _cifar() -> Iterator[tuple[str, bytes]]:
    for name, (folder, files, key, classes) in CIFAR.items():
        rows = _bytes(name, IMAGES, 3072)
        for file, part in zip(files, np.array_split(np.arange(IMAGES), len(files)), strict=True):
            yield f"{folder}/{file}", pickle.dumps({key: (part % classes).tolist(), "data": rows[part]}, protocol=3)


def _tables() -> Iterator[tuple[str, bytes]]:
    for name, (file, features, classes) in TABLES.items():
        rows = [[*row, classes[i % 2]] for i, row in enumerate(_bytes(name, EXAMPLES, features).tolist())]
        yield f"uci/{file}", "".join(" ".join(map(str, row)) + "\n" for row in rows).encode()


def _regression_tables() -> Iterator[tuple[str, bytes]]:
    for name, (file, features, head) in REGRESSION_TABLES.items():
        between = "," if head else " "
        rows = [between.join(map(str, row)) for row in _bytes(name, ROWS, features + 1).tolist()]
        yield (
            f"uci/{file}",
            "".join(line + "\n" for line in [*([between.join(head.split())] if head else []), *rows]).encode(),
        )


def _manifest() -> dict[str, object]:
    shard = {"file": "one.parquet", "rows": [100] * 20, "bytes": 1, "sha256": "0" * 64}
    splits = {split: {"shards": [shard], "fingerprint": split.ljust(64, "0")} for split in ("train", "val")}
    return {
        "format": 1,
        "name": "golden",
        "classes": ["a", "b"],
        "words": [],
        "seed": 0,
        "splits": splits,
        "converted": 0,
        "skipped": [],
    }
