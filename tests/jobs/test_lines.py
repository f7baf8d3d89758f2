"""What the log of a job says of a run's progress, and how often; where a store may lie in a job."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from raychains.core.errors import UserError
from raychains.planning import events
from raychains.report.console import SELDOM, SOONEST, LogInterval
from raychains.report.terminal import Terminal, progress
from raychains.store import Storage
from raychains.store.filesystem import RAY_JOB


def tick(*steps: int, loss: float | None = 0.25) -> events.Tick:
    running = [
        events.ChainStatus(
            digest=f"{i}" * 64, slot=i, step=step, steps=200, cycle=0, stage="sampling", loss=loss, seconds=1.0
        )
        for i, step in enumerate(steps)
    ]
    return events.Tick(running=running, finished=1, chains=4, evaluated=3, to_evaluate=12, remaining_seconds=100.0)


def test_a_line_says_where_the_running_chains_are() -> None:
    assert progress(tick()) == "1/4 chains, 3/12 samples evaluated"
    assert progress(tick(50)) == "1/4 chains, 1 running at 25 %, mean loss 0.2500, 3/12 samples evaluated"
    assert progress(tick(20, 60, loss=None)) == "1/4 chains, 2 running at 10–30 %, 3/12 samples evaluated"


def test_lines_come_every_ten_seconds_at_first_and_every_five_minutes_after_hours() -> None:
    now = 0.0
    interval, said = LogInterval(lambda: now), []
    while now < 24 * 3600:
        now += 1.0
        if interval.due():
            said.append(now)
    gaps = [b - a for a, b in zip([0.0, *said], said, strict=False)]
    assert gaps[0] == SOONEST and gaps[-1] == SELDOM and gaps == sorted(gaps)
    assert len(said) < 400


def test_output_that_is_no_terminal_has_neither_cursor_nor_colour_whatever_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "stdout", log)
    with Terminal() as terminal:
        terminal._interval = LogInterval(clock=iter(range(0, 10_000, 100)).__next__)
        terminal.on(events.Ready(slots=2, slot="1 CPU"))
        terminal._estimated = True
        terminal.on(tick(50))
        terminal.on(events.Stopping())
    lines = log.getvalue().splitlines()
    assert lines[0] == "Ray is up: 2 slots of 1 CPU" and lines[2] == "stopping: chains write checkpoints"
    assert re.fullmatch(r"\d\d:\d\d:\d\d 1/4 chains, 1 running at 25 %, .*, about 2 min left", lines[1])
    assert len(lines) == 3 and "\x1b" not in log.getvalue()


def test_in_a_job_with_an_uploaded_folder_a_store_has_an_absolute_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    uploaded = {"runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}, "metadata": {}}
    monkeypatch.setenv(RAY_JOB, json.dumps(uploaded))
    for relative in ("runs", "./runs", "../runs"):
        with pytest.raises(UserError, match="store must be an absolute path or a URI") as refusal:
            Storage(relative)
        assert repr(relative) in str(refusal.value) and "\n" not in str(refusal.value)
    for fine in (str(tmp_path / "runs"), f"file://{tmp_path}/runs", "~/runs"):
        assert Storage(fine).exclusive
    for other in ({"runtime_env": {}, "metadata": {}}, {"runtime_env": None}, [], "no object"):
        monkeypatch.setenv(RAY_JOB, json.dumps(other))
        assert Storage("runs").location("a") == f"{tmp_path}/runs/a"
    monkeypatch.setenv(RAY_JOB, "no JSON")
    assert Storage("runs").location("a") == f"{tmp_path}/runs/a"
