"""No name leaves the store, whatever it is made of."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from raychains.core.errors import RaychainsError, UserError
from raychains.store import ChainStore, RunStore, Storage
from tests.checks import refused

ESCAPES = [
    "",
    ".",
    "..",
    "/",
    "/etc/x",
    "../x",
    "a/..",
    "a/../../x",
    "a/./x",
    "./x",
    "a//x",
    "a/",
    "//x",
    "a\\..\\x",
    "\\x",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "a/\x7f",
    "a\x85b",
    "a\x00",
    "a\n",
    "\ud800",
    "x" * 201,
    "é" * 101,
]
METHODS: dict[str, Callable[[Storage, str], Any]] = {
    "publish": lambda r, n: r.publish(n, b"x"),
    "create": lambda r, n: r.create(n, b"x"),
    "read": lambda r, n: r.read(n),
    "read_range": lambda r, n: r.read_range(n, 0, 1),
    "size": lambda r, n: r.size(n),
    "exists": lambda r, n: r.exists(n),
    "names": lambda r, n: r.names(n),
    "modified": lambda r, n: r.modified(n),
    "delete": lambda r, n: r.delete(n),
}
# Made of what escapes are made of, and of anything else.
pieces = st.sampled_from(
    ["..", ".", "", "/", "//", "\\", "\0", "~", "a", "b.c", " ", "%2e%2e", "%2f", "．．", "∕", "\u202e", "$HOME", "C:"]
)
hostile = st.one_of(
    st.lists(pieces, max_size=8).map("".join), st.lists(pieces, max_size=6).map("/".join), st.text(max_size=30)
)


@pytest.mark.parametrize("method", METHODS)
def test_names_that_are_none_are_refused_by_every_method(tmp_path: Path, method: str) -> None:
    (tmp_path / "x").write_text("mine")
    for name in ESCAPES:
        with refused("name"):
            METHODS[method](Storage(tmp_path / "store"), name)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def outside(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if "store" not in p.relative_to(folder).parts[:1]}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=hostile)
def test_whatever_is_published_lies_inside_and_comes_back(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("mine")
    before, base = outside(tmp_path), tmp_path / "store" / "deep" / "er"
    root = Storage(base)
    try:
        root.publish(name, b"data")
    except (UserError, IsADirectoryError, NotADirectoryError, FileExistsError):  # the others: taken as a folder before
        assert outside(tmp_path) == before
        return
    assert outside(tmp_path) == before
    real = Path(os.path.realpath(base / name))
    assert real.is_relative_to(os.path.realpath(base)) and real.read_bytes() == b"data"
    assert root.read(name) == b"data"
    root.delete(name)
    assert not root.exists(name)


@settings(max_examples=120, deadline=None)
@given(name=hostile)
def test_whatever_is_published_elsewhere_lies_under_the_prefix(name: str) -> None:
    memory, _ = fs.FileSystem.from_uri("mock:///")
    root = Storage("mock:///bucket/store", memory)
    try:
        root.publish(name, b"data")
    except UserError:
        assert memory.get_file_info("bucket/store").type is fs.FileType.NotFound
        return
    found = memory.get_file_info(fs.FileSelector("", recursive=True))
    files = [i.path.lstrip("/") for i in found if i.type is fs.FileType.File]
    assert files == [f"bucket/store/{name}"]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=hostile, file=hostile)
def test_no_runs_name_and_no_file_of_a_run_leaves_its_folder(tmp_path: Path, name: str, file: str) -> None:
    root = Storage(tmp_path / "store")
    try:
        run = RunStore(root, name)
    except UserError:
        run = RunStore(root, "run")
    try:
        run.write_file(file, b"x")
    except (UserError, IsADirectoryError, NotADirectoryError, FileExistsError):
        pass
    else:
        written = Path(os.path.realpath(tmp_path / "store" / "runs" / run.name / file))
        assert written.is_relative_to(os.path.realpath(tmp_path / "store" / "runs" / run.name)) and written.is_file()
    assert {p.name for p in tmp_path.iterdir()} <= {"store"}
    assert not (tmp_path / "store").exists() or {p.name for p in (tmp_path / "store").iterdir()} <= {"runs"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(digest=hostile, file=hostile)
def test_a_digest_and_a_file_from_somebodys_index_lead_nowhere_else(tmp_path: Path, digest: str, file: str) -> None:
    """Both are data that a store holds, so anybody may have written them."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    root = Storage(tmp_path / "store")
    root.publish("chains/x/spec.json", b"{}")
    assume("secret" not in (digest, file))
    for path in (file, f"../{file}", f"../../../secret{file}", "../../../secret", str(secret)):
        try:
            found = ChainStore(root, digest).read_sample(path)
        except (RaychainsError, OSError):
            continue
        assert found != b"secret"


@pytest.mark.parametrize(
    "name", ["a", "a/b", ".hidden", "a b", "größe", "..a", "a..b", "...", "~", "-rf", "x" * 200, "a/.x.b"]
)
def test_other_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    Storage(tmp_path).publish(name, b"x")
    assert (tmp_path / name).read_bytes() == b"x"
