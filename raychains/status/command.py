"""The command `raychains status`: once, or again and again until the run ends or the person has seen enough."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from raychains.errors import StorageAway, require
from raychains.options import Status
from raychains.planning.duration import seconds
from raychains.schedules.base import positive_int
from raychains.status import shown
from raychains.status.reading import Reader


def show(options: Status, console: Console, sleep: Callable[[float], None] = time.sleep) -> None:
    """Print the status; with ``watch`` anew every so many seconds, until nobody works on it any more, or Ctrl-C.

    Raises:
        UserError: nothing there, or an option out of range.
    """
    positive_int("chains", options.chains)
    every = seconds("watch", options.watch) if options.watch is not None else None
    require(not (options.json and every), "watch", options.watch, "be left out beside json")
    reader = Reader(options.path)
    state = reader.read()
    if options.json:
        print(shown.as_json(state))
        return
    if every is None:
        shown.show(console, state, options.chains)
        return
    try:
        if not console.is_terminal:
            shown.show(console, state, options.chains)
            while _goes_on(state):
                sleep(every)
                with contextlib.suppress(StorageAway):  # it said so, and is asked again
                    state = reader.read()
                shown.show(console, state, options.chains)
            return
        with Live(shown.drawn(state, options.chains), console=console, auto_refresh=False) as live:
            while _goes_on(state):
                sleep(every)
                with contextlib.suppress(StorageAway):  # it said so, and is asked again
                    state = reader.read()
                live.update(shown.drawn(state, options.chains), refresh=True)
    except KeyboardInterrupt:  # the way to leave
        return


def _goes_on(state: shown.State) -> bool:
    return state.kind == "store" or state.state == "running"
