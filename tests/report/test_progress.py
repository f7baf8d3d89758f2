"""Progress of calls from Python: lines in a log, bars in a terminal. The live view of a notebook: tests/examples/test_quickstart.py."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import raychains as rc
from raychains.planning.events import Evaluating, ViewDone
from raychains.planning.presets import default_arms
from raychains.report.terminal import Terminal

SECONDS = 900.0
CALL = "rc.run(task='digits', chains=2, repeats=2, epochs=12, cycles=2, batch_size=100, name={name!r}, resume=True, store='runs'{more})"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("progress")


def test_lines_on_standard_error_where_there_is_no_terminal(folder: Path) -> None:
    code = f"import raychains as rc; print(type({CALL.format(name='r', more='')}).__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Result\n", "standard output belongs to the script"
    said = done.stderr
    order = [
        "digits: the plan",
        "starting Ray on this machine",
        "Ray is up: ",
        "1 of 2 repeats: Error (%)",
        "2 of 2 repeats",
    ]
    at = [said.find(text) for text in order]
    assert -1 not in at and at == sorted(at) and "\x1b" not in said


def test_bars_in_a_terminal_name_arm_repeat_and_chain(folder: Path) -> None:
    """The chains are gone from the store, so that they run; the terminal is a real one, 100 columns wide."""
    code = f"import raychains as rc; {CALL.format(name='terminal', more=', epochs=300, seed=5').replace('epochs=12, ', '')}"
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        stderr=other,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "100"},
    )
    os.close(other)
    said = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        said += data
    assert process.wait(SECONDS) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    assert re.search(r"cSGHMC, repeat [12], chain [12]", text) and "━" in text
    assert not re.search(r"chain [0-9a-f]{12}", text)


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [(140, "chain s", "nothing"), (80, "ECE (%)", "chain s"), (50, "Error (%)", "ECE (%)")],
)
def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers(width: int, shown: str, left_out: str) -> None:
    """Costs go first, then the last metrics; no number is broken over two lines."""
    comparison = default_arms.compare(rc.Compare(task="digits", epochs=8, cycles=2, chains=2, repeats=2)).comparison
    said = io.StringIO()
    with Terminal(Console(file=said, width=width)) as terminal:
        terminal.on(Evaluating(comparison=comparison))
        for arm in comparison.arms:
            values = {"error": 0.1, "nll": 0.23, "ece": 0.2, "brier": 0.1}
            terminal.on(ViewDone(arm=arm.name, group=0, metrics=[values, values], chain_seconds=1.0))
        terminal.table()
    table = said.getvalue().partition("arm ")[2]
    assert shown in table and left_out not in table
    rows = [line for line in table.splitlines() if "SGLD" in line or "SGHMC" in line]
    assert len(rows) == len(comparison.arms) and all("10.00 ± 0.00" in row for row in rows)
    assert max(map(len, said.getvalue().splitlines()[-len(rows) - 4 :])) <= width
