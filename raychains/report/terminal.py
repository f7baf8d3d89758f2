"""Terminal output: progress of a run or a sweep and its table, costs of a plan, and the file of an export.

Without a terminal (a log file, a job) progress is occasional lines.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table as RichTable

from raychains.core import duration
from raychains.core.config import Plan
from raychains.core.errors import last_line
from raychains.evaluation.evaluation import Metric
from raychains.planning import Budget, events, gradient_evaluations
from raychains.planning.comparison import Arm, Comparison
from raychains.planning.costs import Costs, devices_of
from raychains.planning.sweep_plan import Point, shown
from raychains.plotting.tables import DASH, Row, Table, heads, terminal, texts, with_error
from raychains.report.console import LogInterval, fitting, say, standard_output
from raychains.report.live_view import LiveView
from raychains.store import SweepStore
from raychains.store.runs import BEST

if TYPE_CHECKING:
    from raychains.inference.export import Exported


class Terminal:
    """A callback that shows a run or a sweep on a terminal; use it as a context manager around the call.

    Args:
        console: where to draw; lines instead of live bars when it is no terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or standard_output()
        self._live = LiveView(self._console, self._table)
        self._comparison: Comparison | None = None
        self._sweep: events.SweepPlanned | None = None
        self._arms: dict[str, tuple[str, int]] = {}
        """By name an arm's or a point's text and its repeats."""
        self._names: dict[str, str] = {}
        """Names of chains, by digest: of a sweep's its point, of a run's the first arm that needs it, its repeat and
        number."""
        self._reported: dict[str, float] = {}
        """The deciding metric of a sweep's chains as last reported, by digest."""
        self._best: tuple[float, str] | None = None
        """The best point of a sweep so far: the mean of its deciding metric (negated where higher is better) and its
        line of text."""
        self._cyclical: set[str] = set()
        self._metrics: tuple[Metric, ...] = ()
        self._results = _Results()
        self._estimated = False
        self._saved = 0
        self._interval = LogInterval()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live view."""
        self._live.stop()

    def on(self, event: events.RunEvent) -> None:
        """Show one event."""
        match event:
            case events.Planned():
                self._planned(event)
            case events.SweepPlanned():
                self._sweep_planned(event)
            case events.PointChosen():
                self._add_point(event.point)
            case events.Evaluating():
                self._set_comparison(event.comparison)
            case events.Measuring():
                self._measuring(event)
            case events.Ready():
                self._ready(event)
            case events.Tick():
                self._tick(event)
            case events.ChainReported():
                self._reported[event.digest] = event.metrics[self._metrics[0].name]
            case events.ViewDone():
                self._results.add(event)
                self._view(event.arm)
            case events.Message():
                self._note(event.text)
            case events.Stopping():
                why = f" because {event.reason}" if event.reason else ""
                again = " (Ctrl-C again interrupts at once)" if self._console.is_terminal else ""
                self._say(f"stopping{why}: chains write checkpoints{again}", "yellow")
            case _:
                self._say(*self._message(event))

    def _say(self, text: str, style: str = "") -> None:
        if text:
            say(self._console, text, style)

    def _note(self, text: str) -> None:
        self._say(text, "yellow" if text.startswith("warning") else "")

    def _planned(self, plan: events.Planned) -> None:
        comparison, budget = plan.comparison, plan.budget
        self._set_comparison(comparison)
        self._saved = budget.saved_length
        self._cyclical = {d for d, spec in comparison.chains().items() if spec.schedule.kind == "cyclical"}
        unit = comparison.unit
        self._console.print(plan_table(comparison))
        if budget.saved_length:
            self._say(
                f"{budget.chains_of_arms} chains, {budget.unique_chains} unique: sharing saves {budget.saved_length:,} "
                f"of {budget.arms_length:,} {unit} ({budget.saved:,} gradient evaluations)"
            )
        done = budget.unique_chains - budget.chains_to_run
        self._say(
            f"to run: {budget.chains_to_run} chains, {budget.to_run_length:,} {unit}, {budget.to_run:,} gradient "
            "evaluations" + (f"; {done} chains are in the store already" if done else "")
        )
        for note in plan.notes:
            self._note(note)

    def _sweep_planned(self, planned: events.SweepPlanned) -> None:
        plan = planned.plan
        self._sweep, self._metrics = planned, (plan.metric,)
        for point in plan.points:
            self._add_point(point)
        swept = {name: v if isinstance(v, str) else ", ".join(map(shown, v)) for name, v in plan.swept.items()}
        rows = [Row((name,), texts(values)) for name, values in swept.items()]
        self._console.print(
            terminal(Table("swept", heads("values"), rows), f"{plan.task}: the sweep {planned.folder.name}")
        )
        how = {"grid": "all combinations", "random": "drawn independently", "optuna": "chosen by Optuna"}[plan.search]
        each = f", {plan.repeats} chains each" if plan.repeats > 1 else ""
        self._say(
            f"{plan.count} point{'s' * (plan.count != 1)}, {how}{each}; {plan.metric.label} on the split {plan.split} "
            "decides"
        )
        self._say(
            f"{plan.length} {plan.unit} and {plan.gradients:,} gradient evaluations per chain, "
            f"{plan.count * plan.repeats * plan.gradients:,} in all"
            + (f"; {planned.there} chains are in the store already" if planned.there else "")
        )
        if plan.asha is not None:
            self._say(
                f"ASHA: from {plan.asha.grace:.0%} of the {plan.unit} on, 1 in {plan.asha.reduction:g} goes on; what "
                "it stops depends on which chains are ahead, and so on the machine"
            )
        if plan.search == "optuna":
            self._say("Optuna's choice depends on which chains end first, and so on the machine")
        for note in plan.notes:
            self._note(note)

    def _add_point(self, point: Point) -> None:
        name, repeats = f"point {point.number}", len(point.specs)
        self._arms[point.name] = f"{name} ({point.text})", repeats
        for repeat, spec in enumerate(point.specs):
            about = f"{point.text}, repeat {repeat}" if repeats > 1 else point.text
            self._names.setdefault(spec.digest, f"{name} ({about})")
            if spec.schedule.kind == "cyclical":
                self._cyclical.add(spec.digest)

    def _name(self, digest: str | None, other: str = "") -> str:
        """Return a chain's name, or the ``other`` one where it is no chain."""
        if digest is None:
            return other
        return self._names.get(digest, f"chain {digest[:12]}")

    def _set_comparison(self, comparison: Comparison) -> None:
        from raychains import tasks

        self._comparison = comparison
        self._results = _Results()  # a fit's run before had others
        self._arms = {arm.name: (f"{arm.label} ({arm.cost})", arm.repeats) for arm in comparison.arms}
        starts: dict[str, str] = {}
        for arm in comparison.arms:
            for group, chains in enumerate(arm.chains):
                for number, spec in enumerate(chains):
                    name = self._names.setdefault(spec.digest, _chain_name(arm, group, number))
                    if spec.start_chain is not None:
                        starts.setdefault(spec.start_chain, f"start of {name}")
        self._names = {**starts, **self._names}
        metrics = tasks.build(comparison.task_spec).splits()[comparison.split].metrics
        self._metrics = tuple(m for m in metrics if not m.minor)

    def _ready(self, ready: events.Ready) -> None:
        where = "Ray is up" if ready.where == "Ray" else "in this process, without Ray"
        self._say(f"{where}: {ready.slots} slot{'s' * (ready.slots != 1)} of {ready.slot}")
        self._live.begin()

    def _measuring(self, done: events.Measuring) -> None:
        if self._live.on:
            self._live.count(done.what, done.done, done.total)
        elif self._interval.due():
            self._say(f"{time.strftime('%H:%M:%S')} {done.what}: {done.done}/{done.total}")

    def _tick(self, tick: events.Tick) -> None:
        left = f"{duration.text(tick.remaining_seconds)}" if tick.remaining_seconds is not None else ""
        if left and not self._estimated:
            self._estimated = True
            self._say(f"estimated from the first {self._unit}: {left} of sampling")
        note = self._best[1] if self._best is not None else f"about {left} left" if left else ""
        if self._live.on:
            self._live.show(tick, note, self._about)
        elif self._interval.due():
            self._say(f"{time.strftime('%H:%M:%S')} " + ", ".join(p for p in (progress(tick), note) if p))

    def _about(self, chain: events.ChainStatus) -> tuple[str, str]:
        """Return the name and the note of a chain's bar."""
        loss = f"loss {chain.loss:.4f}" if chain.loss is not None else self._value(chain.digest)
        cycle = f"cycle {chain.cycle + 1}," if chain.digest in self._cyclical else ""
        note = " ".join(filter(None, (cycle, chain.stage, loss))) if chain.step else "starting"
        if chain.stalled_seconds is not None:
            note = f"silent for {duration.text(chain.stalled_seconds)}"
        return self._name(chain.digest), note

    @property
    def _unit(self) -> str:
        return self._comparison.unit if self._comparison is not None else "steps"

    def _value(self, digest: str) -> str:
        """Return the last reported value of a sweep's chain."""
        if digest not in self._reported:
            return ""
        return f"{self._metrics[0].label} {with_error(self._reported[digest], np.nan, self._metrics[0])}"

    def _view(self, name: str) -> None:
        if self._live.on and self._sweep is None:
            self._live.draw()
            return
        (about, repeats), found = self._arms[name], self._results.metrics[name]
        cells = ", ".join(f"{m.label} {_cell(found, m)}" for m in self._metrics)
        self._say(f"{about}, {len(found)} of {repeats} repeats: {cells}")
        if self._sweep is not None and len(found) == repeats:
            metric = self._metrics[0]
            mean = float(np.mean([one[metric.name] for one in found])) * (-1 if metric.better == "higher" else 1)
            if np.isfinite(mean) and (self._best is None or mean < self._best[0]):
                self._best = mean, f"best so far {about}: {cells}"

    def _table(self) -> RichTable | None:
        """Return the comparison's table; None while nothing is in it."""
        if self._comparison is None or not self._results.metrics:
            return None
        columns = self._results.columns(self._comparison, self._metrics)
        cells = zip(*(cells for _, cells in columns), strict=True)
        rows = [Row((a.label,), texts(*mine)) for a, mine in zip(self._comparison.arms, cells, strict=True)]
        table = Table("arm", heads(*(head for head, _ in columns)), rows)
        # A narrow terminal would break numbers over lines: costs go first, then the last metrics.
        order = [2, 0, 1, *range(len(columns) - 1, 3, -1)]
        return fitting(self._console, lambda left_out: terminal(table.without(left_out)), order)

    def table(self) -> None:
        """Print the table as it stands, if anything is in it; of a sweep also how to run the best point."""
        self.close()
        if self._sweep is not None:
            self._points_table(self._sweep.folder)
        if (table := self._table()) is not None:
            self._console.print(table)
            if self._saved:
                self._say(f"sharing chains between arms saved {self._saved:,} {self._unit}")

    def _points_table(self, folder: SweepStore) -> None:
        from raychains.report.sweep import rows

        if folder.table("results") is not None:
            self._console.print(rows.shortened(self._console, folder))
        if folder.best() is not None:
            best = folder.location(BEST)
            self._say(f"the best point is in {best}; to run it with several chains: raychains run --options {best}")

    def _message(self, event: events.RunEvent) -> tuple[str, str]:
        """Return the line of an event that needs nothing else, and its style; no text of one without a line."""
        match event:
            case events.ChainFailed(digest=digest, reason=reason):
                return f"{self._name(digest)} failed: {last_line(reason)}", "red"
            case events.ChainDropped(digest=digest, reason=reason):
                return f"{self._name(digest)} diverged and is left out of its arms: {reason}", "red"
            case events.ChainStopped(digest=digest, reason=reason):
                return f"{self._name(digest)} {reason}: {self._value(digest)}", "dim"
            case events.ChainRestarted(digest=digest, reason=reason, attempt=attempt):
                back = f"back to the start of its cycle with fresh noise (restart {attempt})"
                return f"{self._name(digest)} diverged: {reason}; {back}", "yellow"
            case events.TornCheckpoint(digest=digest, file=file, reason=reason):
                return f"{self._name(digest)} resumes from a checkpoint before {file}: {reason}", "yellow"
            case events.Waiting(reason=reason):
                return f"waiting: {reason}", "yellow"
            case events.Resumed():
                return "the run resumes: what it waited for is available again", "yellow"
            case events.Stalled(digest=digest, slot=slot, reason=reason, seconds=seconds):
                what = self._name(digest, "evaluation" if slot is None else f"slot {slot}")
                return (
                    f"{what} stalls for {duration.text(seconds)}: {reason}; if that lasts, another worker takes over",
                    "yellow",
                )
            case events.StallEnded(digest=digest):
                return f"{self._name(digest, 'evaluation')} goes on", "yellow"
            case events.WorkerLost(slot=slot, reason=reason, digest=digest):
                chain = self._name(digest, "its chain")
                return f"slot {slot} is gone ({last_line(reason)}); {chain} resumes in another", "yellow"
            case events.Preempted(slot=slot, digest=digest):
                chain = f"; {self._name(digest)} resumes in another" if digest is not None else ""
                return f"slot {slot} is given up, since its node is draining{chain}", "yellow"
        return "", ""


