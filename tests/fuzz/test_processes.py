"""Ten of the wrong inputs as a person's shell gives them: a process, its exit status, its one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import made
from tests.fuzz.rules import tree

CASES: list[tuple[list[str], str]] = [
    (["run", "--lr", "nan"], "lr must be a finite number above 0, got nan"),
    (["run", "--chains", "9" * 400], "chains must be at most"),
    (["run", "--epochs", "1e3"], "epochs must be an integer, got '1e3'"),
    (["run", "--sampler-settings", "eta"], "sampler_settings must be NAME=VALUE"),
    (["run", "--nope\x1b[31m"], "unknown option"),
    (["compare", "--store", "~nobody-here/x"], "store must be"),
    (["report", "STORE/runs/../x"], "run must be"),
    (["evaluate", "STORE/runs/small", "--split", "no"], "split must be one of test, train, got 'no'"),
    (["report", "STORE/runs/torn"], "plan.json is damaged"),
    (["frobnicate\n"], "command must be one of"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    run = made.make(folder)
    torn = run.with_name("torn")
    torn.mkdir()
    (torn / "plan.json").write_bytes((run / "plan.json").read_bytes()[:-40])
    return folder


def test_ten_processes(store: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    before = tree(store)
    waiting = list(CASES)
    while waiting:  # two at a time: most of a process is its imports
        some, waiting = waiting[:2], waiting[2:]
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "raychains.cli", *(a.replace("STORE", str(store)) for a in argv)],
                cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for argv, _ in some
        ]  # fmt: skip
        for process, (argv, line) in zip(started, some, strict=True):
            try:
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
            assert process.returncode == 2, (argv, out, err)
            assert err.startswith("raychains: ") and err.count("\n") == 1 and err[:-1].isprintable(), err
            assert line in err and "Traceback" not in out + err
    assert tree(store) == before and not list(tmp_path.rglob("*"))
