"""The command `raychains status`: the state for a terminal, as plain lines or as JSON, once or repeatedly."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from raychains.callbacks.event_data import plain
from raychains.core.config import Status
from raychains.core.errors import StorageAway, require
from raychains.core.validation import positive_int
from raychains.planning.duration import seconds
from raychains.status.reading import Reader
from raychains.status.state import ChainState, DriverState, Progress, RunState, State, StoreState, SweepState

STYLES = {"running": "green", "finished": "", "waiting": "dim", "stopped": "yellow", "failed": "red", "lost": "red"}
ORDER: tuple[Progress, ...] = ("failed", "running", "stopped", "waiting", "finished")
"""The most urgent first."""
COLUMNS: Mapping[str, tuple[str, Literal["left", "right"]]] = {
    "chain": ("chain {}", "left"),
    "": ("{}", "left"),
    "step": ("step {}", "right"),
    "cycle, stage": ("{}", "left"),
    "loss": ("loss {}", "right"),
    "chain s": ("{} chain s", "right"),
    "steps/s": ("{} steps/s", "right"),
    "samples": ("{} samples", "right"),
    "checkpoint": ("checkpoint {}", "left"),
    "worker": ("{}", "left"),
}
"""A cell's form in plain lines and its place in tables, by the column's heading."""


def show(options: Status, console: Console, sleep: Callable[[float], None] = time.sleep) -> None:
    """Print the status; with ``watch`` anew every so many seconds, until no driver works on it any more, or Ctrl-C.

    Raises:
        UserError: nothing there, or an option out of range.
    """
    positive_int("chains", options.chains)
    every = seconds("watch", options.watch) if options.watch is not None else None
    require(not (options.json and every), "watch", options.watch, "be left out beside json")
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
        view = Live(drawn(state, options.chains), console=console, auto_refresh=False)
        if live:
            stack.enter_context(view)
        while state.kind == "store" or state.state == "running":
            sleep(every)
            with contextlib.suppress(StorageAway):  # it is logged, and tried again
                state = reader.read()
            if live:
                view.update(drawn(state, options.chains), refresh=True)
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
        console.print(drawn(state, most))
        return
    for text in lines(state, most):
        console.print(Text(text), soft_wrap=True)


def lines(state: State, most: int) -> Iterator[str]:
    """Yield the state as plain lines."""
    yield from head(state)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        for chain in shown:
            yield "  ".join(part for part in _cells(chain) if part)
        yield from more
    elif isinstance(state, StoreState):
        for line in state.lines:
            chains = f"{line.chains} chains" if line.chains is not None else ""
            by = f"by {_process(line.driver)}" if line.driver is not None else ""
            yield "  ".join(p for p in (line.kind, line.name, line.state, line.task, chains, by) if p)


def drawn(state: State, most: int) -> RenderableType:
    """Return the state as a table for a terminal."""
    first, *rest = head(state)
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, rest)]
    table = Table(box=box.SIMPLE)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        for name, (_, justify) in COLUMNS.items():
            table.add_column(name, justify=justify)
        for chain in shown:
            table.add_row(*_row(chain), style=STYLES[chain.state])
        parts += [table, *map(Text, more)] if shown else []
    elif isinstance(state, StoreState):
        for name in ("", "name", "state", "task", "chains", "driver"):
            table.add_column(name)
        for line in state.lines:
            chains = "" if line.chains is None else str(line.chains)
            driver = _process(line.driver) if line.driver is not None else ""
            table.add_row(line.kind, line.name, line.state, line.task, chains, driver, style=STYLES[line.state])
        parts.append(table)
    return Group(*parts)


def head(state: State) -> Iterator[str]:
    """Yield the lines on the whole run, sweep or store."""
    if isinstance(state, StoreState):
        counts = ", ".join(f"{n} {what}" for what, n in sorted(state.counts.items()))
        yield f"store {state.location}: {counts or 'no runs'}"
        return
    yield f"{state.kind} {state.name}: {state.state}"
    yield from map(_driver, state.drivers)
    yield from _sweep(state) if isinstance(state, SweepState) else _run(state)
    if state.report is not None:
        yield f"  report: {state.report}"


def _driver(driver: DriverState) -> str:
    word = "by" if driver.lives else "was run by"
    lost = "" if driver.lives else ": it counts as dead, what it computed is kept; to go on: its command with --resume"
    return f"  {word} {_process(driver)}, last heard of {duration(driver.age)} ago{lost}"


def _run(state: RunState) -> Iterator[str]:
    if state.state == "stopped":
        yield "  nobody works on it; to go on: its command with --resume"
    of_chains = [(n, what) for what in ORDER if (n := state.count(what))]
    yield f"  {_count(len(state.chains), 'chain')} of {state.task}: {', '.join(f'{n} {what}' for n, what in of_chains)}"
    share = f" ({100 * state.gradients / state.to_spend:.0f} %)" if state.to_spend else ""
    yield f"  {state.gradients:,} of {state.to_spend:,} gradient evaluations spent{share}, {state.samples:,} samples, {_size(state.bytes)}"
    if state.remaining_seconds is not None:
        yield f"  about {duration(state.remaining_seconds)} of sampling left"
    if stalled := sum(chain.stalled for chain in state.chains):
        yield f"  {_count(stalled, 'chain')} stalled: silent for longer than their pace explains"
    if state.age is not None:
        yield f"  running chains last wrote up to {duration(state.age)} ago: they do with their checkpoints"
    yield "  repeats evaluated: " + ", ".join(f"{arm.label} {arm.evaluated}/{arm.repeats}" for arm in state.arms)


def _sweep(state: SweepState) -> Iterator[str]:
    if state.swept:
        yield "  over " + ", ".join(f"{name}: {json.dumps(plain(values))}" for name, values in state.swept.items())
    yield (
        f"  {_count(state.points, 'point')} of {state.task}, {_count(state.chains, 'chain')}, judged by {state.metric}; "
        f"{state.to_spend:,} gradient evaluations if none is stopped early"
    )
    ago = f", the last {duration(state.age)} ago" if state.age is not None else ""
    yield f"  {_count(state.reports, 'report')} by {_count(state.reported, 'chain')}{ago}; {state.stopped} stopped by the scheduler"
    if state.trials:
        yield "  trials: " + ", ".join(f"{n} {status}" for status, n in sorted(state.trials.items()))
    if state.best is not None:
        best = {name: state.best[name] for name in state.swept if name in state.best} or state.best
        yield f"  best: {json.dumps(plain(best), ensure_ascii=False)}"


def chosen(chains: Sequence[ChainState], most: int) -> tuple[list[ChainState], list[str]]:
    """Return the chains that are shown, the most urgent first, and a line on the others."""
    ordered = sorted(chains, key=lambda chain: ORDER.index(chain.state))
    others = len(ordered[most:])
    return ordered[:most], [f"  … and {others} more (--chains N shows N of them)"] if others else []


def duration(seconds: float) -> str:
    """Return ``40 s``, ``12 min``, ``3.5 h`` or ``2.1 d``."""
    for limit, unit, text in ((90, 1, "{:.0f} s"), (5400, 60, "{:.0f} min"), (172800, 3600, "{:.1f} h")):
        if seconds < limit:
            return text.format(seconds / unit)
    return f"{seconds / 86400:.1f} d"


def _row(chain: ChainState) -> list[str]:
    """A chain's cells in the order of `COLUMNS`."""
    row = [chain.digest[:12], chain.state, f"{chain.step:,}/{chain.steps:,}", _stage(chain)]
    row.append(f"{chain.loss:.4f}" if chain.loss is not None else "")
    row.append(f"{chain.seconds:.1f}" if chain.seconds else "")
    row.append(f"{chain.steps_per_second:,.0f}" if chain.steps_per_second is not None else "")
    reason = chain.reason.splitlines()[-1] if chain.reason else _worker(chain)
    return [*row, f"{chain.samples}/{chain.expected}", _checkpoint(chain), reason]