class _Results:
    """Results of the repeats of each arm so far, of one number for each repeat."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[Mapping[str, float]]] = defaultdict(list)
        """By arm or point."""
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._gradients: dict[str, list[int]] = defaultdict(list)

    def add(self, done: events.ViewDone) -> None:
        """Add an evaluated view's."""
        self.metrics[done.arm] += done.metrics
        self._seconds[done.arm] += [done.chain_seconds] * len(done.metrics)
        if done.gradients is not None:
            self._gradients[done.arm] += [done.gradients] * len(done.metrics)

    def columns(self, comparison: Comparison, metrics: Sequence[Metric]) -> list[tuple[str, list[str]]]:
        """Return heads and cells by arm: costs, repeats, seconds, and each metric beside its published values."""
        arms = comparison.arms
        cost = f"{comparison.unit} per chain/total", [arm.cost for arm in arms]
        if not comparison.cost_is_length:
            # Gradients of one repeat: those of the chains that its own start at are among them.
            cost = "gradient evaluations", [_mean(self._gradients[arm.name], ",.0f") for arm in arms]
        done = [f"{len(self.metrics[arm.name])}/{arm.repeats}" for arm in arms]
        seconds = [_mean(self._seconds[arm.name], ".1f") for arm in arms]
        columns = [cost, ("repeats", done), ("chain s", seconds)]
        for metric in metrics:
            columns.append((metric.label, [_cell(self.metrics[arm.name], metric) for arm in arms]))
            if any(metric.name in arm.published for arm in arms):
                columns.append(("published", [arm.published.get(metric.name, DASH) for arm in arms]))
        return columns


