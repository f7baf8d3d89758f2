"""What is known of each image data set: its files in torchvision's layout, published md5s, counts, shape and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from raychains.errors import unknown_name

Split = Literal["train", "test"]
Format = Literal["idx", "cifar", "svhn"]


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a split; the md5 is the publisher's, as in torchvision's tables."""

    name: str
    md5: str | None
    """None where nobody publishes one."""
    unpacked_md5: str | None = None
    """Of the same file without its ``.gz``, where known."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One data set."""

    name: str
    format: Format
    folder: str
    """Below the data root."""
    splits: Mapping[str, tuple[File, ...]]
    counts: Mapping[str, int]
    """Images of each split."""
    shape: tuple[int, int, int]
    """(channels, height, width)"""
    classes: int
    mean: tuple[float, ...]
    """Of each channel over the training pixels (the test pixels where there are no others), on the scale [0, 1]."""
    std: tuple[float, ...]
    torchvision: str | None = None
    """Name of torchvision's class, which can download it."""
    source: str = field(default="")
    """For a data set that torchvision has not: what to put into ``folder``."""
    stand_in: bool = False
    """Whether the files are stand-ins that the data root declares."""


_Sums = tuple[str | None, str | None]
"""md5 of a file as published, and unpacked."""


def _idx(train: tuple[_Sums, _Sums] | None, test: tuple[_Sums, _Sums]) -> dict[str, tuple[File, ...]]:
    """The images' and the labels' file of each split."""
    splits = {}
    for split, stem, sums in (("train", "train", train), ("test", "t10k", test)):
        if sums is not None:
            names = (f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz")
            splits[split] = tuple(
                File(name=name, md5=packed, unpacked_md5=unpacked)
                for name, (packed, unpacked) in zip(names, sums, strict=True)
            )
    return splits


_CIFAR10 = (
    ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
    ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
    ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
    ("data_batch_4", "634d18415352ddfa80567beed471001a"),
    ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
)

_ALL = (
    Entry(
        name="mnist",
        format="idx",
        folder="MNIST/raw",
        splits=_idx(
            (
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
                ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
            ),
            (
                ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
                ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
            ),
        ),
        counts={"train": 60_000, "test": 10_000},
        shape=(1, 28, 28),
        classes=10,
        mean=(0.1307,),
        std=(0.3081,),
        torchvision="MNIST",
    ),
    Entry(
        name="fashion-mnist",
        format="idx",
        folder="FashionMNIST/raw",
        splits=_idx(
            (("8d4fb7e6c68d591d4c3dfef9ec88bf0d", None), ("25c81989df183df01b3e8a0aad5dffbe", None)),
            (("bef4ecab320f06d8554ea6380940ec79", None), ("bb300cfdad3c16e7a12a480ee83cd310", None)),
        ),
        counts={"train": 60_000, "test": 10_000},
        shape=(1, 28, 28),
        classes=10,
        mean=(0.2860,),
        std=(0.3530,),
        torchvision="FashionMNIST",
    ),
    Entry(
        name="notmnist",
        format="idx",
        folder="notMNIST/raw",
        splits=_idx(None, ((None, None), (None, None))),
        counts={"test": 10_000},
        shape=(1, 28, 28),
        classes=10,
        mean=(0.4266,),
        std=(0.4589,),
        source="10,000 images of letters A to J in MNIST's own file format",
    ),
    Entry(
        name="cifar10",
        format="cifar",
        folder="cifar-10-batches-py",
        splits={
            "train": tuple(File(name=n, md5=md5) for n, md5 in _CIFAR10),
            "test": (File(name="test_batch", md5="40351d587109b95175f43aff81a1287e"),),
        },
        counts={"train": 50_000, "test": 10_000},
        shape=(3, 32, 32),
        classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        torchvision="CIFAR10",
    ),
    Entry(
        name="cifar100",
        format="cifar",
        folder="cifar-100-python",
        splits={
            "train": (File(name="train", md5="16019d7e3df5f24257cddd939b257f8d"),),
            "test": (File(name="test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),),
        },
        counts={"train": 50_000, "test": 10_000},
        shape=(3, 32, 32),
        classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        torchvision="CIFAR100",
    ),
    Entry(
        name="svhn",
        format="svhn",
        folder="",
        splits={
            "train": (File(name="train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373"),),
            "test": (File(name="test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3"),),
        },
        counts={"train": 73_257, "test": 26_032},
        shape=(3, 32, 32),
        classes=10,
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        torchvision="SVHN",
    ),
)

SETS: dict[str, Entry] = {e.name: e for e in _ALL}


def entry(name: str) -> Entry:
    """The catalogue's entry.

    Raises:
        UserError: no data set has this name.
    """
    if name not in SETS:
        raise unknown_name("data set", name, SETS)
    return SETS[name]