def _cells(chain: ChainState) -> list[str]:
    """The same as parts of a line."""
    cells = [form.format(cell) if cell else "" for (form, _), cell in zip(COLUMNS.values(), _row(chain), strict=True)]
    return [" ".join(cells[:2]), *cells[2:]]


def _stage(chain: ChainState) -> str:
    if chain.stage is None or chain.state == "finished":
        return ""
    cycle = f"cycle {chain.cycle + 1}/{chain.cycles}, " if chain.cycle is not None and chain.cycles > 1 else ""
    return f"{cycle}{chain.stage}"


def _checkpoint(chain: ChainState) -> str:
    if chain.checkpoint_step is None or chain.checkpoint_age is None or chain.state == "finished":
        return ""
    return f"at {chain.checkpoint_step:,}, {duration(chain.checkpoint_age)} ago"


def _worker(chain: ChainState) -> str:
    restarts = f", {_count(chain.restarts, 'restart')}" if chain.restarts else ""
    if chain.preemptions:
        restarts += f", {chain.preemptions} of them since a node was about to go"
    before = f" (before: {', '.join(chain.hosts[:-1])})" if len(chain.hosts) > 1 else ""
    stalled = "stalled, " if chain.stalled else ""
    return stalled + (f"on {chain.host}{before}{restarts}" if chain.host else restarts.removeprefix(", "))


def _process(driver: DriverState) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
    return f"pid {driver.pid} on {driver.host} since {since}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"