def _mean(values: Sequence[float], form: str) -> str:
    return f"{np.mean(values):{form}}" if values else "…"


def _chain_name(arm: Arm, group: int, number: int) -> str:
    """Return ``cSGLD, repeat 2, chain 3`` of a chain, with what tells it from the arm's others."""
    chains = arm.chains[group]
    lanes = chains[0].lanes
    repeat = f"repeat {group + 1}" if lanes == 1 else f"repeats {group * lanes + 1} to {(group + 1) * lanes}"
    parts = [re.sub(r", \d+ chains?\b", "", arm.label), repeat if arm.repeats > 1 else "", f"chain {number + 1}"]
    return ", ".join(part for part in (parts if len(chains) > 1 else parts[:2]) if part)


def _cell(found: Sequence[Mapping[str, float]], metric: Metric) -> str:
    """Mean ± s.e. over the repeats so far."""
    values = [f[metric.name] for f in found]
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return with_error(float(np.mean(values)), float(error), metric) if values else "…"


def progress(tick: events.Tick) -> str:
    """A run's progress in one line: chains done, those that run with their share of steps and mean loss,
    evaluations."""
    parts = [f"{tick.finished}/{tick.chains} chains"]
    if tick.running:
        shares = [100 * c.step / c.steps for c in tick.running]
        least, most = f"{min(shares):.0f}", f"{max(shares):.0f}"
        losses = [c.loss for c in tick.running if c.loss is not None]
        loss = f", mean loss {sum(losses) / len(losses):.4f}" if losses else ""
        parts.append(f"{len(tick.running)} running at {least if least == most else f'{least}–{most}'} %{loss}")
        if stalled := sum(c.stalled_seconds is not None for c in tick.running):
            parts.append(f"{stalled} of them stalled")
    if tick.to_evaluate:
        parts.append(f"{tick.evaluated}/{tick.to_evaluate} samples evaluated")
    return ", ".join(parts)


