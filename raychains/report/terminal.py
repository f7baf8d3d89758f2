"""What a person sees while a run goes on: the plan, a line per running chain, one for evaluation, the table as it grows.

Without a terminal (a log file, a job) the same comes as occasional lines.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from raychains.evaluation.base import Metric
from raychains.planning import gradient_evaluations
from raychains.planning import listener as told
from raychains.planning.comparison import Arm, Comparison
from raychains.report.lines import Occasion, duration, progress, standard_output, whole_bar


class Terminal:
    """A listener for people; use it as a context manager around the run.

    Args:
        console: where to draw; lines instead of live bars when it is no terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or standard_output()
        self._live: Live | None = None
        self._chains = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        )  # fmt: skip
        self._whole = whole_bar()
        self._bars: dict[str, TaskID] = {}
        self._measures: dict[str, TaskID] = {}
        self._comparison: Comparison | None = None
        self._cyclical: set[str] = set()
        self._metrics: tuple[Metric, ...] = ()
        self._found: dict[str, list[dict[str, float]]] = defaultdict(list)
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._estimated = False
        self._saved = 0
        self._occasion = Occasion()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on(self, happening: told.Happening) -> None:
        """Show one happening."""
        match happening:
            case told.Planned():
                self._planned(happening)
            case told.Evaluating():
                self._of(happening.comparison)
            case told.Measuring():
                self._measuring(happening)
            case told.Said():
                self._say(happening.text, style="yellow" if happening.text.startswith("warning") else "")
            case told.Ready():
                self._say(f"Ray is up: {happening.slots} slot{'s' * (happening.slots != 1)} of {happening.slot}")
                self._begin()
            case told.Tick():
                self._tick(happening)
            case told.ViewDone():
                self._found[happening.arm] += [dict(m) for m in happening.metrics]
                self._seconds[happening.arm] += [happening.chain_seconds] * len(happening.metrics)
                self._view(happening.arm)
            case told.ChainFailed():
                self._say(f"chain {happening.digest[:12]} failed: {_last_line(happening.reason)}", style="red")
            case told.ChainDropped():
                text = f"chain {happening.digest[:12]} diverged and is left out of its arms: {happening.reason}"
                self._say(text, style="red")
            case told.ChainRestarted():
                text = f"chain {happening.digest[:12]} diverged: {happening.reason}; back to the start of its cycle with fresh noise"
                self._say(f"{text} (restart {happening.attempt})", style="yellow")
            case told.TornCheckpoint():
                text = f"chain {happening.digest[:12]} goes on from before {happening.file}: {happening.reason}"
                self._say(text, style="yellow")
            case told.Waiting():
                self._say(f"waiting: {happening.reason}", style="yellow")
            case told.GoesOn():
                self._say("what the run waited for is back: it goes on", style="yellow")
            case told.SlotGone():
                text = f"slot {happening.slot} is gone ({_last_line(happening.reason)}); its chain goes on in another"
                self._say(text, style="yellow")
            case told.Stopping():
                why = f" because {happening.reason}" if happening.reason else ""
                again = " (Ctrl-C again interrupts at once)" if self._console.is_terminal else ""
                self._say(f"stopping{why}: chains write checkpoints{again}", style="yellow")

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _planned(self, plan: told.Planned) -> None:
        comparison, budget = plan.comparison, plan.budget
        self._of(comparison)
        self._saved = budget.saved_length
        self._cyclical = {d for d, spec in comparison.chains().items() if spec.schedule.kind == "cyclical"}
        unit = comparison.unit
        table = Table(box=box.SIMPLE, title=f"{comparison.task}: the plan", title_justify="left")
        for name in ("arm", "repeats", "chains", f"{unit} per chain/total", "steps per chain", "gradient evaluations"):
            table.add_column(name, justify="left" if name == "arm" else "right")
        for arm in comparison.arms:
            specs = [spec for group in arm.chains for spec in group]
            gradients = sum(gradient_evaluations(spec) for spec in specs)
            table.add_row(
                arm.label, str(arm.repeats), str(len(specs)), arm.cost, f"{specs[0].steps:,}", f"{gradients:,}"
            )
        self._console.print(table)
        self._say(
            f"{budget.chains_of_arms} chains, {budget.unique_chains} unique: sharing saves {budget.saved_length:,} of "
            f"{budget.arms_length:,} {unit} ({budget.saved:,} gradient evaluations)"
        )
        done = budget.unique_chains - budget.chains_to_run
        self._say(
            f"to run: {budget.chains_to_run} chains, {budget.to_run_length:,} {unit}, {budget.to_run:,} gradient evaluations"
            + (f"; {done} chains are in the store already" if done else "")
        )
        for note in plan.notes:
            self._say(note, style="yellow" if note.startswith("warning") else "")

    def _of(self, comparison: Comparison) -> None:
        from raychains import tasks

        self._comparison = comparison
        metrics = tasks.build(comparison.task_spec).splits()[comparison.split].metrics
        self._metrics = tuple(m for m in metrics if not m.minor)

    def _measuring(self, done: told.Measuring) -> None:
        if self._live is None:
            if self._occasion.due():
                self._say(f"{time.strftime('%H:%M:%S')} {done.what}: {done.done}/{done.total}")
            return
        if done.what not in self._measures:
            self._measures[done.what] = self._whole.add_task(done.what, note="")
        self._whole.update(self._measures[done.what], completed=done.done, total=done.total)

    def _begin(self) -> None:
        if self._live is not None:
            return
        self._all = self._whole.add_task("chains", total=None, note="")
        self._evaluation = self._whole.add_task("evaluation", total=None, note="")
        if self._console.is_terminal:
            self._live = Live(self._draw(), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def _tick(self, tick: told.Tick) -> None:
        if tick.remaining_seconds is not None and not self._estimated:
            self._estimated = True
            self._say(f"estimated from the first {self._unit}: {duration(tick.remaining_seconds)} of sampling")
        left = f"about {duration(tick.remaining_seconds)} left" if tick.remaining_seconds is not None else ""
        if self._live is None:
            if self._occasion.due():
                self._say(f"{time.strftime('%H:%M:%S')} " + ", ".join(p for p in (progress(tick), left) if p))
            return
        self._whole.update(self._all, completed=tick.finished, total=tick.chains, note=left)
        self._whole.update(self._evaluation, completed=tick.evaluated, total=tick.to_evaluate)
        running = {c.digest for c in tick.running}
        for digest in [d for d in self._bars if d not in running]:
            self._chains.remove_task(self._bars.pop(digest))
        for chain in tick.running:
            if chain.digest not in self._bars:
                self._bars[chain.digest] = self._chains.add_task(
                    f"chain {chain.digest[:8]}", total=chain.steps, note=""
                )
            loss = f"loss {chain.loss:.4f}" if chain.loss is not None else ""
            cycle = f"cycle {chain.cycle + 1}, " if chain.digest in self._cyclical else ""
            note = f"{cycle}{chain.stage} {loss}" if chain.step else "starting"
            self._chains.update(self._bars[chain.digest], completed=chain.step, note=note)
        self._live.update(self._draw())

    @property
    def _unit(self) -> str:
        return self._comparison.unit if self._comparison is not None else "steps"

    def _view(self, name: str) -> None:
        assert self._comparison is not None
        arm = next(a for a in self._comparison.arms if a.name == name)
        if self._live is None:
            cells = ", ".join(f"{m.label} {_cell(self._found[name], m)}" for m in self._metrics)
            self._say(f"{arm.label} ({arm.cost}), {len(self._found[name])} of {arm.repeats} repeats: {cells}")
        else:
            self._live.update(self._draw())

    def _draw(self) -> Group:
        parts: list[Table | Progress] = [self._chains, self._whole]
        if self._found and self._comparison is not None:
            parts.insert(0, self._table(self._comparison.arms))
        return Group(*parts)

    def _table(self, arms: Sequence[Arm]) -> Table:
        table = Table(box=box.SIMPLE)
        table.add_column("arm")
        table.add_column(f"{self._unit} per chain/total", justify="right")
        table.add_column("repeats", justify="right")
        table.add_column("chain s", justify="right")
        for metric in self._metrics:
            table.add_column(metric.label, justify="right")
            if any(metric.name in arm.published for arm in arms):
                table.add_column("published", justify="right")
        for arm in arms:
            found, seconds = self._found.get(arm.name, []), self._seconds.get(arm.name, [])
            cells = [f"{np.mean(seconds):.1f}" if seconds else "…"]
            for metric in self._metrics:
                cells.append(_cell(found, metric))
                if any(metric.name in a.published for a in arms):
                    cells.append(arm.published.get(metric.name, "–"))
            table.add_row(arm.label, arm.cost, f"{len(found)}/{arm.repeats}", *cells)
        return table

    def table(self) -> None:
        """Print the table as it stands, if anything is in it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._comparison is not None and self._found:
            self._console.print(self._table(self._comparison.arms))
            if self._saved:
                self._say(f"sharing chains between arms saved {self._saved:,} {self._unit}")


def _cell(found: Sequence[dict[str, float]], metric: Metric) -> str:
    """Mean ± s.e. over the repeats so far."""
    values = np.array([f[metric.name] for f in found]) * metric.scale
    if not len(values):
        return "…"
    mean = f"{values.mean():.{metric.digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{metric.digits}f}"


def _last_line(reason: str) -> str:
    """Of a traceback, what it was about."""
    return (reason.splitlines() or ["no reason given"])[-1]
