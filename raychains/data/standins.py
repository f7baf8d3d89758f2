"""Small stand-ins of every published data set in its own file format, for trying out what needs more than is at hand.

They are images of noise over a pattern per class, and are never taken for the published sets: the data root declares them
(`raychains.data.declared`), their fingerprints are other ones, and a run's plan says what its data are.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from raychains.data import catalogue, corrupted, declared, invented, uci
from raychains.data.catalogue import Entry
from raychains.data.declared import Declaration
from raychains.data.fetch import alone
from raychains.data.invented import Array
from raychains.errors import UserError, require

REVISION = 1
"""Raised by a change of what is made."""
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
    corruptions: int = len(corrupted.CORRUPTIONS),
) -> Path:
    """A data root of stand-ins: every image set of the catalogue, CIFAR-10-C, the UCI tables and a folder of JPEG files.

    Equal arguments give equal images. The folder appears when everything is in it: what a killed process leaves behind is a
    hidden folder beside it, which the next call removes. A folder that holds these stand-ins already is left as it is.

    Args:
        folder: of the new data root; it must be missing or empty, or hold these stand-ins.
        train: training images of each set that has any, but five of each class at least; and examples of each UCI table.
        test: test images of the first set; every further one has one more. Of CIFAR-10-C: of each severity, as CIFAR-10.
        seed: of all patterns and noise.
        corruptions: how many types of CIFAR-10-C there are, the first ones; a folder that has more is left as it is.

    Returns:
        The folder as an absolute path.

    Raises:
        UserError: an argument out of range; a folder that holds anything else, or that cannot be written.
    """
    for field, value in (("train", train), ("test", test)):
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= FEWEST
        require(ok, field, value, f"be an integer of at least {FEWEST}")
    require(isinstance(seed, int) and seed >= 0, "seed", seed, "be an integer of at least 0")
    most = len(corrupted.CORRUPTIONS)
    ok = isinstance(corruptions, int) and 1 <= corruptions <= most
    require(ok, "corruptions", corruptions, f"be an integer in [1, {most}]")
    made = {"train": train, "test": test, "seed": seed, "revision": REVISION}
    made |= {"corruptions": corruptions} if corruptions < most else {}
    folder = Path(folder).expanduser().resolve()
    try:
        if _there(folder, made):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent):
            if not _there(folder, made):  # another process may have made them
                _build(folder, made)
    except OSError as error:
        raise UserError(f"folder {folder}: stand-ins cannot be made there: {error.strerror or error}") from error
    return folder


def _there(folder: Path, made: dict[str, int]) -> bool:
    """Whether ``folder`` holds these stand-ins, complete.

    Raises:
        UserError: it holds anything else.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"folder must be a folder, got the file {str(folder)!r}")
    found = declared.find(folder)
    if found is None:
        if any(folder.iterdir()):
            raise UserError(
                f"folder must be missing or empty for stand-ins, got {str(folder)!r}, which holds other files"
            )
        return False
    if not _fits(dict(found.made), made):
        raise UserError(
            f"folder must be missing or empty for stand-ins, got {str(folder)!r}, which holds stand-ins of other "
            f"settings: {_told(found.made)}, not {_told(made)}"
        )
    for file in found.md5s:
        found.check(folder / file, "stand-ins")
    return True


def _fits(there: dict[str, int], made: dict[str, int]) -> bool:
    """Whether stand-ins are these, or have more types of corruption."""
    most = {"corruptions": len(corrupted.CORRUPTIONS)}
    there, made = most | there, most | made
    return there == made | {"corruptions": max(there["corruptions"], made["corruptions"])}


def _told(made: object) -> str:
    return ", ".join(f"{key} {value}" for key, value in dict(made).items())  # type: ignore[call-overload]


def _build(folder: Path, made: dict[str, int]) -> None:
    """Write everything into a hidden folder beside ``folder``, then give it that name."""
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
    (building / declared.FILE).write_text(declaration.dumps())
    os.rename(building, folder)  # onto an empty folder too