def plan_table(comparison: Comparison) -> RichTable:
    """The arms with their chains and lengths, and with their steps and gradient evaluations: in a sentence where a unit
    of length has as many in every arm, else in columns."""
    arms, unit = comparison.arms, comparison.unit
    specs = [[spec for group in arm.chains for spec in group] for arm in arms]
    gradients = [sum(map(gradient_evaluations, comparison.needed(chains).values())) for chains in specs]
    lengths = [arm.length for arm in arms]
    totals = [arm.length * len(arm.chains[0]) * arm.repeats for arm in arms]
    columns = {
        "repeats": [str(arm.repeats) for arm in arms],
        "chains": [str(len(chains)) for chains in specs],
        f"{unit} per chain/total": [arm.cost for arm in arms],
    }
    each = []
    for name, what, counts, of in (
        ("steps per chain", "steps of a chain", [chains[0].steps for chains in specs], lengths),
        ("gradient evaluations", "gradient evaluations", gradients, totals),
    ):
        ratio = counts[0] // of[0]
        if counts != [ratio * n for n in of]:
            columns[name] = [f"{n:,}" for n in counts]
        elif ratio > 1:
            each.append(f"{ratio:,} {what}")
    rows = [Row((arm.label,), texts(*cells)) for arm, *cells in zip(arms, *columns.values(), strict=True)]
    caption = f"One {unit.removesuffix('s')}: {', '.join(each)}." if each else ""
    return terminal(Table("arm", heads(*columns), rows), f"{comparison.task}: the plan", caption)


