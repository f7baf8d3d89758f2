"""Publishing is whole or not at all, a store is a folder, and any pyarrow filesystem will do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raychains.core.errors import StorageRefused
from raychains.core.retry import Patience
from raychains.store import Storage
from tests.checks import refused


def everything(folder: Path) -> list[str]:
    """Every file below, hidden ones as well."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


ROOTS: dict[str, Callable[[Path], str]] = {
    "path": str,
    "uri": lambda folder: f"file://{folder}",
    "in memory": lambda folder: "mock:///store",
}
roots = pytest.mark.parametrize("kind", list(ROOTS))


def test_a_hash_in_a_uri_is_written_as_what_it_is(tmp_path: Path) -> None:
    """What follows it would be cut off: two stores would be one."""
    with refused("store", "%23", f"file://{tmp_path}/a#1"):
        Storage(f"file://{tmp_path}/a#1")
    Storage(f"file://{tmp_path}/a%231").publish("x", b"1")
    assert (tmp_path / "a#1" / "x").exists()


@pytest.fixture
def root(kind: str, tmp_path: Path) -> Storage:
    return Storage(ROOTS[kind](tmp_path / "store"))


def files_come_and_go(root: Storage) -> None:
    """What every store does; a/b/empty is left."""
    data = bytes(range(256))
    root.publish("a/b/x.bin", b"a first version that is longer than the second one" * 9)
    root.publish("a/b/x.bin", data)
    root.publish("a/b/empty", b"")
    assert root.read("a/b/x.bin") == data and root.read("a/b/empty") == b""
    assert root.exists("a/b/x.bin") and not root.exists("a/b") and not root.exists("a/b/y.bin")
    assert (root.size("a/b/x.bin"), root.size("a/b/y.bin")) == (256, 0)
    assert root.names("a/b") == ["empty", "x.bin"] and root.names("a/c") == []
    assert root.read_range("a/b/x.bin", 10, 5) == data[10:15] and root.read_range("a/b/x.bin", 250, 99) == data[250:]
    root.delete("a/b/x.bin")
    root.delete("a/b/x.bin")
    assert root.names("a/b") == ["empty"]
    with pytest.raises(FileNotFoundError):
        root.read("a/b/x.bin")


@roots
def test_what_is_published_is_read_back_listed_and_deleted(root: Storage) -> None:
    files_come_and_go(root)


@roots
def test_names_hide_temporary_files(root: Storage) -> None:
    root.publish("a/.x.bin.0123", b"torn")
    root.publish("a/x.bin", b"whole")
    assert root.names("a") == ["x.bin"]


# Locally


def full_disk(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("before", [None, b"the version before"])
def test_a_failing_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, before: bytes | None
) -> None:
    root = Storage(tmp_path)
    if before is not None:
        root.publish("a/x", before)
    with monkeypatch.context() as broken, refused("full", f"{tmp_path}/a/x", "intact", "`resume=True`"):
        broken.setattr(os, call, full_disk)
        with pytest.raises(StorageRefused) as caught:
            root.publish("a/x", b"new")
        raise caught.value
    assert everything(tmp_path) == ([] if before is None else ["a/x"])
    if before is not None:
        assert root.read("a/x") == before


def test_ctrl_c_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Storage(tmp_path).publish("x", b"data")
    assert everything(tmp_path) == []


def test_the_file_and_then_its_folder_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename is durable only once its folder is; a name must never be durable before its bytes."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("folders cannot be told by their descriptor")
    steps: list[str] = []
    real = os.fsync, os.replace

    def fsync(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").resolve()
        steps.append(path.name if path.is_dir() else "file")
        real[0](number)

    def replace(source: Any, target: Any) -> None:
        steps.append("rename")
        assert Path(source).parent == Path(target).parent, "a rename across filesystems is no rename"
        real[1](source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    Storage(tmp_path).publish("a/x", b"data")
    assert steps == [tmp_path.name, "file", "rename", "a"], "the new folder's own name is forced too"


def test_location_is_for_people(tmp_path: Path) -> None:
    assert Storage(tmp_path).location("runs/a") == f"{tmp_path}/runs/a"
    assert Storage(f"file://{tmp_path}/").location("runs/a") == f"file://{tmp_path}/runs/a"


def test_a_relative_path_stays_the_same_folder_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = Storage("store")
    monkeypatch.chdir("/")
    root.publish("x", b"1")
    assert everything(tmp_path) == ["store/x"] and root.uri == str(tmp_path / "store")


# Elsewhere


class Torn:
    """An output stream whose write fails half-way, as pyarrow's do: what was written is published all the same."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Torn:
        return self

    def write(self, data: bytes) -> None:
        self._inner.write(data[: len(data) // 2])
        raise OSError("the connection broke")

    def __exit__(self, *_: object) -> None:
        self._inner.close()


def test_a_failing_upload_leaves_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Storage("mock:///store", patience=Patience(total=0))
    whole = root._fs

    class Flaky:
        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

        def open_output_stream(self, path: str) -> Torn:
            return Torn(whole.open_output_stream(path))

    monkeypatch.setattr(root, "_fs", Flaky())
    with refused("connection"):
        root.publish("a/x", b"12345678")
    assert not root.exists("a/x") and root.names("a") == []


# What is no store


@pytest.mark.parametrize("form", [str, lambda p: f"file://{p}"], ids=["path", "uri"])
@pytest.mark.parametrize("below", ["", "inside", "far/below"])
def test_a_file_is_no_store_nor_a_folder_of_one(tmp_path: Path, form: Callable[[Path], str], below: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with refused("store", "folder", str(tmp_path / "notes.txt")):
        Storage(form(tmp_path / "notes.txt" / below))
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "https://example.com/x"])
def test_a_uri_that_pyarrow_does_not_know_is_refused(uri: str) -> None:
    with refused("store", uri):
        Storage(uri)


def test_object_storage_without_a_bucket_is_refused() -> None:
    with refused("store", "bucket"):
        Storage("s3://")


def test_looking_at_a_store_makes_no_folder(tmp_path: Path) -> None:
    root = Storage(tmp_path / "new")
    assert root.names("chains") == [] and not root.exists("runs/a/plan.json")
    assert list(tmp_path.iterdir()) == []
