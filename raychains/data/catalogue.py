"""The image data sets: their files in torchvision's layout, published md5s, counts, shape and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from raychains.core.errors import unknown_name

Split = Literal["train", "test"]
Format = Literal["idx", "cifar", "svhn"]


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a split; the md5 is the publisher's, as in torchvision's tables."""

    name: str
    md5: str | None
    """None where none is published."""
    unpacked_md5: str | None = None
    """md5 of the same file without its ``.gz``, where known."""


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
    """Mean and standard deviation of each channel over the training pixels (the test pixels where there are no others),
    on the scale [0, 1]."""
    std: tuple[float, ...]
    torchvision: str | None = None
    """Name of torchvision's class, which can download it."""
    source: str = ""
    """For a data set that torchvision has not: what to put into ``folder``."""
    stand_in: bool = False
    """True if the files are stand-ins that the data root declares."""


_FILES = """
mnist train train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb
mnist train train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624
mnist test t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea
mnist test t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637
fashion-mnist train train-images-idx3-ubyte.gz 8d4fb7e6c68d591d4c3dfef9ec88bf0d -
fashion-mnist train train-labels-idx1-ubyte.gz 25c81989df183df01b3e8a0aad5dffbe -
fashion-mnist test t10k-images-idx3-ubyte.gz bef4ecab320f06d8554ea6380940ec79 -
fashion-mnist test t10k-labels-idx1-ubyte.gz bb300cfdad3c16e7a12a480ee83cd310 -
notmnist test t10k-images-idx3-ubyte.gz - -
notmnist test t10k-labels-idx1-ubyte.gz - -
cifar10 train data_batch_1 c99cafc152244af753f735de768cd75f -
cifar10 train data_batch_2 d4bba439e000b95fd0a9bffe97cbabec -
cifar10 train data_batch_3 54ebc095f3ab1f0389bbae665268c751 -
cifar10 train data_batch_4 634d18415352ddfa80567beed471001a -
cifar10 train data_batch_5 482c414d41f54cd18b22e5b47cb7c3cb -
cifar10 test test_batch 40351d587109b95175f43aff81a1287e -
cifar100 train train 16019d7e3df5f24257cddd939b257f8d -
cifar100 test test f0ef6b0ae62326f3e7ffdfab6717acfc -
svhn train train_32x32.mat e26dedcc434d2e4c54c9b2d4a06d8373 -
svhn test test_32x32.mat eb5a983be6a315427106f1b164d9cef3 -
"""
"""Data set, split, file, its published md5 and that of the unpacked file; - where there is none."""


def _splits(name: str) -> dict[str, tuple[File, ...]]:
    found: dict[str, tuple[File, ...]] = {}
    for row in _FILES.strip().splitlines():
        data_set, split, file, *sums = row.split()
        md5, unpacked = (None if text == "-" else text for text in sums)
        if data_set == name:
            found[split] = (*found.get(split, ()), File(name=file, md5=md5, unpacked_md5=unpacked))
    return found


def _entry(name: str, format: Format, folder: str, train: int, test: int, classes: int = 10, **rest: Any) -> Entry:
    """28×28 grey images in MNIST's format, or 32×32 colour images."""
    counts = {"train": train, "test": test} if train else {"test": test}
    about: dict[str, Any] = {"shape": (1, 28, 28) if format == "idx" else (3, 32, 32), "classes": classes, **rest}
    return Entry(name=name, format=format, folder=folder, splits=_splits(name), counts=counts, **about)


_MNIST: dict[str, Any] = {"mean": (0.1307,), "std": (0.3081,), "torchvision": "MNIST"}
_FASHION: dict[str, Any] = {"mean": (0.2860,), "std": (0.3530,), "torchvision": "FashionMNIST"}
_LETTERS: dict[str, Any] = {
    "mean": (0.4266,),
    "std": (0.4589,),
    "source": "10,000 images of letters A to J in MNIST's own file format",
}
_CIFAR10: dict[str, Any] = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616), "torchvision": "CIFAR10"}
_CIFAR100: dict[str, Any] = {
    "mean": (0.5071, 0.4865, 0.4409),
    "std": (0.2673, 0.2564, 0.2762),
    "torchvision": "CIFAR100",
}
_SVHN: dict[str, Any] = {"mean": (0.4377, 0.4438, 0.4728), "std": (0.1980, 0.2010, 0.1970), "torchvision": "SVHN"}
_ALL = (
    _entry("mnist", "idx", "MNIST/raw", 60_000, 10_000, **_MNIST),
    _entry("fashion-mnist", "idx", "FashionMNIST/raw", 60_000, 10_000, **_FASHION),
    _entry("notmnist", "idx", "notMNIST/raw", 0, 10_000, **_LETTERS),
    _entry("cifar10", "cifar", "cifar-10-batches-py", 50_000, 10_000, **_CIFAR10),
    _entry("cifar100", "cifar", "cifar-100-python", 50_000, 10_000, 100, **_CIFAR100),
    _entry("svhn", "svhn", "", 73_257, 26_032, **_SVHN),
)

SETS: dict[str, Entry] = {e.name: e for e in _ALL}


def entry(name: str) -> Entry:
    """Return the catalogue's entry.

    Raises:
        UserError: no data set has this name.
    """
    if name not in SETS:
        raise unknown_name("data set", name, SETS)
    return SETS[name]
