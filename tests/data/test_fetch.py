"""Missing files: downloaded by torchvision in a process of its own, else one line that says what is missing and why."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from raychains.data import fetch, sets
from raychains.data.catalogue import Entry
from tests.checks import refused
from tests.data import small

WRITES = """
import pathlib, shutil, sys
name, split, folder = sys.argv[1:]
assert pathlib.Path(folder).is_dir() and (name, split) == ({name!r}, "train"), sys.argv
shutil.copytree({source!r}, folder, dirs_exist_ok=True)
"""


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    """A small CIFAR-100 that lies in the folder ``there``, from which the downloads below take it."""
    return small.write("cifar100", tmp_path / "there")


def download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str = "") -> None:
    program = WRITES.replace("{name!r}", "'CIFAR100'").replace("{source!r}", repr(str(tmp_path / "there")))
    monkeypatch.setattr(fetch, "_PROGRAM", program + then)


def test_missing_files_are_downloaded_and_put_in_place(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(monkeypatch, tmp_path)
    root = tmp_path / "new" / "root"
    found = sets.read(entry, "train", root)
    assert found.fingerprint == sets.read(entry, "train", tmp_path / "there").fingerprint
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*")) == [
        "cifar-100-python", "cifar-100-python/test", "cifar-100-python/train",
    ]  # fmt: skip


def test_what_is_there_is_not_downloaded(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_PROGRAM", "raise SystemExit('asked for')")
    assert len(sets.read(entry, "train", tmp_path / "there")) == small.TRAIN


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("raise OSError('the line is cut')", ("cifar100", "OSError: the line is cut")),
        ("(pathlib.Path(folder) / 'cifar-100-python/train').write_bytes(b'half')", ("md5",)),
        ("(pathlib.Path(folder) / 'cifar-100-python/train').unlink()", ("no file", "it did not hold this file")),
    ],
)
def test_a_download_that_fails_says_why_and_leaves_no_part_behind(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, words: tuple[str, ...]
) -> None:
    download(monkeypatch, tmp_path, f"\n{then}")
    root = tmp_path / "root"
    with refused(str(root / "cifar-100-python/train"), *words):
        sets.read(entry, "train", root)
    assert "raise" not in then or list(root.iterdir()) == []


def test_a_download_that_stalls_is_given_up(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "pid"
    monkeypatch.setattr(
        fetch, "_PROGRAM", f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    monkeypatch.setattr(fetch, "STALLED", 2.0)
    with refused("no data for 2 s", "cifar-100-python/train"):
        sets.read(entry, "train", tmp_path / "root")
    if started.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)


def test_two_that_miss_the_same_download_it_once(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    download(monkeypatch, tmp_path, f"\nopen({str(count)!r}, 'a').write('x')\nimport time\ntime.sleep(.3)")
    found: list[int] = []
    read = lambda: found.append(len(sets.read(entry, "train", tmp_path / "root")))  # noqa: E731
    threads = [threading.Thread(target=read) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [small.TRAIN] * 3 and count.read_text() == "x"


def test_a_root_that_may_not_be_written_is_left_alone(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(monkeypatch, tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o555)
    try:
        with refused("cifar100", str(root / "cifar-100-python/train"), "not writable"):
            sets.read(entry, "train", root)
        assert list(root.iterdir()) == []
    finally:
        root.chmod(0o755)


def test_sets_that_torchvision_has_not_say_what_to_put_where(tmp_path: Path) -> None:
    entry = small.write("notmnist", tmp_path / "there")
    path = tmp_path / "notMNIST/raw/t10k-images-idx3-ubyte.gz"
    with refused("notmnist", str(path), "1 more", "letters A to J"):
        sets.read(entry, "test", tmp_path)


def test_torchvision_is_asked_for_the_right_data_set(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real program with torchvision's downloads replaced: the call, the folder and the reason all come through."""
    fake = tmp_path / "fake"
    (fake / "torchvision").mkdir(parents=True)
    (fake / "torchvision/__init__.py").write_text("")
    (fake / "torchvision/datasets.py").write_text(
        "import socket, shutil\n"
        "def CIFAR100(root, train, download):\n"
        "    assert download and train and socket.getdefaulttimeout() <= 30\n"
        f"    shutil.copytree({str(tmp_path / 'there')!r}, root, dirs_exist_ok=True)\n"
        "def SVHN(root, split, download):\n    raise RuntimeError(f'asked for {split}')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{fake}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert len(sets.read(entry, "train", tmp_path / "root")) == small.TRAIN
    svhn = small.write("svhn", tmp_path / "elsewhere")
    with refused("svhn", "RuntimeError: asked for test", str(tmp_path / "root/test_32x32.mat")):
        sets.read(svhn, "test", tmp_path / "root")
    assert socket.getdefaulttimeout() is None and "torchvision.fake" not in sys.modules
