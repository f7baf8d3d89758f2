"""Pictures as they are distributed: folders of classes, ILSVRC's tar of tars, its flat val and its development kit."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from raychains.data.prepared import sources
from tests.checks import refused
from tests.data.prepared.made import CLASSES, folder_of_classes, picture


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def devkit(path: Path, numbers: list[int]) -> None:
    """As ILSVRC's: class numbers that are not in the order of WordNet ids, and synsets that are no leaves."""
    synsets = np.zeros(4, dtype=[(n, object) for n in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")])
    for row, (number, wnid, children) in enumerate([(1, "n03", 0), (2, "n01", 0), (3, "n02", 0), (4, "n99", 2)]):
        synsets[row] = (number, wnid, f"words of {wnid}", "gloss", children)
    out = io.BytesIO()
    savemat(out, {"synsets": synsets})
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "ILSVRC2012_devkit_t12/data/meta.mat", out.getvalue())
        text = "".join(f"{n}\n" for n in numbers)
        add(tar, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", text.encode())


@pytest.fixture
def ilsvrc(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / sources.TRAIN_TAR, "w") as outer:
        for k, wnid in enumerate(CLASSES):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for i in range(3):
                    add(tar, f"{wnid}_{i}.JPEG", picture(10 * k + i))
            add(outer, f"{wnid}.tar", inner.getvalue())
    with tarfile.open(tmp_path / sources.VAL_TAR, "w") as tar:
        for i in (2, 0, 1):  # in no order, as it is
            add(tar, f"ILSVRC2012_val_{i + 1:08d}.JPEG", picture(100 + i))
    devkit(tmp_path / sources.DEVKIT, [2, 3, 1])
    return tmp_path


def test_tars_of_tars_are_read_in_place(ilsvrc: Path) -> None:
    source = sources.find(ilsvrc)
    assert source.classes == ("n01", "n02", "n03") and source.words["n01"] == "words of n01"
    train = {item.name: item for item in source.splits["train"]}
    assert len(train) == 9
    for k, wnid in enumerate(CLASSES):
        for i in range(3):
            item = train[f"{wnid}/{wnid}_{i}.JPEG"]
            assert item.label == wnid and item.read() == picture(10 * k + i)


def test_val_has_the_devkits_labels_in_the_order_of_names(ilsvrc: Path) -> None:
    val = sources.find(ilsvrc).splits["val"]
    assert [i.name for i in val] == [f"ILSVRC2012_val_{i:08d}.JPEG" for i in (1, 2, 3)]
    assert [i.label for i in val] == ["n01", "n02", "n03"]
    assert [i.read() for i in val] == [picture(100 + i) for i in range(3)]


def test_folders_of_classes_are_found_below_images_too(tmp_path: Path) -> None:
    folder_of_classes(tmp_path, train=2, val=1)
    (tmp_path / "train" / "n01" / "images").mkdir()
    (tmp_path / "train" / "n01" / "images" / "more.png").write_bytes(picture(9, "PNG"))
    (tmp_path / "train" / "n01" / "boxes.txt").write_text("no picture")
    source = sources.find(tmp_path)
    assert [i.name for i in source.splits["train"] if i.label == "n01"] == [
        "n01/images/more.png", "n01/n01_0.JPEG", "n01/n01_1.JPEG",
    ]  # fmt: skip
    assert sources.labels_of(source.classes) == {"n01": 0, "n02": 1, "n03": 2}


def test_what_is_missing_is_said(ilsvrc: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    with refused("source", "train/CLASS", str(empty)):
        sources.find(empty)
    (empty / "train").mkdir()
    with refused("source", "train", "none"):
        sources.find(empty)
    (ilsvrc / sources.DEVKIT).unlink()
    with refused(sources.DEVKIT):
        sources.find(ilsvrc)
    devkit(ilsvrc / sources.DEVKIT, [1, 2])
    with refused(sources.VAL_TAR, "2", "3"):
        sources.find(ilsvrc)
    (ilsvrc / sources.DEVKIT).write_bytes(b"no archive")
    with refused(sources.DEVKIT, "development kit"):
        sources.find(ilsvrc)
    (ilsvrc / sources.TRAIN_TAR).write_bytes(b"x" * 1024)
    devkit(ilsvrc / sources.DEVKIT, [1, 2, 3])
    with refused(sources.TRAIN_TAR, "damaged"):
        sources.find(ilsvrc)


def test_a_class_of_val_alone_is_refused(tmp_path: Path) -> None:
    folder_of_classes(tmp_path, train=1, val=1)
    (tmp_path / "val" / "n77").mkdir()
    (tmp_path / "val" / "n77" / "a.jpg").write_bytes(picture(1))
    with refused("n77", "val"):
        sources.find(tmp_path)
