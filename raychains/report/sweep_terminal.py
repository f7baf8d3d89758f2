"""The terminal's output during a sweep: the plan, a line per running chain, what ended and what it was worth."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from raychains.core.errors import last_line
from raychains.evaluation.base import Metric
from raychains.planning import sweep_plan as events
from raychains.report.console import LogInterval, bars, standard_output
from raychains.store import SweepStore
from raychains.store.runs import BEST

SHOWN = 24
"""Points in the plan's table at most, and running chains."""


class SweepTerminal:
    """A listener of sweeps for people; use it as a context manager around the sweep.

    Args:
        console: where to draw; lines instead of live bars when it is no terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or standard_output()
        self._live: Live | None = None
        self._whole = bars(TimeElapsedColumn())
        self._all = self._whole.add_task("chains", total=None, note="")
        self._metric: Metric | None = None
        self._interval = LogInterval()
        self._waiting: str | None = None

    def __enter__(self) -> SweepTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on(self, event: Any) -> None:
        """Show one event."""
        match event:
            case events.SweepPlanned():
                self._planned(event)
            case events.SweepReady():
                self._say(f"Ray is up: {event.slots} slot{'s' * (event.slots != 1)} of {event.slot}")
                if self._console.is_terminal:
                    self._live = Live(self._whole, console=self._console, refresh_per_second=4, transient=True)
                    self._live.start()
            case events.SweepTick():
                self._tick(event)
            case events.TrialEnded():
                self._ended(event)
            case events.TrialResumed():
                text = (
                    f"the process of {_name(event)} died; the chain resumes from its checkpoint (loss {event.failures})"
                )
                self._say(text, "yellow")
            case events.SweepDone():
                self._done(event.folder)
            case events.SweepStopping():
                why = f" because {event.reason}" if event.reason else ""
                again = " (Ctrl-C again interrupts at once)" if self._console.is_terminal else ""
                self._say(f"stopping{why}: chains write checkpoints{again}", "yellow")

    def _done(self, folder: SweepStore) -> None:
        """The table at the end, and how to run the best point."""
        from raychains.report.sweep.rows import terminal as table

        self.__exit__(None, None, None)
        self._console.print(table(folder))
        best = folder.location(BEST)
        if folder.best() is not None:
            self._say(f"the best point is in {best}; to run it with several chains: raychains run --options {best}")

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _planned(self, planned: events.SweepPlanned) -> None:
        plan = planned.plan
        self._metric = plan.metric
        chains = plan.count * plan.repeats
        self._say(f"{plan.task}: the sweep {planned.name}")
        table = Table(box=box.SIMPLE)
        table.add_column("swept")
        table.add_column("values")
        for name, values in plan.swept.items():
            table.add_row(name, values if isinstance(values, str) else ", ".join(map(str, values)))
        self._console.print(table)
        how = {"grid": "all combinations", "random": "drawn independently", "optuna": "chosen by Optuna"}[plan.search]
        each = f", {plan.repeats} chains each" if plan.repeats > 1 else ""
        self._say(f"{plan.count} points, {how}{each}; {plan.metric.label} on the split {plan.split} decides")
        self._say(
            f"{plan.length} {plan.unit} and {plan.gradients:,} gradient evaluations per chain, {chains * plan.gradients:,} in all"
            + (f"; {planned.there} chains are in the store already" if planned.there else "")
            + (f", {planned.done} of them judged" if planned.done else "")
        )
        if plan.asha is not None:
            self._say(
                f"ASHA: from {plan.asha.grace:.0%} of the {plan.unit} on, 1 in {plan.asha.reduction:g} goes on; what it stops "
                "depends on which chains are ahead, and so on the machine"
            )
        if plan.search == "optuna":
            self._say("Optuna's choice depends on which chains end first, and so on the machine")
        for note in plan.notes:
            self._say(note, "yellow" if note.startswith("warning") else "")

    def _tick(self, tick: events.SweepTick) -> None:
        if tick.waiting is not None and tick.waiting != self._waiting:
            self._say(f"waiting: {tick.waiting}", "yellow")
        self._waiting = tick.waiting
        best = f"best so far {self._value(tick.best[1])} ({tick.best[0].text})" if tick.best is not None else ""
        if self._live is None:
            if self._interval.due():
                running = ", ".join(f"{_name(now)} {_place(now)}" for now in tick.running[:3])
                more = f" and {len(tick.running) - 3} more" if len(tick.running) > 3 else ""
                parts = [f"{tick.ended}/{tick.total} chains", f"running: {running}{more}" if running else "", best]
                self._say("; ".join(p for p in parts if p))
            return
        self._whole.update(self._all, completed=tick.ended, total=tick.total, note=best)
        table = Table(box=None, pad_edge=False)
        for name in ("point", "cycle", "steps", f"val {self._metric.label if self._metric else ''}"):
            table.add_column(name, justify="left" if name == "point" else "right")
        for now in tick.running[:SHOWN]:
            value = self._value(now.value) if now.value is not None else "…"
            table.add_row(_name(now), f"{now.cycle + 1}/{now.cycles}", f"{now.step:,}/{now.steps:,}", value)
        self._live.update(Group(table, self._whole))

    def _ended(self, ended: events.TrialEnded) -> None:
        worth = ""
        if ended.report is not None and self._metric is not None:
            worth = f": {self._metric.label} {self._value(ended.report['metrics'][self._metric.name])}"
            worth += f" after {ended.report['epoch']:g} epochs" if ended.status == "stopped" else ""
        if ended.status == "failed":
            self._say(f"{_name(ended)} failed: {last_line(ended.reason)}", "red")
        else:
            self._say(f"{_name(ended)} {ended.status}{worth}", "dim" if ended.status == "stopped" else "")

    def _value(self, value: float) -> str:
        metric = self._metric
        return f"{value * metric.scale:.{metric.digits}f}" if metric is not None else f"{value:.4g}"


def _name(of: events.TrialNow | events.TrialEnded | events.TrialResumed) -> str:
    repeat = f", repeat {of.repeat}" if len(of.point.specs) > 1 else ""
    return f"point {of.point.number} ({of.point.text}{repeat})"


def _place(now: events.TrialNow) -> str:
    return f"cycle {now.cycle + 1}/{now.cycles}"
