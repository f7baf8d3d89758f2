"""Output for people, on a terminal or in the log of a job: the console, progress bars, and when a log's next line is due."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

PLAIN_WIDTH = 140
"""Columns of output that goes to a file or a pipe."""
SOONEST = 10.0
"""Seconds between two lines at first."""
SELDOM = 300.0
"""Seconds between two lines of a run of hours."""
SHARE = 1 / 20
"""In between, of the time that has passed."""


class LogInterval:
    """Decides when another line is due: every 10 s at first, every 5 min after 100 min, so that a log stays readable.

    Args:
        clock: seconds, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()

    def due(self) -> bool:
        """Return whether a line is due now; if so, start the time until the next line."""
        now = self._clock()
        if now - self._last < min(SELDOM, max(SOONEST, SHARE * (now - self._began))):
            return False
        self._last = now
        return True


def standard_output() -> Console:
    """The console to print to: a file or pipe has no width of its own, and 80 columns would fold tables.

    It has no cursor and no colours either, even where the environment (FORCE_COLOR of a cluster's image) asks for them.
    """
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH, force_terminal=False, color_system=None)


def bars(*times: ProgressColumn, **options: Any) -> Progress:
    """Progress bars with a description, the number done, ``times`` and a note each, of rich's ``options``."""
    first = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    return Progress(*first, *times, TextColumn("{task.fields[note]}"), **options)


@contextmanager
def progress_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the number done and the total that updates a bar, drawn on a terminal only and then removed."""
    with bars(TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None, note="")
        yield lambda done, total: shown.update(task, completed=done, total=total)


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
