"""A run's folder: names that stay inside the store, plans, tables, and the path that people give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import raychains as rc
from raychains.store import RunStore, Storage, check_run_name, split_run_path
from tests.checks import refused

ESCAPES = [
    "", ".", "..", "../x", "a/../../x", "/etc", "/", "a/b", "a\\b", ".hidden", "-rf", "_x", "a "
                                                                                            "b", "a\n", "a\0b", "a\tb",
    "\x1b[31m", "größe", "１", "~", "~root", "a" * 101, "s3://b", "$HOME", "a;b", "*", "a%2fb",
]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES, ids=ascii)
def test_names_that_could_leave_the_store_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with refused("name"):
        check_run_name(name)
    with refused("name"):
        RunStore(Storage(tmp_path), name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "digits-1a2b3c4d", "A.b_c-9", "0", "x" * 100, "a..b"])
def test_a_plan_comes_back_and_plain_names_are_taken_as_they_are(name: str, tmp_path: Path) -> None:
    run = RunStore(Storage(tmp_path), name)
    assert not run.exists()
    run.write_plan({"comparison": {"arms": [1, "θ"]}})
    assert run.plan() == {"comparison": {"arms": [1, "θ"]}}, "without its format's number"
    assert run.exists() and (tmp_path / "runs" / name / "plan.json").is_file()
    assert run.location() == f"{tmp_path}/runs/{name}"


@pytest.mark.parametrize("number", [0, 2, 99, "1", None, True])
def test_a_plan_of_another_format_is_refused(tmp_path: Path, number: object) -> None:
    run = RunStore(Storage(tmp_path), "mine")
    run.root.publish("runs/mine/plan.json", json.dumps({"format": number}).encode())
    with refused("mine", "format", repr(number).strip("'")):
        run.plan()


def test_a_run_without_its_plan_is_not_among_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "runs" / "begun").mkdir(parents=True)
    RunStore(Storage(tmp_path), "whole").write_plan({})
    with refused(
        f"run must be one with a plan, got '{tmp_path}/runs/begun'", f"{tmp_path}/runs/begun/plan.json is missing"
    ):
        RunStore(Storage(tmp_path), "begun").plan()
    with refused(f"run must be one of the runs in {tmp_path}: whole, got '{tmp_path}/runs/begin'"):
        RunStore(Storage(tmp_path), "begin").plan()
    with refused(f"run must be one of the runs in {tmp_path}: whole, got 'it/runs/begin'"):
        RunStore(Storage(tmp_path), "begin").plan("it/runs/begin")


LONG_NAME, LONG_PATH = "x" * 300, "/".join(["y" * 100] * 60)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda at: rc.run(store=None), ("store must be a text, got None",)),
        (lambda at: rc.run(store=f"{at}/{LONG_NAME}"), ("store must be a path of at most", "parts have at most 255")),
        (lambda at: rc.run(store=f"{at}/{LONG_PATH}"), ("store must be a path of at most",)),
        (lambda at: rc.load(f"{at}/{LONG_NAME}/runs/a"), ("store must be a path of at most",)),
        (lambda at: rc.run(store=str(at), name="n" * 300), ("name must be 1 to 100 letters",)),
        (lambda at: rc.run(store=str(at), data_root=f"{at}/{LONG_NAME}"), ("data_root must be an existing folder",)),
        (lambda at: rc.run(store=str(at), init_from=f"{at}/{LONG_NAME}"), ("init_from must be a file",)),
        (lambda at: rc.run(store=str(at), log=f"{at}/{LONG_NAME}"), ("log must be a local file",)),
        (lambda at: rc.load(None), ("run must be a path of the form STORE/runs/NAME, got None",)),
        (lambda at: rc.evaluate(3), ("run must be a path of the form STORE/runs/NAME, got 3",)),
        (lambda at: rc.load(at / "runs" / "a"), ("run must be one of the runs in", "none yet")),
    ],
    ids=range(11),
)
def test_paths_that_are_none_are_one_line_before_anything_is_written(
    call: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(*words):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_run_suggests_the_nearest(tmp_path: Path) -> None:
    for name in ("digits-1a2b3c4d", "mixture25-77"):
        RunStore(Storage(tmp_path), name).write_plan({})
    with refused("run", "did you mean 'digits-1a2b3c4d'"):
        RunStore(Storage(tmp_path), "digits-1a2b3c4e").plan()


def test_tables_come_back_and_what_was_never_written_is_none(tmp_path: Path) -> None:
    run = RunStore(Storage(tmp_path), "a")
    rows = [{"arm": "x", "error": 0.5, "samples": 3}, {"arm": "y", "error": None, "samples": 4}]
    assert run.table("results") is None
    run.write_table("results", rows)
    run.write_arrow("rows", pa.table({"p": [0.5, 0.25]}))
    results, columns = run.table("results"), run.table("rows")
    assert results is not None and results.to_pylist() == rows
    assert columns is not None and columns.to_pydict() == {"p": [0.5, 0.25]}


def test_files_lie_in_the_runs_folder(tmp_path: Path) -> None:
    where = RunStore(Storage(tmp_path), "a").write_file("figures/x.svg", b"<svg/>")
    assert where == f"{tmp_path}/runs/a/figures/x.svg" and Path(where).read_bytes() == b"<svg/>"


@pytest.mark.parametrize(
    ("path", "store", "name"),
    [
        ("runs/runs/digits", "runs", "digits"),
        ("runs/digits", ".", "digits"),
        ("./runs/digits", ".", "digits"),
        ("/data/store/runs/digits/", "/data/store", "digits"),
        ("/data/runs/runs/runs/x", "/data/runs/runs", "x"),
        ("s3://bucket/prefix/runs/digits", "s3://bucket/prefix", "digits"),
    ],
)
def test_a_runs_path_splits_into_store_and_name(path: str, store: str, name: str) -> None:
    assert split_run_path(path) == (store, name)


@pytest.mark.parametrize(
    "path", ["", "digits", "/", "runs", "runs/", "store/digits", "store/runs", "store/runs/", "store/runs/a/b"]
)
def test_another_path_is_refused_with_the_form_that_is_wanted(path: str) -> None:
    with refused("run", "STORE/runs/NAME", path):
        split_run_path(path)


@pytest.mark.parametrize(
    "path", ["x/runs/..", "x/runs/../runs/../..", "x/runs/a\\..\\b", "x/runs/.\x00", "runs/.hidden"]
)
def test_a_path_out_of_the_store_names_no_run(path: str) -> None:
    with refused():
        RunStore(Storage("/nowhere-at-all"), split_run_path(path)[1])


def test_what_location_says_is_a_path_that_splits_again(tmp_path: Path) -> None:
    for uri in (str(tmp_path), f"file://{tmp_path}"):
        assert split_run_path(RunStore(Storage(uri), "a").location()) == (uri, "a")
