"""The status for people, in a terminal or as plain lines, and for machines as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from raychains.listeners.record import plain
from raychains.status.state import ChainState, DriverState, Progress, RunState, StoreState, SweepState

State = RunState | SweepState | StoreState
STYLES = {"running": "green", "finished": "", "waiting": "dim", "stopped": "yellow", "failed": "red", "lost": "red"}
ORDER: tuple[Progress, ...] = ("failed", "running", "stopped", "waiting", "finished")
"""What people look for first."""


def as_json(state: State) -> str:
    """One JSON object with all fields, and the sums that are shown."""
    sums = {}
    if isinstance(state, RunState):
        names = ("gradients", "to_spend", "samples", "remaining_seconds", "age")
        sums = {name: getattr(state, name) for name in names}
    return json.dumps({**plain(state), **plain(sums)}, allow_nan=False, ensure_ascii=False)


def lines(state: State, most: int) -> Iterator[str]:
    """The same as plain lines, for pipes and files."""
    yield from head(state)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        for chain in shown:
            yield "  ".join(part for part in _cells(chain) if part)
        yield from more
    elif isinstance(state, StoreState):
        for line in state.lines:
            chains = f"{line.chains} chains" if line.chains is not None else ""
            by = f"by {_by(line.driver)}" if line.driver is not None else ""
            yield "  ".join(p for p in (line.kind, line.name, line.state, line.task, chains, by) if p)


def drawn(state: State, most: int) -> RenderableType:
    """The same for a terminal."""
    first, *rest = head(state)
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, rest)]
    table = Table(box=box.SIMPLE)
    if isinstance(state, RunState):
        shown, more = chosen(state.chains, most)
        for name in (
            "chain",
            "",
            "step",
            "cycle, stage",
            "loss",
            "chain s",
            "steps/s",
            "samples",
            "checkpoint",
            "worker",
        ):
            table.add_column(
                name, justify="left" if name in ("chain", "", "cycle, stage", "checkpoint", "worker") else "right"
            )
        for chain in shown:
            table.add_row(*_row(chain), style=STYLES[chain.state])
        parts += [table, *map(Text, more)] if shown else []
    elif isinstance(state, StoreState):
        for name in ("", "name", "state", "task", "chains", "driver"):
            table.add_column(name)
        for line in state.lines:
            chains = "" if line.chains is None else str(line.chains)
            driver = _by(line.driver) if line.driver is not None else ""
            table.add_row(line.kind, line.name, line.state, line.task, chains, driver, style=STYLES[line.state])
        parts.append(table)
    return Group(*parts)


def show(console: Console, state: State, most: int) -> None:
    """Print it as the console wants it."""
    if console.is_terminal:
        console.print(drawn(state, most))
        return
    for text in lines(state, most):
        console.print(Text(text), soft_wrap=True)


def head(state: State) -> Iterator[str]:
    """What is said of the whole."""
    if isinstance(state, StoreState):
        counts = ", ".join(f"{n} {what}" for what, n in sorted(state.counts.items()))
        yield f"store {state.location}: {counts or 'no runs'}"
        return
    yield f"{state.kind} {state.name}: {state.state}"
    yield from (_driver_line(d) for d in state.drivers)
    if isinstance(state, SweepState):
        yield from _sweep(state)
        return
    if state.state == "stopped":
        yield "  nobody works on it; to go on: its command with --resume"
    of_chains = [(n, what) for what in ORDER if (n := state.count(what))]
    yield f"  {_count(len(state.chains), 'chain')} of {state.task}: {', '.join(f'{n} {what}' for n, what in of_chains)}"
    share = f" ({100 * state.gradients / state.to_spend:.0f} %)" if state.to_spend else ""
    yield f"  {state.gradients:,} of {state.to_spend:,} gradient evaluations spent{share}, {state.samples:,} samples, {_size(state.bytes)}"
    if state.remaining_seconds is not None:
        yield f"  about {duration(state.remaining_seconds)} of sampling left"
    if state.age is not None:
        yield f"  running chains last wrote up to {duration(state.age)} ago: they do with their checkpoints"
    done = ", ".join(f"{arm.label} {arm.evaluated}/{arm.repeats}" for arm in state.arms)
    yield f"  repeats evaluated: {done}"
    if state.report is not None:
        yield f"  report: {state.report}"


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
    if state.report is not None:
        yield f"  report: {state.report}"


def chosen(chains: Sequence[ChainState], most: int) -> tuple[list[ChainState], list[str]]:
    """The chains that are shown, those first that people look for, and a line on the others."""
    ordered = sorted(chains, key=lambda chain: ORDER.index(chain.state))
    left = ordered[most:]
    return ordered[:most], [f"  … and {len(left)} more (--chains N shows N of them)"] if left else []


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for limit, unit, of in ((90, 1, "{:.0f} s"), (5400, 60, "{:.0f} min"), (172800, 3600, "{:.1f} h")):
        if seconds < limit:
            return of.format(seconds / unit)
    return f"{seconds / 86400:.1f} d"


def _row(chain: ChainState) -> tuple[str, ...]:
    return (
        chain.digest[:12], chain.state, f"{chain.step:,}/{chain.steps:,}", _where(chain),
        f"{chain.loss:.4f}" if chain.loss is not None else "", f"{chain.seconds:.1f}" if chain.seconds else "",
        f"{chain.steps_per_second:,.0f}" if chain.steps_per_second is not None else "",
        f"{chain.samples}/{chain.expected}", _checkpoint(chain), chain.reason.splitlines()[-1] if chain.reason else _worker(chain),
    )  # fmt: skip


def _cells(chain: ChainState) -> tuple[str, ...]:
    digest, state, step, where, loss, seconds, speed, samples, checkpoint, worker = _row(chain)
    return (
        f"chain {digest} {state}", f"step {step}", where, f"loss {loss}" * bool(loss), f"{seconds} chain s" * bool(seconds),
        f"{speed} steps/s" * bool(speed), f"{samples} samples", f"checkpoint {checkpoint}" * bool(checkpoint), worker,
    )  # fmt: skip


def _where(chain: ChainState) -> str:
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
    before = f" (before: {', '.join(chain.hosts[:-1])})" if len(chain.hosts) > 1 else ""
    return f"on {chain.host}{before}{restarts}" if chain.host else restarts.removeprefix(", ")


def _driver_line(driver: DriverState) -> str:
    word = "by" if driver.lives else "was run by"
    lost = "" if driver.lives else ": it counts as dead, what it computed is kept; to go on: its command with --resume"
    return f"  {word} {_by(driver)}, last heard of {duration(driver.age)} ago{lost}"


def _by(driver: DriverState) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
    return f"pid {driver.pid} on {driver.host} since {since}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _size(n: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000  # type: ignore[assignment]
    return f"{n:.1f} TB"
