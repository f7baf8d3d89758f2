"""The state of a run, a sweep or a store in words."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from raychains.callbacks.event_data import plain
from raychains.core import duration
from raychains.status.state import ChainPhase, ChainState, DriverState, Line, RunState, State, StoreState, SweepState

ORDER: tuple[ChainPhase, ...] = ("failed", "running", "stopped", "waiting", "finished")
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
STORE_COLUMNS = ("", "name", "state", "task", "chains", "driver")


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
    return f"  {word} {process(driver)}, last heard of {duration.text(driver.age)} ago{lost}"


def _run(state: RunState) -> Iterator[str]:
    if state.state == "stopped":
        yield "  nobody works on it; to go on: its command with --resume"
    of_chains = [(n, what) for what in ORDER if (n := state.count(what))]
    yield f"  {_count(len(state.chains), 'chain')} of {state.task}: {', '.join(f'{n} {what}' for n, what in of_chains)}"
    share = f" ({100 * state.gradients / state.to_spend:.0f} %)" if state.to_spend else ""
    yield (
        f"  {state.gradients:,} of {state.to_spend:,} gradient evaluations spent{share}, {state.samples:,} samples, "
        f"{_size(state.bytes)}"
    )
    if state.remaining_seconds is not None:
        yield f"  about {duration.text(state.remaining_seconds)} of sampling left"
    if stalled := sum(chain.stalled for chain in state.chains):
        yield f"  {_count(stalled, 'chain')} stalled: silent for longer than their pace explains"
    if state.age is not None:
        yield f"  running chains last wrote up to {duration.text(state.age)} ago: they do with their checkpoints"
    yield "  repeats evaluated: " + ", ".join(f"{arm.label} {arm.evaluated}/{arm.repeats}" for arm in state.arms)


def _sweep(state: SweepState) -> Iterator[str]:
    if state.swept:
        yield "  over " + ", ".join(f"{name}: {json.dumps(plain(values))}" for name, values in state.swept.items())
    yield (
        f"  {_count(state.points, 'point')} of {state.task}, {_count(state.chains, 'chain')}, judged by "
        f"{state.metric}; {state.to_spend:,} gradient evaluations if none is stopped early"
    )
    ago = f", the last {duration.text(state.age)} ago" if state.age is not None else ""
    yield (
        f"  {_count(state.reports, 'report')} by {_count(state.reported, 'chain')}{ago}; {state.stopped} stopped by "
        "the scheduler"
    )
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


def store_row(line: Line) -> list[str]:
    """Return the cells of a run or sweep in the order of `STORE_COLUMNS`."""
    chains = "" if line.chains is None else str(line.chains)
    return [
        line.kind,
        line.name,
        line.state,
        line.task,
        chains,
        process(line.driver) if line.driver is not None else "",
    ]


def row(chain: ChainState) -> list[str]:
    """Return a chain's cells in the order of `COLUMNS`."""
    cells = [chain.digest[:12], chain.state, f"{chain.step:,}/{chain.steps:,}", _stage(chain)]
    cells.append(f"{chain.loss:.4f}" if chain.loss is not None else "")
    cells.append(f"{chain.seconds:.1f}" if chain.seconds else "")
    cells.append(f"{chain.steps_per_second:,.0f}" if chain.steps_per_second is not None else "")
    return [*cells, f"{chain.samples}/{chain.expected}", _checkpoint(chain), _worker(chain)]


def reason(chain: ChainState) -> str:
    """Return why a chain failed, in one line; empty where it did not."""
    return chain.reason.splitlines()[-1] if chain.reason else ""


def cells(chain: ChainState) -> list[str]:
    """Return the same as parts of a line, which of a chain that failed ends with the reason."""
    texts = [*row(chain)[:-1], reason(chain) or _worker(chain)]
    cells = [form.format(cell) if cell else "" for (form, _), cell in zip(COLUMNS.values(), texts, strict=True)]
    return [" ".join(cells[:2]), *cells[2:]]


def _stage(chain: ChainState) -> str:
    if chain.stage is None or chain.state == "finished":
        return ""
    cycle = f"cycle {chain.cycle + 1}/{chain.cycles}, " if chain.cycle is not None and chain.cycles > 1 else ""
    return f"{cycle}{chain.stage}"


def _checkpoint(chain: ChainState) -> str:
    if chain.checkpoint_step is None or chain.checkpoint_age is None or chain.state == "finished":
        return ""
    return f"at {chain.checkpoint_step:,}, {duration.text(chain.checkpoint_age)} ago"


def _worker(chain: ChainState) -> str:
    restarts = f", {_count(chain.restarts, 'restart')}" if chain.restarts else ""
    if chain.preemptions:
        restarts += f", {chain.preemptions} of them since a node was draining"
    before = f" (before: {', '.join(chain.hosts[:-1])})" if len(chain.hosts) > 1 else ""
    stalled = "stalled, " if chain.stalled else ""
    return stalled + (f"on {chain.host}{before}{restarts}" if chain.host else restarts.removeprefix(", "))


def process(driver: DriverState) -> str:
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
