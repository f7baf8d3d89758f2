"""The live view of a run or a sweep: bars of the chains that run and of the whole, below a table."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.progress import TaskID, TimeElapsedColumn
from rich.table import Table

from raychains.planning import events
from raychains.report.console import NotebookView, bars


class LiveView:
    """Drawn on a terminal or in a notebook, from `begin` to `stop`; anywhere else nothing is drawn.

    Args:
        console: where to draw.
        table: makes the table above the bars; None while there is none.
    """

    def __init__(self, console: Console, table: Callable[[], Table | None]) -> None:
        self._console, self._table = console, table
        self._view: Live | NotebookView | None = None
        self._chains, self._whole = bars(), bars(TimeElapsedColumn())
        self._running: dict[str, TaskID] = {}
        """Bars of the chains that run, by digest."""
        self._counts: dict[str, TaskID] = {}
        """Bars of the whole run, by what they count."""

    @property
    def on(self) -> bool:
        """True while it is drawn."""
        return self._view is not None

    def begin(self) -> None:
        """Draw it, where that is possible."""
        if self._view is not None:
            return
        if self._console.is_jupyter:
            self._view = NotebookView()
        elif self._console.is_terminal:
            self._view = Live(self._drawn(), console=self._console, refresh_per_second=4, transient=True)
            self._view.start()

    def stop(self) -> None:
        """Remove it."""
        if self._view is not None:
            self._view.stop()
            self._view = None

    def draw(self) -> None:
        """Draw it again, with the table of now."""
        if self._view is not None:
            self._view.update(self._drawn())

    def show(self, tick: events.Tick, note: str, about: Callable[[events.ChainStatus], tuple[str, str]]) -> None:
        """Draw a run's progress with a note on the whole, and ``about`` each chain its name and a note."""
        self.count("chains", tick.finished, tick.chains, note)
        self.count("evaluation", tick.evaluated, tick.to_evaluate)
        running = {chain.digest for chain in tick.running}
        for digest in self._running.keys() - running:
            self._chains.remove_task(self._running.pop(digest))
        for chain in tick.running:
            name, text = about(chain)
            if chain.digest not in self._running:
                self._running[chain.digest] = self._chains.add_task(name, total=chain.steps, note="")
            self._chains.update(self._running[chain.digest], completed=chain.step, note=text)
        self.draw()

    def count(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show how many of these are done, once there are any."""
        if what not in self._counts:
            self._counts[what] = self._whole.add_task(what, note="")
        self._whole.update(self._counts[what], completed=done, total=total, note=note, visible=total > 0)

    def _drawn(self) -> Group:
        table = self._table()
        return Group(*([] if table is None else [table]), self._chains, self._whole)
