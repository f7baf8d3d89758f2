"""Output for people, on a terminal or in the log of a job: the console, progress bars, and when a log's next line is
due."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rich.console
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from raychains.core.errors import printable

PLAIN_WIDTH = 140
"""Columns of output that goes to a file or a pipe."""
UNLIMITED = 10_000
"""Columns in which every table is measured."""
NOTEBOOK_WIDTH = 110
NOTEBOOK_HTML = '<pre style="line-height:normal;font-family:Menlo,Consolas,monospace">{code}</pre>'
REDRAWN_EVERY = 0.3
"""Seconds between two drawings of a notebook's view."""
SOONEST = 10.0
"""Seconds between two lines at first."""
SELDOM = 300.0
"""Seconds between two lines of a run of hours."""
SHARE = 1 / 20
"""In between, of the time that has passed."""


class Console(rich.console.Console):
    """Rich's console, on which no text controls the terminal: names and reasons in a store may be anybody's.

    Where the reader closed the pipe, the process ends with the status of a program that SIGPIPE ended; rich's own is 1.
    """

    def on_broken_pipe(self) -> None:
        """See `rich.console.Console.on_broken_pipe`."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(128 + signal.SIGPIPE)

    def render(self, *args: Any, **kwargs: Any) -> Iterator[Segment]:
        """See `rich.console.Console.render`."""
        for segment in super().render(*args, **kwargs):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


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


def terminal_width(plain: int = PLAIN_WIDTH) -> int:
    """Return the columns that COLUMNS asks for, else those of the terminal, else ``plain``."""
    return shutil.get_terminal_size((plain, 0)).columns


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return lines of at most so many columns, between whose words text is broken: paths and commands stay whole.

    Args:
        first, rest: what the first line and the others are indented with.
    """
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def fitted(console: rich.console.Console, text: str) -> list[str]:
    """Return text as lines that fit into a terminal, or as wide as COLUMNS asks for; a log's lines stay whole."""
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return text.split("\n")
    indent = " " * (len(text) - len(text.lstrip(" ")) + 2)
    return [part for line in text.split("\n") for part in wrapped(line, console.width, rest=indent) or [""]]


def say(console: rich.console.Console, text: str, style: str = "") -> None:
    """Print text, `fitted`."""
    for line in fitted(console, text):
        console.print(Text(line, style=style), soft_wrap=True)


def fitting(
    console: rich.console.Console,
    build: Callable[[Sequence[int]], Table],
    order: Sequence[int],
    *,
    whole: bool = True,
) -> Table:
    """Return a table that fits into the console's width, with as many columns as possible.

    Args:
        build: makes the table without the columns of these numbers.
        order: numbers of the columns that may be left out, the least important first.
        whole: whether no cell may be broken over lines; else cells are broken between words.
    """
    unlimited = console.options.update_width(UNLIMITED)
    for count in range(len(order) + 1):
        table = build(order[:count])
        needed = console.measure(table, options=unlimited)
        if (needed.maximum if whole else needed.minimum) <= console.width:
            break
    return table


def standard_output() -> Console:
    """The console to print to: a file or pipe has no width of its own, and 80 columns would fold tables.

    It has no cursor and no colours either, even where the environment (FORCE_COLOR of a cluster's image) asks for them.
    """
    return (
        Console() if sys.stdout.isatty() else Console(width=terminal_width(), force_terminal=False, color_system=None)
    )


def standard_error() -> Console:
    """The console to print progress to when Python calls: a terminal, a notebook's cell, or lines in a log."""
    console = Console(stderr=True)
    return (
        console
        if console.is_jupyter or sys.stderr.isatty()
        else Console(stderr=True, width=terminal_width(), force_terminal=False, color_system=None)
    )


class NotebookView:
    """A live view in a notebook: one output of the cell, drawn again at most a few times a second.

    Rich's own needs ipywidgets and leaves nothing in a saved notebook.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = 0.0

    def update(self, shown: RenderableType) -> None:
        """Draw ``shown`` in place of what was drawn before."""
        if time.monotonic() - self._drawn < REDRAWN_EVERY:
            return
        self._drawn = time.monotonic()
        page = Console(file=io.StringIO(), record=True, width=NOTEBOOK_WIDTH, force_jupyter=False)
        page.print(shown)
        self._show(page.export_html(inline_styles=True, code_format=NOTEBOOK_HTML))

    def stop(self) -> None:
        """Remove the view."""
        if self._handle is not None:
            self._show("")

    def _show(self, html: str) -> None:
        from IPython.display import HTML, display  # there is a notebook, so there is IPython

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


def bars(*times: ProgressColumn, **options: Any) -> Progress:
    """Progress bars with a description, the number done, ``times`` and a note each, of rich's ``options``."""
    first = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    return Progress(*first, *times, TextColumn("{task.fields[note]}"), **options)


@contextmanager
def progress_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the number done and the total that updates a bar, drawn on a terminal only and then
    removed."""
    with bars(TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None, note="")
        yield lambda done, total: shown.update(task, completed=done, total=total)
