"""Wrong inputs and the one line that each is; one of them as a person's shell gives it, a process and its exit
status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import made
from tests.fuzz.rules import say, tree
from tests.processes import SECONDS

CASES: list[tuple[list[str], str]] = [
    (["run", "--lr", "nan"], "lr must be a finite number above 0, got nan"),
    (["run", "--chains", "9" * 400], "chains must be an integer in [1, 10000]"),
    (["run", "--epochs", "1e3"], "epochs must be an integer, got '1e3'"),
    (["run", "--sampler-settings", "eta"], "--sampler-settings must be NAME=VALUE"),
    (["run", "--nope\x1b[31m"], "unknown option"),
    (["compare", "--store", "~nobody-here/x"], "store must be"),
    (["report", "STORE/runs/../x"], "RUN must be"),
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


@pytest.mark.parametrize(("argv", "line"), CASES, ids=[line for _, line in CASES])
def test_a_wrong_input_is_its_line(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tree(store)
    said = say([a.replace("STORE", str(store)) for a in argv])
    assert said.status == 2 and line in said.err
    assert tree(store) == before and not list(tmp_path.rglob("*"))


def test_a_process_ends_with_the_same_line_and_status(store: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    argv, line = [*CASES[7][0]], CASES[7][1]
    command = [sys.executable, "-m", "raychains.cli", *(a.replace("STORE", str(store)) for a in argv)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2 and done.stdout == "raychains evaluate: planning\n", done
    assert done.stderr.startswith("raychains: ") and done.stderr.count("\n") == 1 and line in done.stderr
