"""Image data sets from their files: equal to torchvision's reading, checked against the published md5s."""

from __future__ import annotations

import gc
import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from raychains.data import catalogue, sets
from raychains.data.catalogue import SETS
from tests.checks import refused
from tests.data import small

REAL = [("mnist", "train"), ("mnist", "test"), ("cifar10", "train"), ("cifar10", "test"), ("notmnist", "test")]


# The real files


@pytest.fixture(scope="module")
def torchvision_root(real_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with MNIST unpacked, as torchvision's reader wants it."""
    root = tmp_path_factory.mktemp("torchvision")
    (root / "MNIST/raw").mkdir(parents=True)
    for file in (real_root / "MNIST/raw").glob("*.gz"):
        (root / "MNIST/raw" / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    (root / "cifar-10-batches-py").symlink_to(real_root / "cifar-10-batches-py")
    return root


@pytest.mark.parametrize(("name", "split"), REAL[:4])
def test_images_and_labels_are_those_that_torchvision_reads(
    name: str, split: str, real_root: Path, torchvision_root: Path
) -> None:
    from torchvision import datasets

    found, unpacked = (sets.load(name, split, root) for root in (real_root, torchvision_root))
    assert torch.equal(found.images, unpacked.images) and found.fingerprint == unpacked.fingerprint
    kind = getattr(datasets, SETS[name].torchvision or "")
    theirs = kind(str(torchvision_root), train=split == "train", download=False)
    images = torch.as_tensor(theirs.data)
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    assert torch.equal(found.images, images) and torch.equal(found.labels, torch.as_tensor(theirs.targets))
    assert found.images.dtype == torch.uint8 and found.labels.dtype == torch.int64


def test_a_changed_unpacked_file_of_mnist_is_refused(torchvision_root: Path, tmp_path: Path) -> None:
    shutil.copytree(torchvision_root / "MNIST", tmp_path / "MNIST")
    labels = tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte"
    data = bytearray(labels.read_bytes())
    data[-1] ^= 1
    labels.write_bytes(data)
    with refused("mnist", str(labels), "27ae3e4e09519cfbb04c329615203637"):
        sets.load("mnist", "test", tmp_path)


@pytest.mark.parametrize(("name", "split"), [REAL[0], REAL[2], REAL[4]])
def test_statistics_are_those_of_the_pixels(name: str, split: str, real_root: Path) -> None:
    found = sets.load(name, split, real_root)
    images = found.images
    if name == "notmnist":
        assert images.shape == (10_000, 1, 28, 28) and found.labels.bincount().tolist() == [1000] * 10
    values = torch.arange(256, dtype=torch.float64) / 255
    for channel, (mean, std) in enumerate(zip(*sets.statistics(name), strict=True)):
        share = images[:, channel].reshape(-1).bincount(minlength=256) / images[:, channel].numel()
        exact = (share * values).sum()
        assert float(exact) == pytest.approx(mean, abs=6e-5)
        assert float((share * (values - exact) ** 2).sum().sqrt()) == pytest.approx(std, abs=6e-5)


# The catalogue


def test_md5s_are_torchvisions_own() -> None:
    from torchvision import datasets

    checked = 0
    for entry in SETS.values():
        if entry.torchvision is None:
            assert entry.source
            continue
        theirs = getattr(datasets, entry.torchvision)
        if entry.format == "idx":
            table = dict(theirs.resources)
        elif entry.format == "cifar":
            table = {name: md5 for name, md5 in theirs.train_list + theirs.test_list}
            assert entry.folder == theirs.base_folder
        else:
            table = {name: md5 for _, name, md5 in (theirs.split_list[s] for s in ("train", "test"))}
        ours = {file.name: file.md5 for files in entry.splits.values() for file in files}
        assert ours == table
        checked += len(ours)
    assert checked == 4 + 4 + 6 + 2 + 2


@pytest.mark.parametrize("name", sets.NAMES)
def test_statistics_have_a_value_per_channel(name: str) -> None:
    mean, std = sets.statistics(name)
    assert len(mean) == len(std) == SETS[name].shape[0] and min(mean) > 0 and max(std) < 0.5


# Every format, small


@pytest.mark.parametrize("name", sets.NAMES)
def test_each_format_gives_back_what_was_written(name: str, tmp_path: Path) -> None:
    entry = small.write(name, tmp_path)
    prints = set()
    for i, split in enumerate(entry.splits):
        images, labels = small.made(name, entry.counts[split], seed=i)
        found = sets.read(entry, split, tmp_path)
        assert np.array_equal(found.images.numpy(), images) and np.array_equal(found.labels.numpy(), labels)
        assert (found.name, found.classes, len(found)) == (name, entry.classes, len(labels))
        prints.add(found.fingerprint)
    assert len(prints) == len(entry.splits)


@pytest.mark.parametrize("name", sets.NAMES)
def test_a_damaged_file_is_named_with_both_md5s(name: str, tmp_path: Path) -> None:
    entry = small.write(name, tmp_path)
    file = entry.splits["test"][0]
    path = tmp_path / entry.folder / file.name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    words = ["md5", file.md5] if file.md5 else ["unpacked"]
    with refused(name, str(path), *words):
        sets.read(entry, "test", tmp_path)


def test_a_file_that_changes_after_it_was_found_right_is_checked_anew(tmp_path: Path) -> None:
    entry = small.write("cifar10", tmp_path)
    sets.read(entry, "test", tmp_path)
    path = tmp_path / entry.folder / "test_batch"
    data, changed = path.read_bytes(), path.stat().st_mtime_ns + 1
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    os.utime(path, ns=(changed, changed))
    with refused("md5", str(path)):
        sets.read(entry, "test", tmp_path)
    path.write_bytes(data)
    assert len(sets.read(entry, "test", tmp_path)) == small.TEST


def test_unpacked_small_files_are_read_and_their_counts_checked(tmp_path: Path) -> None:
    entry = small.write("fashion-mnist", tmp_path)
    packed = sets.read(entry, "train", tmp_path)
    for file in (tmp_path / entry.folder).glob("train*.gz"):
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    unpacked = sets.read(entry, "train", tmp_path)
    assert torch.equal(packed.images, unpacked.images) and packed.fingerprint == unpacked.fingerprint
    images = tmp_path / entry.folder / "train-images-idx3-ubyte"
    images.write_bytes(small.idx_bytes(packed.images[1:, 0].numpy()))
    with refused("fashion-mnist", "[30, 1, 28, 28]", "[29, 1, 28, 28]"):
        sets.read(entry, "train", tmp_path)


def test_labels_outside_the_classes_are_refused(tmp_path: Path) -> None:
    entry = small.write("notmnist", tmp_path)
    labels = tmp_path / entry.folder / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(small.idx_bytes(np.full(small.TEST, 10, dtype=np.uint8))))
    with refused("notmnist", "labels", "[0, 9]", "10"):
        sets.read(entry, "test", tmp_path)


def test_a_fingerprint_without_published_md5s_is_of_the_content(tmp_path: Path) -> None:
    entry = small.write("notmnist", tmp_path)
    first = sets.read(entry, "test", tmp_path).fingerprint
    images = tmp_path / entry.folder / "t10k-images-idx3-ubyte.gz"
    data = gzip.decompress(images.read_bytes())
    images.write_bytes(gzip.compress(data, compresslevel=1))
    assert sets.read(entry, "test", tmp_path).fingerprint == first
    images.write_bytes(gzip.compress(data[:-1] + bytes([data[-1] ^ 1])))
    assert sets.read(entry, "test", tmp_path).fingerprint != first


# load


def test_load_shares_a_set_within_a_process_while_somebody_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.SETS, "svhn", small.write("svhn", tmp_path))
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    first = sets.load("svhn", "test")
    assert sets.load("svhn", "test", tmp_path) is first and sets.load("svhn", "train") is not first
    address = first.images.data_ptr()
    del first
    gc.collect()
    assert not [s for s in sets._LOADED.values() if s.images.data_ptr() == address]


def test_unknown_names_and_splits_are_refused(tmp_path: Path) -> None:
    with refused("data set", "cifar", "did you mean 'cifar10'"):
        sets.load("cifar", "test", tmp_path)
    with refused("split", "valid", "train", "test"):
        sets.load("cifar10", "valid", tmp_path)
    with refused("split", "train", "notmnist"):
        sets.load("notmnist", "train", tmp_path)
    with refused("data set", "imagenet"):
        sets.statistics("imagenet")