Made = tuple[str, str, bytes, dict[str, int]]
"""Data set, path below the root, content, and what it adds to the set's counts."""


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
    severe = np.tile(labels, corrupted.SEVERITIES)
    yield corrupted.NAME, f"{corrupted.FOLDER}/labels.npy", _npy(severe), {"test": test_images}
    for kind in corrupted.CORRUPTIONS[:corruptions]:
        spoilt = invented.corruptions(pictures, kind, corrupted.SEVERITIES, seed=seed)
        yield corrupted.NAME, f"{corrupted.FOLDER}/{kind}.npy", _npy(spoilt.transpose(0, 2, 3, 1)), {}
    for table in uci.TABLES.values():
        counts = _shares(dict(table.counts), train)
        numbers = invented.table(table.name, counts, table.features, seed=seed)
        named = {str(c): n for c, n in counts.items()}
        yield table.name, f"{uci.FOLDER}/{table.file}", _lines(numbers), named
    for split, n in (("train", train), ("val", test)):
        for picture, content in _jpegs(split, n, seed):
            yield PICTURES, f"{PICTURES}/{split}/{picture}", content, {split: n}


def _tests(name: str, test: int) -> int:
    """Test images of a set: no two sets have equally many, so that kept predictions tell which set they are of."""
    return test + list(catalogue.SETS).index(name)


def _images(entry: Entry, split: str, n: int, seed: int) -> tuple[Array, Array]:
    mean, std = np.array(entry.mean), np.array(entry.std)
    return invented.images(
        entry.name, split, n, seed=seed, shape=entry.shape, classes=entry.classes, mean=mean, std=std
    )


def _shares(counts: dict[int, int], n: int) -> dict[int, int]:
    """``n`` examples in two classes as large in proportion as the published ones."""
    (first, of), (second, _) = counts.items()
    share = round(n * of / sum(counts.values()))
    return {first: share, second: n - share}


# The published formats, written


def _idx(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """MNIST's: the images' file and the labels'."""
    parts = []
    for array in (pictures[:, 0], labels):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        parts.append(gzip.compress(head + array.tobytes(), mtime=0))
    return parts


def _cifar(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """CIFAR's python batches; of CIFAR-100 the coarse labels too."""
    parts = []
    for rows in np.array_split(np.arange(len(labels)), files):
        fine = labels[rows].tolist()
        named = {"labels": fine} if classes == 10 else {"fine_labels": fine, "coarse_labels": [y // 5 for y in fine]}
        data = np.ascontiguousarray(pictures[rows].reshape(len(rows), -1))
        parts.append(pickle.dumps({"batch_label": "stand-ins", **named, "data": data}, protocol=3))
    return parts


def _svhn(pictures: Array, labels: Array, classes: int, files: int) -> list[bytes]:
    """SVHN's MATLAB file, in which the digit 0 is called 10."""
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


def _lines(numbers: Array) -> bytes:
    return "".join(" ".join(f"{v:g}" for v in row) + "\n" for row in numbers).encode()


def _jpegs(split: str, n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of every picture, a folder per class."""
    from PIL import Image

    half = np.full(3, 0.45)
    pictures, labels = invented.images(
        PICTURES, split, n, seed=seed, shape=(3, SIDE, SIDE), classes=CLASSES, mean=half, std=half / 2
    )
    for i, (picture, label) in enumerate(zip(pictures.transpose(0, 2, 3, 1), labels, strict=True)):
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(picture)).save(file, "JPEG", quality=95)
        yield f"{declared.CLASS}{label}/{split}_{i:05d}.jpg", file.getvalue()


def pictures_of(root: str | Path) -> Path:
    """What `raychains prepare` takes ``--from`` of a root of stand-ins."""
    return Path(root) / PICTURES