def show_costs(
    console: Console,
    options: Plan,
    comparison: Comparison,
    budget: Budget,
    costs: Costs,
    rate: float | None,
) -> None:
    """Print the arms of a plan and what is still to be paid for."""
    console.print(plan_table(comparison))
    for line in cost_lines(options, budget, costs, rate):
        say(console, line)


def cost_lines(options: Plan, budget: Budget, costs: Costs, rate: float | None) -> list[str]:
    """Sentences about the costs; ``rate`` is the gradient evaluations a second of one device."""
    done = budget.unique_chains - budget.chains_to_run
    found = [
        f"to run: {costs.chains} chains, {costs.gradients:,} gradient evaluations"
        + (f"; sharing saves {budget.saved:,}" if budget.saved else "")
        + (f"; {done} chains are in the store already" if done else "")
    ]
    if rate is None:
        found.append(
            "device hours: give --measured-on a run, or --images-per-second, which benchmarks/chain.py --device cuda "
            "measures"
        )
    else:
        hours = costs.device_hours(rate)
        devices = devices_of(options, costs)
        found.append(
            f"device hours: {hours:,.1f} at {rate:,.6g} images/s each, "
            f"{hours / devices / 24:,.2f} days on {devices:,} devices, evaluation not counted"
        )
        if options.price is not None:
            found.append(f"price: {hours * options.price:,.2f} at {options.price:,.6g} an hour")
    found.append(
        f"bytes: {decimal(costs.sample_bytes)} of {costs.samples:,} samples, {decimal(costs.checkpoint_bytes)} of "
        f"checkpoints at a time, {decimal(costs.prediction_bytes)} of predictions if all are kept"
    )
    return found


def export_lines(exported: Exported) -> tuple[str, str]:
    """Sentences about an exported file: its contents, and the line of Python that loads it."""
    network, by_path = exported.network, (exported.network, exported.likelihood)
    model = ", model=net" if network is None else ""
    model += ", trust=True" if any("path" in stated for stated in by_path if stated is not None) else ""
    many = f"{exported.samples} sample{'s' * (exported.samples != 1)}"
    return (
        f"exported: {exported.path}, {many} of {exported.arm}, {decimal(exported.bytes)}",
        f'load it: raychains.PosteriorPredictive.load("{exported.path}"{model})',
    )
