"""The image data sets as whole tensors of bytes, read from torchvision's on-disk layout without importing torchvision."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from raychains.data import catalogue, declared, fetch
from raychains.data.catalogue import Entry, File
from raychains.data.checksums import read_checked
from raychains.data.cifar import read_batch
from raychains.data.idx import read_idx
from raychains.data.root import data_root
from raychains.data.svhn import read_mat
from raychains.errors import UserError, require

NAMES = tuple(catalogue.SETS)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One split of a data set. Its tensors are shared by all who load it in a process: read them only."""

    name: str
    images: Tensor
    """uint8 [n, channels, height, width]"""
    labels: Tensor
    """int64 [n], in [0, classes)"""
    classes: int
    fingerprint: str
    """Identifies the content, equal on all machines: a hash of the published md5s, or of the content without such."""
    stand_in: bool = False
    """Whether this is a stand-in of the published set (`raychains.data.standins`)."""

    def __len__(self) -> int:
        return len(self.labels)


_LOADED: weakref.WeakValueDictionary[tuple[str, str, str], ImageSet] = weakref.WeakValueDictionary()


def load(name: str, split: str, root: str | Path | None = None) -> ImageSet:
    """One split of the data set ``name``; tasks in one process that need the same share it.

    Files that are missing are downloaded through torchvision, where that has the data set and the network allows it.

    Args:
        name: one of `NAMES`.
        split: ``train`` or ``test``; ``notmnist`` has ``test`` alone.
        root: the data root; None is `raychains.data.root.data_root`'s choice.

    Raises:
        UserError: an unknown name or split; a file that is missing, damaged, or whose md5 is not the published one.
    """
    entry = catalogue.entry(name)
    require(split in entry.splits, "split", split, f"be one of {', '.join(entry.splits)} for data set {name}")
    folder = data_root(None if root is None else str(root))
    key = (name, split, str(folder))
    found = _LOADED.get(key)
    if found is None:
        stand_ins = declared.find(folder)
        if stand_ins is not None:
            entry = _declared(entry, split, stand_ins)
        found = _LOADED[key] = read(entry, split, folder)
    return found


def _declared(entry: Entry, split: str, stand_ins: declared.Declaration) -> Entry:
    """The entry of a stand-in, whose files were checked: without published md5s its fingerprint is that of its content."""
    counts = stand_ins.of(entry.name)
    for file in entry.splits[split]:
        stand_ins.check(stand_ins.root / entry.folder / file.name, entry.name)
    splits = {split: tuple(File(name=file.name, md5=None) for file in entry.splits[split])}
    return dataclasses.replace(entry, splits=splits, counts=counts, stand_in=True)


def statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, standard deviation) of each channel over the training pixels, on the scale [0, 1].

    For ``notmnist``, which has no others, over the test pixels.

    Raises:
        UserError: an unknown name.
    """
    entry = catalogue.entry(name)
    return entry.mean, entry.std


def read(entry: Entry, split: str, root: Path) -> ImageSet:
    """`load` without the process's memory: every file of ``split`` is read and checked.

    Raises:
        UserError: as `load`.
    """
    if _missing(entry, split, root):
        fetch.fetch(entry, split, root, partial(_missing, entry, split, root))
    parts = _READERS[entry.format](entry, split, root)
    images, labels = (np.concatenate(p) if len(p) > 1 else p[0] for p in zip(*parts, strict=True))
    expected = (entry.counts[split], *entry.shape)
    if images.shape != expected or labels.shape != expected[:1]:
        raise UserError(
            f"data set {entry.name}: {split} must hold images of shape {list(expected)} and as many labels, "
            f"got {list(images.shape)} and {list(labels.shape)} in {root / entry.folder}"
        )
    if labels.min() < 0 or labels.max() >= entry.classes:
        raise UserError(
            f"data set {entry.name}: labels must lie in [0, {entry.classes - 1}], "
            f"got {labels.min()} to {labels.max()} in {root / entry.folder}"
        )
    return ImageSet(
        name=entry.name,
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels),
        classes=entry.classes,
        fingerprint=_fingerprint(entry, split, images, labels),
        stand_in=entry.stand_in,
    )


def _fingerprint(entry: Entry, split: str, images: np.ndarray, labels: np.ndarray) -> str:
    sums = [file.md5 for file in entry.splits[split]]
    if None in sums:
        return content_hash(images, labels)
    return hashlib.sha256(json.dumps([entry.name, split, sums]).encode()).hexdigest()


def content_hash(images: np.ndarray, labels: np.ndarray) -> str:
    """sha256 of images and labels with their shape."""
    found = hashlib.sha256(json.dumps(images.shape).encode())
    found.update(np.ascontiguousarray(images).data)
    found.update(np.ascontiguousarray(labels).data)
    return found.hexdigest()


def _places(entry: Entry, file: File, root: Path) -> list[Path]:
    """Where a file may lie: as it is published, or unpacked."""
    path = root / entry.folder / file.name
    return [path, path.with_suffix("")] if path.suffix == ".gz" else [path]


def _missing(entry: Entry, split: str, root: Path) -> list[Path]:
    """The published paths of the split's files that lie nowhere."""
    wanted = [_places(entry, file, root) for file in entry.splits[split]]
    return [places[0] for places in wanted if not any(p.is_file() for p in places)]


def _read_idx(entry: Entry, split: str, root: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    arrays = []
    for file in entry.splits[split]:
        packed, unpacked = _places(entry, file, root)
        path, md5 = (packed, file.md5) if packed.is_file() else (unpacked, file.unpacked_md5)
        arrays.append(read_idx(read_checked(path, md5, entry.name), f"data set {entry.name}: {path}"))
    images, labels = arrays
    return [(images[:, None], labels.astype(np.int64))]


def _each(
    reader: Callable[[bytes, str], tuple[np.ndarray, np.ndarray]],
) -> Callable[[Entry, str, Path], list[tuple[np.ndarray, np.ndarray]]]:
    """Read every file of a split by ``reader``."""

    def read_all(entry: Entry, split: str, root: Path) -> list[tuple[np.ndarray, np.ndarray]]:
        parts = []
        for file in entry.splits[split]:
            (path,) = _places(entry, file, root)
            parts.append(reader(read_checked(path, file.md5, entry.name), f"data set {entry.name}: {path}"))
        return parts

    return read_all


_READERS: dict[str, Callable[[Entry, str, Path], list[tuple[np.ndarray, np.ndarray]]]] = {
    "idx": _read_idx,
    "cifar": _each(read_batch),
    "svhn": _each(read_mat),
}
