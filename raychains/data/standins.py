"""Small stand-ins of every published data set in its own file format, for trying out experiments without the data.

Each class of images has a pattern of its own, which noise covers in part. They are never taken for the published sets:
the data root declares them (`raychains.data.standin_manifest`), their fingerprints differ, and a run's plan names its
data.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from raychains.core.errors import UserError
from raychains.core.validation import integer
from raychains.data import catalogue, cifar10_c, standin_manifest, tabular
from raychains.data.catalogue import Entry
from raychains.data.fetch import alone
from raychains.data.standin_manifest import Declaration

Array = np.ndarray[Any, Any]
REVISION = 1
"""Raised by a change of the images."""
FEWEST = 20
"""Images of a split: two of each of ten classes."""
PICTURES = "imagenet-raw"
"""Folder of classes of JPEG files, for `raychains prepare`: train/CLASS/*.jpg and val/CLASS/*.jpg."""
CLASSES, SIDE = 6, 32
EACH = 5
"""Training images that every class has: with fewer a network learns nothing of 100 classes."""


def make(
    folder: str | Path,
    *,
    train: int = 200,
    test: int = 100,
    seed: int = 0,
    corruptions: int = len(cifar10_c.CORRUPTIONS),
) -> Path:
    """Make a data root of stand-ins: every image set of the catalogue, CIFAR-10-C, the UCI tables and a folder of JPEG
    files.

    Equal arguments give equal images. The folder appears when everything is in it: a killed process leaves a hidden
    folder next to it, which the next call removes. A folder that holds these stand-ins already is left as it is.

    Args:
        folder: of the new data root; it must be missing or empty, or hold these stand-ins.
        train: training images of each set that has any, but five of each class at least; and examples of each UCI
            table.
        test: test images of the first set; every further one has one more. Of CIFAR-10-C: of each severity, as
            CIFAR-10.
        seed: of all patterns and noise.
        corruptions: how many types of CIFAR-10-C there are, the first ones; a folder that has more is left as it is.

    Returns:
        The folder as an absolute path.

    Raises:
        UserError: an argument out of range; a folder that holds anything else, or that cannot be written.
    """
    most = len(cifar10_c.CORRUPTIONS)
    for field, value in (("train", train), ("test", test)):
        integer(field, value, FEWEST)
    integer("seed", seed)
    integer("corruptions", corruptions, 1, most)
    made = {"train": train, "test": test, "seed": seed, "revision": REVISION}
    made |= {"corruptions": corruptions} if corruptions < most else {}
    folder = Path(folder).expanduser().resolve()
    try:
        if _complete(folder, made):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent):
            if not _complete(folder, made):  # another process may have made them
                _build(folder, made)
    except OSError as error:
        raise UserError(f"folder {folder}: stand-ins cannot be made there: {error.strerror or error}") from error
    return folder


def _complete(folder: Path, made: dict[str, int]) -> bool:
    """Return whether ``folder`` holds these stand-ins, complete.

    Raises:
        UserError: it holds anything else.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"folder must be a folder, got the file {str(folder)!r}")
    found = standin_manifest.find(folder)
    if found is None:
        if any(folder.iterdir()):
            raise UserError(
                f"folder must be missing or empty for stand-ins, got {str(folder)!r}, which holds other files"
            )
        return False
    if not _fits(found.made, made):
        raise UserError(
            f"folder must be missing or empty for stand-ins, got {str(folder)!r}, which holds stand-ins of other "
            f"settings: {_listed(found.made)}, not {_listed(made)}"
        )
    for file in found.md5s:
        found.check(folder / file, "stand-ins")
    return True


def _fits(present: Mapping[str, int], made: Mapping[str, int]) -> bool:
    """Return whether stand-ins are these, or have more types of corruption."""
    most = {"corruptions": len(cifar10_c.CORRUPTIONS)}
    present, made = {**most, **present}, {**most, **made}
    return present == {**made, "corruptions": max(present["corruptions"], made["corruptions"])}


def _listed(made: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in made.items())


def _build(folder: Path, made: dict[str, int]) -> None:
    """Write everything into a hidden folder next to ``folder``, then rename it."""
    building = folder.with_name(f".{folder.name}.making")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    md5s: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, file, data, count in _everything(made["train"], made["test"], made["seed"], made.get("corruptions")):
        path = building / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        md5s[file] = hashlib.md5(data, usedforsecurity=False).hexdigest()
        counts.setdefault(name, {}).update(count)
    declaration = Declaration(root=building, made=made, md5s=md5s, counts=counts)
    (building / standin_manifest.FILE).write_text(declaration.dumps())
    os.rename(building, folder)  # onto an empty folder too


Made = tuple[str, str, bytes, dict[str, int]]
"""Data set, path below the root, content, and its share of the set's counts."""


def _everything(train: int, test: int, seed: int, corruptions: int | None = None) -> Iterator[Made]:
    for entry in catalogue.SETS.values():
        for split, files in entry.splits.items():
            n = _tests(entry.name, test) if split == "test" else max(train, EACH * entry.classes)
            pictures, labels = _images(entry, split, n, seed)
            contents = _FORMATS[entry.format](pictures, labels, entry.classes, len(files))
            for file, content in zip(files, contents, strict=True):
                yield entry.name, str(Path(entry.folder, file.name)), content, {split: len(labels)}
    test_images = _tests("cifar10", test)
    pictures, labels = _images(catalogue.SETS["cifar10"], "test", test_images, seed)
    severe = np.tile(labels, cifar10_c.SEVERITIES)
    yield cifar10_c.NAME, f"{cifar10_c.FOLDER}/labels.npy", _npy(severe), {"test": test_images}
    for kind in cifar10_c.CORRUPTIONS[:corruptions]:
        spoilt = corrupted_images(pictures, kind, cifar10_c.SEVERITIES, seed=seed)
        yield cifar10_c.NAME, f"{cifar10_c.FOLDER}/{kind}.npy", _npy(spoilt.transpose(0, 2, 3, 1)), {}
    yield "hmc-cifar10", "hmc-cifar10/probabilities.npy", _npy(_sure(labels, 10)), {"test": test_images}
    for table in tabular.TABLES.values():
        assert table.counts is not None
        counts = _shares(dict(table.counts), train)
        numbers = table_rows(table.name, counts, table.features, seed=seed)
        named = {str(c): n for c, n in counts.items()}
        yield table.name, f"{tabular.FOLDER}/{table.file}", _lines(numbers), named
    for real in tabular.REGRESSION_TABLES.values():
        numbers = regression_rows(real.name, train, real.features, seed=seed)
        head = ",".join(real.columns).encode() + b"\n" if real.columns else b""
        body = _lines(numbers, "," if head else " ")
        yield real.name, f"{tabular.FOLDER}/{real.file}", head + body, {tabular.EXAMPLES: train}
    for split, n in (("train", train), ("val", test)):
        for picture, content in _jpegs(split, n, seed):
            yield PICTURES, f"{PICTURES}/{split}/{picture}", content, {split: n}


def _sure(labels: Array, classes: int) -> Array:
    """Return probabilities [n, classes], float32, that are .8 and more for each label."""
    return (0.8 * np.eye(classes)[labels] + 0.2 / classes).astype(np.float32)


def _tests(name: str, test: int) -> int:
    """Return the number of test images of a set: no two sets have equally many, so that kept predictions identify their
    set."""
    return test + list(catalogue.SETS).index(name)


def _images(entry: Entry, split: str, n: int, seed: int) -> tuple[Array, Array]:
    scale = {"mean": np.array(entry.mean), "std": np.array(entry.std)}
    return images(entry.name, split, n, seed=seed, shape=entry.shape, classes=entry.classes, **scale)


def _shares(counts: dict[int, int], n: int) -> dict[int, int]:
    """Return counts of ``n`` examples in two classes as large in proportion as the published ones."""
    (first, of), (second, _) = counts.items()
    share = round(n * of / sum(counts.values()))
    return {first: share, second: n - share}


# The published formats


def _idx(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """Return MNIST's files: the images and the labels."""
    parts = []
    for array in (pictures[:, 0], labels):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        parts.append(gzip.compress(head + array.tobytes(), mtime=0))
    return parts


def _cifar(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """Return CIFAR's python batches; CIFAR-100's have coarse labels too."""
    parts = []
    for rows in np.array_split(np.arange(len(labels)), files):
        fine = labels[rows].tolist()
        named = {"labels": fine} if classes == 10 else {"fine_labels": fine, "coarse_labels": [y // 5 for y in fine]}
        data = np.ascontiguousarray(pictures[rows].reshape(len(rows), -1))
        parts.append(pickle.dumps({"batch_label": "stand-ins", **named, "data": data}, protocol=3))
    return parts


def _svhn(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """Return SVHN's MATLAB file, in which the digit 0 is called 10."""
    from scipy.io import savemat

    file = io.BytesIO()
    named = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    savemat(file, {"X": pictures.transpose(2, 3, 1, 0), "y": named}, do_compression=True)
    head = b"MATLAB 5.0 MAT-file: stand-ins"  # scipy's has the time in it
    return [head.ljust(116) + file.getvalue()[116:]]


_FORMATS = {"idx": _idx, "cifar": _cifar, "svhn": _svhn}


def _npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def _lines(numbers: Array, between: str = " ") -> bytes:
    return "".join(between.join(f"{v:g}" for v in row) + "\n" for row in numbers).encode()


def _jpegs(split: str, n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every picture, a folder per class."""
    from PIL import Image

    half = np.full(3, 0.45)
    pictures, labels = images(
        PICTURES, split, n, seed=seed, shape=(3, SIDE, SIDE), classes=CLASSES, mean=half, std=half / 2
    )
    for i, (picture, label) in enumerate(zip(pictures.transpose(0, 2, 3, 1), labels, strict=True)):
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(picture)).save(file, "JPEG", quality=95)
        yield f"{standin_manifest.CLASS}{label}/{split}_{i:05d}.jpg", file.getvalue()


def pictures_of(root: str | Path) -> Path:
    """Return the folder of a root of stand-ins that `raychains prepare` takes as ``--from``."""
    return Path(root) / PICTURES


# Images and tables

KNOTS = 4
"""Points of a smooth pattern along each side, which lines join."""
NOISE, PIXELS = 0.7, 0.5
"""Standard deviations of an image's own smooth pattern and of its pixels' noise, where a class's pattern has 1."""
OTHER = 0.5
"""The largest share that another class's pattern has in an image."""
STEP = 0.14
"""Share of an image that each severity replaces."""


def stream(seed: int, *names: str) -> np.random.Generator:
    """Return the generator of one part of the stand-ins: others do not change when one is added."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def images(
    name: str, split: str, n: int, *, seed: int, shape: tuple[int, int, int], classes: int, mean: Array, std: Array
) -> tuple[Array, Array]:
    """Return images [n, channels, height, width] uint8 and labels [n] uint8, classes nearly equally many.

    Mirroring changes no class's pattern, and the splits of a set have the same patterns.

    ``mean`` is each channel's on the scale [0, 1] before values outside are cut off, ``std`` that of a class's pattern
    before the noise.
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


def corrupted_images(pictures: Array, kind: str, severities: int, *, seed: int) -> Array:
    """Return images under one corruption at severity 1, then 2, …: [severities · n, channels, height, width] uint8.

    Severity s keeps 1 − .14·s of an image and adds as much of the corruption's one pattern, and of noise.
    """
    rng = stream(seed, "corruption", kind)
    pattern = 0.5 + 0.25 * _smooth(rng, 1, pictures.shape[1:])
    noise = 0.2 * rng.standard_normal(pictures.shape, dtype=np.float32)
    clean = pictures.astype(np.float32) / 255
    weights = [STEP * s for s in range(1, severities + 1)]
    return np.concatenate([_bytes((1 - w) * clean + w * (pattern + noise)) for w in weights])


def table_rows(name: str, counts: dict[int, int], features: int, *, seed: int) -> Array:
    """Return numbers [n, features + 1] with the class last, ``counts`` of each; the larger class has the larger
    logits."""
    rng = stream(seed, name)
    n = sum(counts.values())
    values = np.round(rng.standard_normal((n, features)) * rng.uniform(0.5, 20, features), 3)
    logits = values / values.std(0) @ rng.standard_normal(features) + 1.5 * rng.logistic(size=n)
    low, high = sorted(counts)
    classes = np.full(n, low)
    classes[np.argsort(logits)[counts[low] :]] = high
    return np.column_stack([values, classes])


def regression_rows(name: str, examples: int, features: int, *, seed: int) -> Array:
    """Return numbers [examples, features + 1] with the target last: a smooth function of the features, and noise that
    depends on them."""
    rng = stream(seed, name)
    z = rng.standard_normal((examples, features))
    signal = np.sin(z @ rng.standard_normal(features)) + z @ rng.standard_normal(features) / np.sqrt(features)
    targets = signal + 0.2 * np.exp(0.5 * z[:, 0]) * rng.standard_normal(examples)
    values = z * rng.uniform(0.5, 20, features) + rng.uniform(-50, 50, features)
    return np.round(np.column_stack([values, 10 * targets + 40]), 3)


def _smooth(rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> Array:
    """Return patterns [n, channels, height, width] float32 between random values of variance 1 on a coarse grid."""
    channels, *sides = shape
    rows, columns = (_joined(side) for side in sides)
    return rows @ rng.standard_normal((n, channels, KNOTS, KNOTS), dtype=np.float32) @ columns.T


def _joined(side: int) -> Array:
    """Return [side, KNOTS]: linear interpolation between knots at equal distances, the first and last at the ends."""
    at = np.linspace(0, KNOTS - 1, side)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(KNOTS))).astype(np.float32)


def _bytes(values: Array) -> Array:
    return np.round(255 * np.clip(values, 0, 1)).astype(np.uint8)
