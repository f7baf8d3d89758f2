"""Terminal output of `raychains reproduce`: the plan at a scale, and each experiment as it is done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raychains.papers import pages, published_table
from raychains.papers.contents import MACHINES, hours_at
from raychains.papers.plan_status import ledger as ledger_of
from raychains.papers.scales import SCALES
from raychains.report.console import say

if TYPE_CHECKING:
    from raychains.papers.pages import Reproduced
    from raychains.papers.plan_status import PlannedReproduction
    from raychains.papers.study import Study

MOST_COLUMNS = 4
"""Up to which parts are printed side by side."""
STYLES = {"done": "", "not run": "yellow", "failed": "red", "unfinished": "yellow"}


def show_plan(console: Console, planned: PlannedReproduction) -> None:
    """Print what would be run at one scale, and what sharing chains saves; hours are measured ones, or estimates."""
    scale, ledger = planned.scale, planned.ledger
    title = f"scale {scale}: {SCALES[scale]}"
    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False, title=title, title_justify="left")
    for name in ("name", "part", "what", "data"):
        table.add_column(name, no_wrap=name == "name")
    for name in ("chains", "gradient evaluations", "hours"):
        table.add_column(name, justify="right")
    first = ""
    for part in planned.parts:
        experiment, own = part.experiment, ledger_of([part])
        new = experiment.name != first
        first = experiment.name
        problem = part.lacks or part.refused
        sizes = [f"{n:,}" if part.comparisons else "–" for n in (own.chains, own.unique)]
        data = Text(problem or "there", style="yellow" if problem else "")
        name, where = (experiment.name, experiment.where or experiment.title) if new else ("", "")
        taken = _hours(experiment, scale, planned.measured.get(experiment.name)) if new else ""
        table.add_row(name, part.part.name, where, data, *sizes, taken)
    console.print(table)
    say(
        console, f"hours of {MACHINES[scale]}: ≈ estimated, the others measured when the results in the store were made"
    )
    say(
        console,
        f"{ledger.chains:,} unique chains, {ledger.unique:,} gradient evaluations; sharing chains between experiments "
        f"saves {ledger.saved:,}. To run: {ledger.chains_to_run:,} chains, {ledger.to_run:,} gradient evaluations",
    )


def _hours(experiment: Study, scale: str, measured: float | None) -> str:
    if measured is not None:
        return f"{measured:.2g}" if measured >= 0.001 else "< 0.001"
    return hours_at(experiment, scale)


def show(console: Console, one: Reproduced) -> None:
    """Print one experiment that is done: its table, the verdicts on its claims, what was not run, and what was left."""
    experiment, folder, about = one.experiment, one.folder, one.about
    cells = folder.stored().get("cells", pages.EMPTY)
    table = pages.table_of(experiment, about["scale"], cells, about)
    whole = len(table.parts) * len(table.columns) <= MOST_COLUMNS
    for part in [table.parts] if whole else [(part,) for part in table.parts]:
        title = table.title if whole else f"{table.title}: {part[0].label}"
        console.print(published_table.rich_table(dataclasses.replace(table, parts=part, title=title)))
    for name, part in about["parts"].items():
        if part["reason"]:
            say(console, f"{name}: {part['status']}: {part['reason']}", STYLES[part["status"]])
    for name, reason in one.kept.items():
        say(console, f"{name}: this time {reason}; the result of before is left as it is", "yellow")
    for text in (*(verdict.line(about["scale"]) for verdict in one.verdicts), f"page: {folder.location('index.html')}"):
        say(console, text)
