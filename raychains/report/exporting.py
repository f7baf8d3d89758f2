"""What a person sees of `raychains export`: a bar while samples are written, then the file and how to load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from raychains.deploy import Exported


class Bar:
    """How many of something are written; drawn on a terminal only, and taken away at the end."""

    def __init__(self, console: Console, what: str = "samples") -> None:
        columns = (TextColumn(what), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._progress.add_task(what, total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._bar, completed=done, total=total)


def told(exported: Exported) -> tuple[str, str]:
    """The file and what is in it; one line of Python that loads it."""
    network = exported.network
    model = ", model=net" if network is None else "" if "name" in network else ", trust=True"
    many = f"{exported.samples} sample{'s' * (exported.samples != 1)}"
    return (
        f"exported: {exported.path}, {many} of {exported.arm}, {decimal(exported.bytes)}",
        f'load it: raychains.PosteriorPredictive.load("{exported.path}"{model})',
    )
