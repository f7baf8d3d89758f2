"""The pictures of a set before it is prepared: folders of classes, or ILSVRC's tar files as they are distributed."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from raychains.core import bounded
from raychains.core.errors import UserError

LARGEST = 500_000_000
"""Bytes of the largest file that is taken for a picture."""
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".webp", ".tif", ".tiff")
TRAIN_TAR, VAL_TAR, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"


@dataclass(frozen=True, order=True)
class Item:
    """One picture: where its bytes are, and what it shows."""

    name: str
    """Unique in its split, e.g. n01440764/n01440764_18.JPEG; what order and names in messages come from."""
    label: str
    """Its class's name."""
    file: str
    offset: int = 0
    size: int = -1
    """-1: the whole file."""

    def read(self) -> bytes:
        """Return the picture's bytes as they are stored."""
        return bounded.read(self.file, most=LARGEST, start=self.offset, length=None if self.size < 0 else self.size)


@dataclass(frozen=True)
class Source:
    """Pictures by split, and the classes' names."""

    splits: dict[str, list[Item]]
    words: dict[str, str]
    """By class; empty where unknown."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Sorted, of all splits."""
        return tuple(sorted({item.label for items in self.splits.values() for item in items}))


def find(folder: Path) -> Source:
    """Find the pictures in ``folder``: ILSVRC's tar files, or train/ and val/ with a folder per class.

    Raises:
        UserError: neither is there, a folder cannot be read, a name is not UTF-8, a split is empty, or a class of val
            is unknown to train.
    """
    try:
        source = _found(folder)
    except OSError as error:
        raise UserError(
            f"source must be a folder that can be read, got {str(folder)!r}: {error.strerror or error}"
        ) from None
    for split, items in source.splits.items():
        for item in items:
            if not _is_text(item.name) or not _is_text(item.file):
                raise UserError(f"source must have names in UTF-8, got {item.name!r} in {split}")
        if not items:
            raise UserError(f"source must hold pictures of the split {split}, got none in {str(folder)!r}")
        new = {i.label for i in items} - {i.label for i in source.splits["train"]}
        if new:
            raise UserError(f"source must hold the same classes in train and {split}, got {min(new)!r} in {split} only")
    return source


def _is_text(name: str) -> bool:
    """Return whether a file's name is UTF-8: other bytes come from the system as halves of surrogate pairs."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def _found(folder: Path) -> Source:
    if (folder / TRAIN_TAR).is_file():
        source = _ilsvrc(folder)
    elif (folder / "train").is_dir():
        splits = {s: _folder_of_classes(folder / s) for s in ("train", "val", "test") if (folder / s).is_dir()}
        source = Source(splits, {})
    else:
        raise UserError(
            f"source must hold {TRAIN_TAR}, {VAL_TAR} and {DEVKIT}, or train/CLASS/*.jpg and val/CLASS/*.jpg, got "
            f"{str(folder)!r}"
        )
    return source


def _folder_of_classes(folder: Path) -> list[Item]:
    return [
        Item(f"{kind.name}/{file.relative_to(kind).as_posix()}", kind.name, str(file))
        for kind in sorted(p for p in folder.iterdir() if p.is_dir())
        for file in sorted(kind.rglob("*"))  # Tiny ImageNet has CLASS/images/*
        if file.suffix.lower() in SUFFIXES and file.is_file()
    ]


def _ilsvrc(folder: Path) -> Source:
    for name in (VAL_TAR, DEVKIT):
        if not (folder / name).is_file():
            raise UserError(f"source must hold {name} beside {TRAIN_TAR}, got {str(folder)!r} without it")
    wnids, words, truth = _devkit(folder / DEVKIT)
    val = sorted(_members(folder / VAL_TAR, 0))
    if len(val) != len(truth):
        raise UserError(
            f"{VAL_TAR} must hold {len(truth)} pictures, one per line of the devkit's labels, got {len(val)}"
        )
    labels = [wnids[number] for number in truth]
    return Source(
        {
            "train": sorted(_tars_in(folder / TRAIN_TAR)),
            "val": [Item(n, label, str(folder / VAL_TAR), o, s) for (n, o, s), label in zip(val, labels, strict=True)],
        },
        words,
    )


def _tars_in(file: Path) -> Iterator[Item]:
    """Yield the pictures of a tar of one tar per class, by their places in it: it is not unpacked."""
    for name, offset, _ in _members(file, 0):
        wnid = Path(name).stem
        for picture, at, size in _members(file, offset):
            yield Item(f"{wnid}/{picture}", wnid, str(file), at, size)


def _members(file: Path, offset: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, place in the file and size of each member of the tar that begins at ``offset``."""
    with bounded.opened(file) as f:
        f.seek(offset)
        try:
            with tarfile.open(fileobj=f, mode="r:") as tar:
                for member in tar:
                    if member.isfile():
                        yield Path(member.name).name, member.offset_data, member.size
        except tarfile.TarError as error:
            raise UserError(
                f"{file} must be a tar file as ILSVRC distributes it, got a damaged one at byte {offset}: {error}"
            ) from None


def _devkit(file: Path) -> tuple[dict[int, str], dict[str, str], list[int]]:
    """Return class number → WordNet id, id → words, and the number of each val picture, from the development kit."""
    from scipy.io import loadmat

    try:
        with tarfile.open(file) as tar:
            names = {Path(m.name).name: m for m in tar if m.isfile()}
            meta = tar.extractfile(names["meta.mat"])
            truth = tar.extractfile(names["ILSVRC2012_validation_ground_truth.txt"])
            assert meta is not None and truth is not None
            synsets = loadmat(meta, squeeze_me=True)["synsets"]
            leaves = [s for s in synsets if int(s["num_children"]) == 0]
            wnids = {int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in leaves}
            words = {str(s["WNID"]): str(s["words"]) for s in leaves}
            return wnids, words, [int(line) for line in truth.read().split()]
    except (tarfile.TarError, KeyError, ValueError, OSError) as error:
        raise UserError(f"{file} must be ILSVRC's development kit, got a file without its labels ({error!r})") from None


def labels_of(classes: Sequence[str]) -> dict[str, int]:
    """Return each class's label: its rank among the sorted names."""
    return {name: i for i, name in enumerate(sorted(classes))}
