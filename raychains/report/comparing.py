"""Runs side by side: one page with their arms in one table, what sets them apart, and their figures overlaid."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

import raychains
from raychains.errors import UserError
from raychains.evaluation.base import Metric
from raychains.planning import Comparison
from raychains.report import differences, page
from raychains.report.figures import beside
from raychains.report.material import Material
from raychains.report.style import THEMES
from raychains.report.table import DASH, Cell, best, head, shown
from raychains.store import RunStore

log = logging.getLogger(__name__)

LONGEST_NAME = 100
"""Characters of the page's file name; longer ones end in a digest."""


class Run(Protocol):
    """A run in its store, as `raychains.api.Result` is."""

    @property
    def store(self) -> RunStore: ...

    @property
    def comparison(self) -> Comparison: ...


@dataclass(frozen=True)
class Row:
    """One arm of one run."""

    run: int
    first: bool
    """Whether it is the run's first."""
    label: str
    cells: list[Cell]


@dataclass(frozen=True)
class Difference:
    """One arm of a later run less one of the first."""

    run: str
    arm: str
    against: str
    cells: list[Cell]


def file_name(runs: Sequence[Run]) -> str:
    """``compare-OTHER+….html``: the page is in the first run's folder and named by the others."""
    return f"{_stem(runs)}.html"


def _stem(runs: Sequence[Run]) -> str:
    others = "+".join(run.store.name for run in runs[1:])
    stem = f"compare-{others}"
    if len(stem) <= LONGEST_NAME:
        return stem
    return f"{stem[: LONGEST_NAME - 9]}-{hashlib.sha256(others.encode()).hexdigest()[:8]}"


def write(runs: Sequence[Run]) -> str:
    """Draw the page that lays runs side by side into the first run's folder, with ``figures/compare-….svg|png|parquet``.

    Args:
        runs: two or more, all of one task and evaluated on one split; settings may differ.

    Returns where the page lies. It is complete in itself, as a run's own page is.

    Raises:
        UserError: fewer than two runs, one that is named twice, other tasks or splits, or a run without results.
    """
    check(runs)
    materials = [Material(run.store, run.comparison) for run in runs]
    names = _names(runs)
    metrics = _metrics(materials)
    summary = _summary(materials)
    pairs, problems = differences.paired(materials)
    figures, failed = page.drawn(runs[0].store, beside.MAKERS, materials, names, stem=f"{_stem(runs)}-")
    shared = set(runs[0].comparison.chains()).intersection(*(run.comparison.chains() for run in runs[1:]))
    text = page.template("compare.html.j2").render(
        style=page.style(),
        names=names,
        colours=[[beside.colour(theme, i) for theme in THEMES] for i in range(len(runs))],
        facts=[
            ("Task", [runs[0].comparison.task]),
            ("Evaluated on", [f"the split “{runs[0].comparison.split}”"]),
            *((name, [run.store.location()]) for name, run in zip(names, runs, strict=True)),
        ],
        columns=["Cost", "Repeats", "Samples", "Chain seconds", *map(head, metrics)],
        rows=_rows(materials, metrics, summary),
        shared=len(shared),
        settings=differences.settings(materials),
        paired_columns=[m.label for m in metrics if m.name in {p.metric.name for p in pairs}],
        paired=_paired(pairs, names, [m for m in metrics if m.name in {p.metric.name for p in pairs}]),
        level=pairs[0].interval.level if pairs else 0.95,
        problems=problems,
        figures=list(figures.values()),
        failed=failed,
        version=raychains.__version__,
    )
    return runs[0].store.write_file(file_name(runs), text.encode(errors="replace"))


def check(runs: Sequence[Run]) -> None:
    """Whether these can lie side by side; `write` tells what is raised."""
    if len(runs) < 2:
        raise UserError(f"compare must name other runs than the first, got {len(runs) - 1} of them")
    first = runs[0]
    seen: set[str] = set()
    for run in runs:
        if (place := run.store.location()) in seen:
            raise UserError(f"compare must name every run once, got {place} twice")
        seen.add(place)
    for run in runs[1:]:
        ours, theirs = first.comparison, run.comparison
        if (ours.task, ours.task_spec.kind) != (theirs.task, theirs.task_spec.kind):
            raise UserError(
                f"compare must name runs of one task, got {ours.task} ({first.store.name}) and {theirs.task} "
                f"({run.store.name})"
            )
        if ours.split != theirs.split:
            raise UserError(
                f"compare must name runs evaluated on one split, got {ours.split} ({first.store.name}) and "
                f"{theirs.split} ({run.store.name})"
            )
    for run in runs:
        table = run.store.table("results")
        if table is None or not table.num_rows:
            raise UserError(
                f"compare must name runs with results, got {run.store.location()}: continue it with --resume, or "
                f"evaluate it"
            )


def _names(runs: Sequence[Run]) -> list[str]:
    """What the runs are called on the page: their names, with their stores where names are not enough."""
    names = [run.store.name for run in runs]
    return [run.store.location() if names.count(run.store.name) > 1 else run.store.name for run in runs]


def _metrics(materials: Sequence[Material]) -> list[Metric]:
    """The comparison's metrics that any of the runs has, in the order of the first that has them."""
    return list({m.name: m for material in reversed(materials) for m in reversed(material.metrics)}.values())[::-1]


def _summary(materials: Sequence[Material]) -> pd.DataFrame:
    """One row per run and arm, ``0 arm``: means and standard errors."""
    tables = []
    for i, material in enumerate(materials):
        table = material.summary
        tables.append(table.set_axis([_key(i, arm) for arm in table.index], axis=0))
    return pd.concat(tables)


def _key(run: int, arm: str) -> str:
    return f"{run} {arm}"


def _rows(materials: Sequence[Material], metrics: Sequence[Metric], summary: pd.DataFrame) -> list[Row]:
    bold = {m.name: best(summary, m) for m in metrics}
    out = []
    for i, material in enumerate(materials):
        for a, arm in enumerate(material.comparison.arms):
            key = _key(i, arm.name)
            row = summary.loc[key]
            cells = [Cell(arm.cost + f" {material.comparison.unit}"), Cell(f"{int(row['repeats'])}")]
            cells += [Cell(f"{int(row['samples']):,}"), Cell(_seconds(float(row["chain_seconds"])))]
            for m in metrics:
                known = m.name in summary.columns
                values = (float(row[m.name]), float(row[f"{m.name}_se"])) if known else (float("nan"),) * 2
                cells.append(Cell(shown(values[0], values[1], m), key in bold[m.name]))
            out.append(Row(i, a == 0, arm.label, cells))
    return out


def _seconds(value: float) -> str:
    if value != value:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _paired(pairs: Sequence[differences.Paired], names: Sequence[str], metrics: Sequence[Metric]) -> list[Difference]:
    out: dict[tuple[int, str], Difference] = {}
    for pair in pairs:
        made = Difference(names[pair.run], pair.arm.label, pair.against.label, [Cell(DASH) for _ in metrics])
        row = out.setdefault((pair.run, pair.arm.name), made)
        found, scale = pair.interval, pair.metric.scale
        value, low, high = (f"{v * scale:+.{pair.metric.digits}f}" for v in (found.value, found.low, found.high))
        at = [m.name for m in metrics].index(pair.metric.name)
        row.cells[at] = Cell(f"{value}\n[{low}, {high}]", pair.distinct)
    return list(out.values())
