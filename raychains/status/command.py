"""The command `raychains status`: the state for a terminal, as plain lines or as JSON, once or repeatedly."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from raychains.callbacks.event_data import plain
from raychains.core.config import Status
from raychains.core.errors import StorageAway, require
from raychains.report.console import fitted, fitting, say
from raychains.status.reading import Reader
from raychains.status.state import ChainState, RunState, State, StoreState
from raychains.status.text import COLUMNS, STORE_COLUMNS, cells, chosen, head, process, reason, row, store_row

STYLES = {"running": "green", "finished": "", "waiting": "dim", "stopped": "yellow", "failed": "red", "lost": "red"}
LEFT_OUT = [[*COLUMNS].index(name) for name in ("chain s", "steps/s", "checkpoint", "samples", "loss", "cycle, stage")]
"""Numbers of the columns of chains that a narrow terminal has no room for, the first first."""


def show(options: Status, console: Console, sleep: Callable[[float], None] = time.sleep) -> None:
    """Print the status; with ``watch`` anew every so many seconds, until no driver works on it any more, or Ctrl-C.

    Raises:
        UserError: nothing there, or an option out of range.
    """
    every = float(options.watch) if options.watch is not None else None
    require(not (options.json and every), "watch", every, "be left out beside `json`")
    reader = Reader(options.path)
    state = reader.read()
    if options.json:
        print(as_json(state))
        return
    live = console.is_terminal and every is not None
    if not live:
        display(console, state, options.chains)
    if every is None:
        return
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:  # Ctrl-C is the way to leave
        view = Live(Group(*drawn(console, state, options.chains)), console=console, auto_refresh=False)
        if live:
            stack.enter_context(view)
        while state.kind == "store" or state.state == "running":
            sleep(every)
            with contextlib.suppress(StorageAway):  # it is logged, and tried again
                state = reader.read()
            if live:
                view.update(Group(*drawn(console, state, options.chains)), refresh=True)
            else:
                display(console, state, options.chains)


def as_json(state: State) -> str:
    """Return one JSON object with all fields, and the sums that are shown."""
    sums = ["gradients", "to_spend", "samples", "remaining_seconds", "age"] if isinstance(state, RunState) else []
    return json.dumps(
        {**plain(state), **{name: plain(getattr(state, name)) for name in sums}}, allow_nan=False, ensure_ascii=False
    )


def display(console: Console, state: State, most: int) -> None:
    """Print the state, with colours and a table in a terminal, as plain lines in pipes and files."""
    if console.is_terminal:
        for part in drawn(console, state, most):
            console.print(part, soft_wrap=isinstance(part, Text))
        return
    for text in lines(state, most):
        say(console, text)


def lines(state: State, most: int) -> Iterator[str]:
    """Yield the state as plain lines."""
    yield from head(state)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        for chain in shown:
            yield "  ".join(part for part in cells(chain) if part)
        yield from more
    elif isinstance(state, StoreState):
        for line in state.lines:
            chains = f"{line.chains} chains" if line.chains is not None else ""
            by = f"by {process(line.driver)}" if line.driver is not None else ""
            yield "  ".join(p for p in (line.kind, line.name, line.state, line.task, chains, by) if p)


def drawn(console: Console, state: State, most: int) -> list[Text | Table]:
    """Return the state as lines and a table for a terminal."""
    parts: list[Text | Table] = []

    def add(text: str, style: str = "") -> None:
        parts.extend(Text(line, style=style) for line in fitted(console, text))

    first, *rest = head(state)
    add(first, "bold")
    for text in rest:
        add(text)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        if shown:
            parts.append(fitting(console, partial(_chains, shown), LEFT_OUT, whole=False))
        for chain in shown:
            if why := reason(chain):
                add(f"  {chain.digest[:12]} {chain.state}: {why}", STYLES[chain.state])
        for text in more:
            add(text)
    elif isinstance(state, StoreState):
        table = _table()
        for name in STORE_COLUMNS:
            table.add_column(name, no_wrap=name != "driver", overflow="fold")
        for line in state.lines:
            table.add_row(*store_row(line), style=STYLES[line.state])
        parts.append(table)
    return parts


def _chains(chains: Sequence[ChainState], left_out: Sequence[int]) -> Table:
    """Return the chains' table without the columns of these numbers."""
    table = _table()
    kept = [number not in left_out for number in range(len(COLUMNS))]
    for name, (_, justify) in compress(COLUMNS.items(), kept):
        whole = name not in ("cycle, stage", "checkpoint", "worker")
        table.add_column(name, justify=justify, no_wrap=whole)
    for chain in chains:
        table.add_row(*compress(row(chain), kept), style=STYLES[chain.state])
    return table


def _table() -> Table:
    return Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
