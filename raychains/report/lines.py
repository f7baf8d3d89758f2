"""Progress without a terminal, as in the log of a job: when a line is due, and what it says."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from raychains.planning import listener as told

PLAIN_WIDTH = 140
"""Columns of output that goes to a file or a pipe."""
SOONEST = 10.0
"""Seconds between two lines at first."""
SELDOM = 300.0
"""Seconds between two lines of a run of hours."""
SHARE = 1 / 20
"""In between, of the time that has passed."""


class Occasion:
    """Says when another line is due: every 10 s at first, every 5 min after 100 min, so that a log stays readable.

    Args:
        clock: seconds, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._said = clock()

    def due(self) -> bool:
        """Whether to say something now; if so, the time until the next line begins."""
        now = self._clock()
        if now - self._said < min(SELDOM, max(SOONEST, SHARE * (now - self._began))):
            return False
        self._said = now
        return True


def standard_output() -> Console:
    """Where to print: a file or pipe has no width of its own, and 80 columns would fold tables.

    It has no cursor and no colours either, even where the environment (FORCE_COLOR of a cluster's image) asks for them.
    """
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH, force_terminal=False, color_system=None)


def whole_bar() -> Progress:
    """The bars of a whole run or sweep: what, how far, since when, and a note."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip


def progress(tick: told.Tick) -> str:
    """Where a run is, in one line: chains done, those that run with their share of steps and mean loss, evaluations."""
    parts = [f"{tick.finished}/{tick.chains} chains"]
    if tick.running:
        shares = [100 * c.step / c.steps for c in tick.running]
        least, most = f"{min(shares):.0f}", f"{max(shares):.0f}"
        losses = [c.loss for c in tick.running if c.loss is not None]
        loss = f", mean loss {sum(losses) / len(losses):.4f}" if losses else ""
        parts.append(f"{len(tick.running)} running at {least if least == most else f'{least}–{most}'} %{loss}")
    parts.append(f"{tick.evaluated}/{tick.to_evaluate} samples evaluated")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
