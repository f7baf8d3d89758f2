"""Progress of calls from Python: lines in a log, bars in a terminal, a view in a notebook (in a kernel:
tests/examples/test_quickstart.py)."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython.display
import pytest
from rich.console import Console

import raychains as rc
from raychains.api import plans
from raychains.planning.events import ChainStatus, Evaluating, Ready, Tick, ViewDone
from raychains.report import console
from raychains.report.terminal import Terminal
from tests.pool import unpaged

SECONDS = 900.0
SMALL: dict[str, Any] = {"task": "digits", "repeats": 2, "cycles": 2, "batch_size": 100, "store": "runs"}
SMALL |= {"concurrent": 1, "evaluators": 1}  # as few processes as there can be


def in_order(said: str, *texts: str) -> None:
    """The lines have these texts one after another, and no control sequence of a terminal."""
    at = [said.find(text) for text in texts]
    assert -1 not in at and at == sorted(at) and "\x1b" not in said


@pytest.mark.long
def test_lines_on_standard_error_where_there_is_no_terminal(tmp_path: Path) -> None:
    code = "import raychains as rc; from raychains.report import run_page; run_page.write = lambda *_: None; "
    code += f"print(type(rc.run(chains=1, epochs=12, **{SMALL})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Result\n", "standard output belongs to the script"
    begin = ("digits: the plan", "starting Ray on this machine", "Ray is up: ")
    in_order(done.stderr, *begin, "1 of 2 repeats: Error (%)", "2 of 2 repeats")


def test_lines_of_a_run_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with unpaged():
        rc.run(chains=1, epochs=12, backend="process", **{k: v for k, v in SMALL.items() if k != "concurrent"})
    said, begin = capsys.readouterr(), ("digits: the plan", "in this process, without Ray: 1 slot of 1 CPU")
    in_order(said.err, *begin, "1 of 2 repeats: Error", "2 of 2 repeats")
    assert said.out == ""


@pytest.mark.usefixtures("ray_session")
def test_bars_in_a_terminal_name_arm_repeat_and_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is a real one, 100 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    main, other = pty.openpty()
    said: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while data := os.read(main, 65536):
                said.append(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(other, "w") as terminal, monkeypatch.context() as patch, unpaged():
        patch.setattr(sys, "stderr", terminal)
        rc.run(chains=2, epochs=480, **SMALL)  # long enough to be shown on a fast machine
    reader.join(SECONDS)
    os.close(main)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(said).decode())
    assert re.search(r"cSGHMC, repeat [12], chain [12]", text) and "━" in text
    assert not re.search(r"chain [0-9a-f]{12}", text)


def test_a_notebooks_view_is_drawn_in_one_place_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    drawn: list[str] = []

    def display(html: Any, *, display_id: bool = False, **_: Any) -> Any:
        if display_id:
            begun.append(html.data)
        return SimpleNamespace(update=lambda html: drawn.append(html.data))

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(console, "REDRAWN_EVERY", 0.0)
    comparison = plans.run(rc.Run(task="digits", epochs=8, cycles=2, chains=2, repeats=2)).comparison
    [digest, *_] = comparison.chains()
    running = [
        ChainStatus(digest=digest, slot=0, step=5, steps=10, cycle=0, stage="sampling", loss=loss, seconds=1.0)
        for loss in (0.75, 0.5)
    ]
    with Terminal(Console(force_jupyter=True)) as terminal:
        terminal.on(Evaluating(comparison=comparison))
        terminal.on(Ready(slots=1, slot="1 CPU"))
        about = {"finished": 0, "chains": 4, "evaluated": 0, "to_evaluate": 1, "remaining_seconds": None}
        for chain in running:
            terminal.on(Tick(running=[chain], **about))
    [first], (second, last) = begun, drawn
    assert "repeat 1, chain 1" in first and "loss 0.7500" in first and "loss 0.5000" in second
    assert last == "", "the view is removed"


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [(140, "chain s", "nothing"), (80, "ECE (%)", "chain s"), (50, "Error (%)", "ECE (%)")],
)
def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers(width: int, shown: str, left_out: str) -> None:
    """Costs go first, then the last metrics; no number is broken over two lines."""
    comparison = plans.compare(rc.Compare(task="digits", epochs=8, cycles=2, chains=2, repeats=2)).comparison
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
