"""Stand-ins of the published sets: read by the public readers, learnable, never taken for the real ones, made whole or
not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from raychains import tasks
from raychains.api import plans
from raychains.core.config import Run
from raychains.data import catalogue, cifar10_c, sets, standin_manifest, standins, tabular
from raychains.data.prepared import sources
from raychains.evaluation.classification import Classification
from raychains.tasks.from_options import make_task
from raychains.tasks.images import ImageTask
from tests.checks import refused
from tests.data.prepared.made import without_pictures

TRAIN, TEST = 200, 100
SPLITS = [(name, split) for name, entry in catalogue.SETS.items() for split in entry.splits]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standins.make(tmp_path_factory.mktemp("stand-ins") / "root", train=TRAIN, test=TEST)


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(root, tmp_path / "own"))


def centroid_error(train: sets.ImageSet, test: sets.ImageSet) -> float:
    """Of the nearest class mean: the plainest of all classifiers."""
    x, y = train.images.flatten(1).numpy().astype(np.float64), train.labels.numpy()
    means = np.stack([x[y == c].mean(0) for c in range(train.classes)])
    z = test.images.flatten(1).numpy().astype(np.float64)
    distance = (means**2).sum(1) - 2 * z @ means.T
    return float((distance.argmin(1) != test.labels.numpy()).mean())


# What is made


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_image_set_is_read_in_its_own_format(name: str, split: str, root: Path) -> None:
    entry, found = catalogue.SETS[name], sets.load(name, split, root)
    n = TEST + list(catalogue.SETS).index(name) if split == "test" else max(TRAIN, 5 * entry.classes)
    assert tuple(found.images.shape) == (n, *entry.shape) and found.stand_in and found.classes == entry.classes
    counts = found.labels.bincount(minlength=entry.classes)
    assert int(counts.sum()) == n and int(counts.max() - counts.min()) <= 1


def test_fingerprints_are_those_of_the_content_and_differ_from_all_others(root: Path) -> None:
    found = [sets.load(name, split, root) for name, split in SPLITS]
    prints = {data.fingerprint for data in found}
    real = {
        sets._fingerprint(catalogue.SETS[name], split, data.images.numpy(), data.labels.numpy())
        for (name, split), data in zip(SPLITS, found, strict=True)
        if name != "notmnist"  # nobody publishes its md5s: its content alone tells
    }
    assert len(prints) == len(SPLITS) and len(real) == len(SPLITS) - 1 and not prints & real
    assert {sets.content_hash(data.images.numpy(), data.labels.numpy()) for data in found} == prints


def test_real_sets_have_other_fingerprints(root: Path, real_root: Path) -> None:
    for name, split in (("mnist", "test"), ("cifar10", "test"), ("notmnist", "test")):
        real, made = sets.load(name, split, real_root), sets.load(name, split, root)
        assert real.fingerprint != made.fingerprint and made.stand_in and not real.stand_in
    for name in tabular.TABLES:
        assert (
            tabular.load(name, root).fingerprint
            != tabular.load(name, real_root).fingerprint
            == tabular.TABLES[name].md5
        )
    for name in tabular.REGRESSION_TABLES:
        assert tabular.load(name, root).fingerprint != tabular.load(name, real_root).fingerprint


@pytest.mark.parametrize("name", [n for n, entry in catalogue.SETS.items() if "train" in entry.splits])
def test_classes_can_be_learned_but_not_without_errors(name: str, root: Path) -> None:
    """Chance errs 1 − 1/classes of 100 images; the bound is more than 5 of its standard errors (3 % for ten classes)
    below."""
    error = centroid_error(sets.load(name, "train", root), sets.load(name, "test", root))
    assert 0 < error < (0.6 if catalogue.SETS[name].classes == 10 else 0.8)


def test_corruptions_are_the_test_images_and_the_harder_the_more_severe(root: Path) -> None:
    train, test = (sets.load("cifar10", split, root) for split in ("train", "test"))
    clean, prints = test.images.double(), set()
    for kind in cifar10_c.CORRUPTIONS:
        away = []
        for severity in range(1, 6):
            found = cifar10_c.corrupted(kind, severity, root)
            assert found.images.shape == (len(test), 3, 32, 32) and found.stand_in
            assert found.labels.tolist() == test.labels.tolist()
            away.append(float((found.images.double() - clean).square().mean()))
            prints.add(found.fingerprint)
        assert away == sorted(away) and away[0] > 0
        assert centroid_error(train, found) > centroid_error(train, test)
    assert len(prints) == 95


@pytest.mark.parametrize("name", [*tabular.TABLES, *tabular.REGRESSION_TABLES])
def test_tables_have_the_published_columns_and_shares_and_can_be_learned(name: str, root: Path) -> None:
    found, table = tabular.load(name, root), {**tabular.TABLES, **tabular.REGRESSION_TABLES}[name]
    assert found.features.shape == (TRAIN, table.features) and found.stand_in
    design = np.column_stack([np.ones(TRAIN), (found.features - found.features.mean(0)) / found.features.std(0)])
    weights, *_ = np.linalg.lstsq(design, found.targets, rcond=None)
    if name in tabular.REGRESSION_TABLES:
        assert 0 < (found.targets - design @ weights).var() < 0.9 * found.targets.var()
        return
    larger = table.counts[max(table.counts)] / sum(table.counts.values())
    assert abs(found.targets.mean() - larger) <= 0.5 / TRAIN
    error = ((design @ weights > 0.5) != found.targets).mean()
    assert 0 < error < min(larger, 1 - larger) - 0.05


def test_pictures_are_folders_of_classes_that_prepare_takes(root: Path) -> None:
    source = sources.find(standins.pictures_of(root))
    assert source.classes == tuple(f"stand-in-{i}" for i in range(6))
    assert {split: len(items) for split, items in source.splits.items()} == {"train": TRAIN, "val": TEST}
    with Image.open(source.splits["val"][0].file) as picture:
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (32, 32))


# What a run says


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("mnist-cnn", "mnist"), ("mnist-1v7", "mnist"), ("blr-heart", "heart"), ("uci-yacht", "yacht")],
)
def test_a_run_says_that_its_data_are_stand_ins(
    name: str, dataset: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))
    options = {} if name == "blr-heart" else {"batch_size": 20}
    planned = plans.run(Run(task=name, **options))  # type: ignore[arg-type]
    assert planned.notes.count(f"data: stand-ins, not {dataset}") == 1
    assert tasks.build(planned.comparison.task_spec).fingerprint == tasks.make(name).fingerprint


def test_a_run_on_other_data_does_not() -> None:
    assert not [note for note in plans.run(Run(task="digits")).notes if "stand-ins" in note]


@pytest.mark.parametrize(("kind", "notes"), [("stand-in-", ["data: stand-ins, not faces"]), ("n0000000", [])])
def test_a_set_that_was_prepared_of_them_says_so_too(
    kind: str, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pictures(tmp_path, "faces", [f"{kind}{i}" for i in range(6)])
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    assert list(tasks.make("imagefolder-lenet", set="faces", size=32).data_notes) == notes


def test_every_split_of_a_task_on_cifar_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))
    options = Run(task="cifar10-lenet", val_split=0.2)
    task = make_task(options, "cifar10-lenet")
    assert isinstance(task, ImageTask) and task.num_data == 160
    splits = task.splits()
    prints = {splits[name].fingerprint for name in splits if not name.startswith("corrupted:")}
    assert len(prints) == 5 == len({"test", "train", "val", "ood:svhn", "ood:cifar100"} & set(splits))
    fog, found = splits["corrupted:fog:3"], cifar10_c.corrupted("fog", 3, root)
    assert isinstance(fog, Classification) and torch.equal(fog.inputs[:], found.images)
    assert fog._labels.tolist() == found.labels.tolist()


# What is refused


def test_a_damaged_or_a_missing_stand_in_is_refused(own: Path) -> None:
    images = own / "MNIST/raw/t10k-images-idx3-ubyte.gz"
    data = images.read_bytes()
    images.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with refused("mnist", str(images), "declared", "damaged"):
        sets.load("mnist", "test", own)
    with refused(str(images), "damaged"):
        standins.make(own, train=TRAIN, test=TEST)
    images.unlink()
    with refused("mnist", str(images)):  # and nothing is downloaded
        sets.load("mnist", "test", own)
    fog = own / "CIFAR-10-C/fog.npy"
    fog.write_bytes(fog.read_bytes()[:-1] + b"?")
    with refused("cifar10-c", str(fog), "damaged"):
        cifar10_c.corrupted("fog", 2, own)
    heart = own / "uci/heart.dat"
    heart.write_bytes(heart.read_bytes().replace(b"1\n", b"2\n", 1))
    with refused("heart", str(heart), "damaged"):
        tabular.load("heart", own)


def test_a_real_file_among_stand_ins_is_refused(own: Path) -> None:
    declaration = json.loads((own / standin_manifest.FILE).read_text())
    del declaration["md5"]["test_32x32.mat"], declaration["counts"]["german"]
    (own / standin_manifest.FILE).write_text(json.dumps(declaration))
    with refused("svhn", "stand-ins", "test_32x32.mat"):
        sets.load("svhn", "test", own)
    with refused("german", "stand-ins"):
        tabular.load("german", own)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "made": {"a": "b"}, "md5": {}, "counts": {}}', '{"format": 2}']
)
def test_a_damaged_declaration_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / standin_manifest.FILE).write_text(text)
    for read in (lambda: sets.load("mnist", "test", tmp_path), lambda: standins.make(tmp_path)):
        with refused(standin_manifest.FILE, "format"):
            read()


# make


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_equal_arguments_give_equal_files_and_a_second_call_touches_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()  # empty
    assert contents(standins.make(tmp_path / "again", train=TRAIN, test=TEST)) == contents(root)
    (root / "prepared").mkdir()  # what is made of them later may lie beside them
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    assert standins.make(root, train=TRAIN, test=TEST) == root
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before
    with refused(str(root), "train", "200", "300"):
        standins.make(root, train=300, test=TEST)


def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    with refused("folder", str(tmp_path), "missing or empty"):
        standins.make(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["cifar-10-batches-py"]
    (tmp_path / "file").touch()
    with refused("folder", str(tmp_path / "file")):
        standins.make(tmp_path / "file")
    for wrong in ({"train": 19}, {"test": True}, {"seed": -1}):
        ((field, value),) = wrong.items()
        with refused(field, str(value).removeprefix("-")):
            standins.make(tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("written", [0, 12])
def test_a_killed_process_leaves_no_folder_and_the_next_call_makes_it(written: int, tmp_path: Path) -> None:
    folder = tmp_path / "root"
    child = os.fork()
    if child == 0:  # killed for real behind so many files: nothing is tidied up
        try:
            whole, count = standins._everything, iter(range(10**6))

            def some(*sizes: int):  # type: ignore[no-untyped-def]
                for made in whole(*sizes):
                    if next(count) == written:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield made

            standins._everything = some
            standins.make(folder, train=20, test=20)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    left = [p for p in tmp_path.iterdir()]
    assert not folder.exists() and len(left) == 1 and len(contents(left[0])) == written
    standins.make(folder, train=20, test=20)
    assert [p.name for p in tmp_path.iterdir()] == ["root"] and len(sets.load("mnist", "test", folder)) == 20
