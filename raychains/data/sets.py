"""The image data sets as whole tensors of bytes, read from torchvision's on-disk layout without importing
torchvision."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core.data_root import data_root
from raychains.core.errors import UserError, require
from raychains.data import catalogue, fetch, standin_manifest
from raychains.data.catalogue import Entry, File
from raychains.data.formats import read_batch, read_checked, read_idx, read_mat

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
    """True if this is a stand-in of the published set (`raychains.data.standins`)."""

    def __len__(self) -> int:
        return len(self.labels)


_LOADED: weakref.WeakValueDictionary[tuple[str, str, str], ImageSet] = weakref.WeakValueDictionary()


def load(name: str, split: str, root: str | Path | None = None) -> ImageSet:
    """Return one split of the data set ``name``; tasks in one process that need the same share it.

    Files that are missing are downloaded through torchvision, where that has the data set and the network allows it.

    Args:
        name: one of `NAMES`.
        split: ``train`` or ``test``; ``notmnist`` has ``test`` alone.
        root: the data root; None is `raychains.core.data_root.data_root`'s choice.

    Raises:
        UserError: an unknown name or split; a file that is missing, damaged, or whose md5 is not the published one.
    """
    entry = catalogue.entry(name)
    require(split in entry.splits, "split", split, f"be one of {', '.join(entry.splits)} for data set {name}")
    folder = data_root(None if root is None else str(root))
    key = (name, split, str(folder))
    found = _LOADED.get(key)
    if found is None:
        stand_ins = standin_manifest.find(folder)
        if stand_ins is not None:
            entry = _declared(entry, split, stand_ins)
        found = _LOADED[key] = read(entry, split, folder)
    return found


def _declared(entry: Entry, split: str, stand_ins: standin_manifest.Declaration) -> Entry:
    """Return the entry of a stand-in, whose files were checked: without published md5s its fingerprint is that of its
    content."""
    counts = stand_ins.of(entry.name, split)
    for file in entry.splits[split]:
        stand_ins.check(stand_ins.root / entry.folder / file.name, entry.name)
    splits = {split: tuple(File(name=file.name, md5=None) for file in entry.splits[split])}
    return dataclasses.replace(entry, splits=splits, counts=counts, stand_in=True)


def statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (mean, standard deviation) of each channel over the training pixels, on the scale [0, 1].

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
    images, labels = _read(entry, split, root)
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
    """Return the sha256 of images and labels with their shape."""
    found = hashlib.sha256(json.dumps(images.shape).encode())
    found.update(np.ascontiguousarray(images).data)
    found.update(np.ascontiguousarray(labels).data)
    return found.hexdigest()


def _places(entry: Entry, file: File, root: Path) -> list[Path]:
    """Return the places of a file: as it is published, or unpacked."""
    path = root / entry.folder / file.name
    return [path, path.with_suffix("")] if path.suffix == ".gz" else [path]


def _missing(entry: Entry, split: str, root: Path) -> list[Path]:
    """Return the published paths of the split's files that lie nowhere."""
    files = [_places(entry, file, root) for file in entry.splits[split]]
    return [places[0] for places in files if not any(p.is_file() for p in places)]


_READERS: dict[str, Callable[[bytes, str], Any]] = {"idx": read_idx, "cifar": read_batch, "svhn": read_mat}


def _read(entry: Entry, split: str, root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a split's files, each checked."""
    parts = []
    for file in entry.splits[split]:
        published, *unpacked = _places(entry, file, root)
        packed = published.is_file() or not unpacked
        path, md5 = (published, file.md5) if packed else (unpacked[0], file.unpacked_md5)
        parts.append(_READERS[entry.format](read_checked(path, md5, entry.name), f"data set {entry.name}: {path}"))
    if entry.format == "idx":  # one file of images, one of labels
        return parts[0][:, None], parts[1].astype(np.int64)
    images, labels = (np.concatenate(p) if len(p) > 1 else p[0] for p in zip(*parts, strict=True))
    return images, labels
