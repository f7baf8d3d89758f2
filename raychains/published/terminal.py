"""What `raychains reproduce` prints: what there is, what would be run, and each experiment as it is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raychains.published import output, tables
from raychains.published.experiment import SCALES

if TYPE_CHECKING:
    from raychains.published.claims import Verdict
    from raychains.published.experiment import Experiment
    from raychains.published.folder import Folder
    from raychains.published.standing import Ledger, PlannedPart

MOST_COLUMNS = 4
"""Up to which parts stand side by side: a terminal is no page."""
MACHINES = {"smoke": "two cores", "cpu": "two cores", "gpu": "one GPU", "paper": "one GPU"}
STYLES = {"done": "", "not run": "yellow", "failed": "red", "unfinished": "yellow"}


def show_plan(
    console: Console, scale: str, parts: Sequence[PlannedPart], ledger: Ledger, measured: Mapping[str, float]
) -> None:
    """What would be run at one scale, and what sharing chains saves; hours are those measured by experiment, or estimates."""
    from raychains.published.standing import ledger as of

    table = Table(box=box.SIMPLE, title=f"scale {scale}: {SCALES[scale]}", title_justify="left")
    for name in ("name", "part", "what", "data", "chains", "gradient evaluations", "hours"):
        table.add_column(name, justify="right" if name in ("chains", "gradient evaluations", "hours") else "left")
    first = ""
    for part in parts:
        experiment, own = part.experiment, of([part])
        new = experiment.name != first
        first = experiment.name
        sampled = bool(part.comparisons)
        table.add_row(
            experiment.name if new else "", part.part.name, experiment.where if new else "",
            Text(part.lacks or part.refused or "there", style="yellow" if part.lacks or part.refused else ""),
            f"{own.chains:,}" if sampled else "–", f"{own.unique:,}" if sampled else "–",
            _hours(experiment, scale, measured.get(experiment.name)) if new else "",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"hours of {MACHINES[scale]}: ≈ estimated, the others measured when the results in the store were made"
    )
    console.print(
        f"{ledger.chains:,} unique chains, {ledger.unique:,} gradient evaluations; sharing chains between experiments saves "
        f"{ledger.saved:,}. To run: {ledger.chains_to_run:,} chains, {ledger.to_run:,} gradient evaluations",
        soft_wrap=True,
    )


def _hours(experiment: Experiment, scale: str, measured: float | None) -> str:
    if measured is not None:
        return f"{measured:.2g}" if measured >= 0.001 else "< 0.001"
    return f"≈ {experiment.hours[scale]:g}" if experiment.hours[scale] else "–"


def show(
    console: Console,
    experiment: Experiment,
    folder: Folder,
    about: Mapping[str, Any],
    verdicts: Sequence[Verdict],
    kept: Mapping[str, str],
) -> None:
    """One experiment that is done: its table, what became of its claims, what was not run, and what was left as it was."""
    cells = output.stored(folder, about).get("cells", output.EMPTY)
    table = output.table_of(experiment, about["scale"], cells, about)
    beside = len(table.parts) * len(table.columns) <= MOST_COLUMNS
    for part in [table.parts] if beside else [(part,) for part in table.parts]:
        title = table.title if beside else f"{table.title}: {part[0].label}"
        console.print(tables.rich_table(dataclasses.replace(table, parts=part, title=title)))
    for name, part in about["parts"].items():
        if part["reason"]:
            console.print(
                Text(f"{name}: {part['status']}: {part['reason']}", style=STYLES[part["status"]]), soft_wrap=True
            )
    for name, reason in kept.items():
        console.print(
            Text(f"{name}: this time {reason}; the result of before is left as it is", style="yellow"), soft_wrap=True
        )
    for verdict in verdicts:
        console.print(Text(verdict.line), soft_wrap=True)
    console.print(Text(f"page: {folder.location('index.html')}"), soft_wrap=True)
