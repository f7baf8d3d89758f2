"""Runs side by side: one page with their arms in one table, the settings that differ, paired differences and
figures."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from raychains.core.errors import UserError
from raychains.evaluation import bootstrap
from raychains.evaluation.evaluation import BINS, Array, Metric
from raychains.inference.run_data import RunData
from raychains.planning import Arm, Comparison
from raychains.plotting.style import hue
from raychains.plotting.tables import DASH, Cell, Row, Table, heads, html, seconds, texts, with_error
from raychains.report import run_page
from raychains.report.figures import overlay
from raychains.report.run_tables import best, head
from raychains.store import RunStore

LONGEST_NAME = 100
"""Characters of the page's file name; longer ones end in a digest."""
ANSWERS = ("label", "target")
"""Columns by which the same examples are recognised."""
LONGEST = 44
"""Characters of a setting's value at most."""
OF_ONE_CHAIN = ("format", "repeat", "chain")
"""Keys of a spec that belong to one chain and not to the run."""


class Run(Protocol):
    """A run in its store, as `raychains.api.Result` is."""

    @property
    def store(self) -> RunStore: ...

    @property
    def comparison(self) -> Comparison: ...


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
    """Draw the page that lays runs side by side into the first run's folder, with
    ``figures/compare-….svg|png|parquet``.

    Args:
        runs: two or more, all of one task and evaluated on one split; settings may differ.

    Returns where the page lies. It is complete in itself, as a run's own page is.

    Raises:
        UserError: fewer than two runs, one that is named twice, other tasks or splits, or a run without results.
    """
    check(runs)
    data = [RunData(run.store, run.comparison) for run in runs]
    names = [run.store.name for run in runs]
    names = [r.store.location() if names.count(r.store.name) > 1 else r.store.name for r in runs]
    pairs, problems = paired(data)
    figures, failed = run_page.drawn(runs[0].store, overlay.FIGURES, data, names, stem=f"{_stem(runs)}-")
    shared = set(runs[0].comparison.chains()).intersection(*(run.comparison.chains() for run in runs[1:]))
    differing = [Row((name,), texts(*values)) for name, values in settings(data)]
    text = run_page.filled(
        "compare.html.j2",
        names=names,
        summary=[
            ("Task", [runs[0].comparison.task]),
            ("Evaluated on", [f"the split “{runs[0].comparison.split}”"]),
            *((name, [run.store.location()]) for name, run in zip(names, runs, strict=True)),
        ],
        table=html(_table(data, names), "arms", "results"),
        shared=len(shared),
        settings=html(Table("Setting", heads(*names), differing), "differing", "settings") if differing else "",
        paired=html(_paired_table(pairs, names, _metrics(data)), "paired", "results paired") if pairs else "",
        level=bootstrap.LEVEL,
        problems=problems,
        figures=list(figures.values()),
        failed=failed,
    )
    return runs[0].store.write_file(file_name(runs), text)


def check(runs: Sequence[Run]) -> None:
    """Raise `write`'s errors for runs that cannot lie side by side."""
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
                f"compare must name runs with results, got {run.store.location()}: continue it with `resume=True`, or "
                f"evaluate it"
            )


def _table(runs: Sequence[RunData], names: Sequence[str]) -> Table:
    """All arms of all runs; the best of all in bold."""
    metrics = _metrics(runs)
    summary = pd.concat(
        [run.summary.set_axis([f"{i} {arm}" for arm in run.summary.index]) for i, run in enumerate(runs)]
    )
    bold = {m.name: best(summary, m) for m in metrics}
    rows = []
    for i, run in enumerate(runs):
        for a, arm in enumerate(run.comparison.arms):
            key = f"{i} {arm.name}"
            row = summary.loc[key]
            drawn = run.draws(arm) if run.by_blocks and row["repeats"] else int(row["samples"])
            cost = f"{arm.cost} {run.comparison.unit}", f"{int(row['repeats'])}", f"{drawn:,}"
            cells = texts(*cost, seconds(float(row["chain_seconds"])))
            for m in metrics:
                text = with_error(float(row.get(m.name, np.nan)), float(row.get(f"{m.name}_se", np.nan)), m)
                cells.append(Cell(text, key in bold[m.name]))
            rows.append(Row((names[i], arm.label), cells, hue(i), "" if a else "begins"))
    kept = "Draws" if runs[0].by_blocks else "Samples"
    return Table("Arm", heads("Cost", "Repeats", kept, "Chain seconds", *map(head, metrics)), rows)


def _metrics(runs: Sequence[RunData]) -> list[Metric]:
    """The comparison's metrics that any of the runs has, in the order of the first that has them."""
    return list({m.name: m for run in reversed(runs) for m in reversed(run.metrics)}.values())[::-1]


def _paired_table(pairs: Sequence[Paired], names: Sequence[str], metrics: Sequence[Metric]) -> Table:
    metrics = [m for m in metrics if m.name in {p.metric.name for p in pairs}]
    found: dict[tuple[int, str], list[Paired]] = {}
    for pair in pairs:
        found.setdefault((pair.run, pair.arm.name), []).append(pair)
    rows = []
    for own in found.values():
        cells = {m.name: Cell(DASH) for m in metrics}
        for pair in own:
            ends = (pair.interval.value, pair.interval.low, pair.interval.high)
            value, low, high = (f"{v * pair.metric.scale:+.{pair.metric.digits}f}" for v in ends)
            cells[pair.metric.name] = Cell(f"{value}\n[{low}, {high}]", pair.distinct)
        rows.append(Row((own[0].arm.label,), [*texts(names[own[0].run], own[0].against.label), *cells.values()]))
    return Table("Arm", heads("Run", f"less, of {names[0]}", *(m.label for m in metrics)), rows)


# Settings that differ


def settings(runs: Sequence[RunData]) -> list[tuple[str, list[str]]]:
    """The settings that differ between the runs, each with every run's value (or values, of its arms)."""
    found = [_settings(run) for run in runs]
    names = dict.fromkeys(name for each in found for name in each)
    rows = [(name, [each.get(name, ()) for each in found]) for name in names]
    return [(name, _texts(each)) for name, each in rows if len(set(each)) > 1]


def _texts(each: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the runs' values as they are shown: shortened, unless they are alike then."""
    whole, short = ([", ".join(map(of, values)) or "–" for values in each] for of in (str, _shortened))
    return short if len(set(short)) == len(set(whole)) else whole


def _settings(run: RunData) -> dict[str, tuple[str, ...]]:
    """Name to the values that the run's arms have, each once, in their order."""
    found: dict[str, dict[str, None]] = {}

    def add(name: str, value: Any) -> None:
        found.setdefault(name, {})[_text(value)] = None

    for arm in run.comparison.arms:
        add(f"{run.comparison.unit} per chain", arm.length)
        add("chains per repeat", len(arm.chains[0]))
        add("repeats", arm.repeats)
        for name, value in arm.chains[0][0].to_json().items():
            if name in OF_ONE_CHAIN:
                continue
            if isinstance(value, dict):
                for inner, setting in value.items():
                    add(name if inner == "kind" else f"{name}: {inner}", setting)
            else:
                add(name.replace("_", " "), value)
    for environment, _ in run.environments:
        add("environment", environment)
    add("bins", run.store.plan().get("bins", BINS))
    return {name: tuple(values) for name, values in found.items()}


def _text(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    with contextlib.suppress(ValueError):
        return text if text.lstrip("-").replace(",", "").isdigit() else f"{float(text):g}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# Paired differences


@dataclass(frozen=True)
class Paired:
    """One arm of a later run against one of the first, on the same examples."""

    run: int
    arm: Arm
    against: Arm
    metric: Metric
    interval: bootstrap.Interval
    """The metric under ``arm`` less that under ``against``; the examples are resampled, the samples are held."""

    @property
    def distinct(self) -> bool:
        """True if the interval excludes zero."""
        return self.interval.low > 0 or self.interval.high < 0


def paired(runs: Sequence[RunData]) -> tuple[list[Paired], list[str]]:
    """Every arm of the later runs against the first run's of the same name, or else against its first arm.

    The second list has a sentence for each run that cannot be paired.
    """
    first, *others = runs
    arms = {arm.name: arm for arm in first.comparison.arms}
    reference = {name: points(first, arm) for name, arm in arms.items()}
    found: list[Paired] = []
    problems: list[str] = []
    for number, run in enumerate(others, start=1):
        why: set[str] = set()
        for arm in run.comparison.arms:
            against = arms.get(arm.name, first.comparison.arms[0])
            try:
                intervals = _intervals(points(run, arm), reference[against.name], run.metrics)
            except UserError as error:
                why.add(str(error))
                continue
            found += [Paired(number, arm, against, m, intervals[m.name]) for m in run.metrics if m.name in intervals]
        problems += [f"Run {run.store.name} is not paired with {first.store.name}: {reason}." for reason in sorted(why)]
    return found, problems


def _intervals(ours: Points | None, theirs: Points | None, metrics: Iterable[Metric]) -> dict[str, bootstrap.Interval]:
    """Return the paired intervals of the metrics that both have.

    Raises:
        UserError: other examples, too few of them, or a metric that is not finite.
    """
    if ours is None or theirs is None:
        raise UserError("its rows are not of examples with labels")
    if not same_examples(ours, theirs):
        raise UserError("its examples have other labels")
    return bootstrap.paired({m.name: ours[m.name] for m in metrics if m.name in ours}, theirs)


Points = dict[str, Array]
"""Per example: the answer (``label`` or ``target``), and metrics by name, mean over the groups of repeats."""


def points(run: RunData, arm: Arm) -> Points | None:
    """An arm's answers and metrics at every example; None where the run's rows do not have them."""
    rows = run.rows
    names = set(rows.column_names) if rows is not None else set()
    answer = next((name for name in ANSWERS if name in names), None)
    if rows is None or answer is None or "group" not in names:
        return None
    mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
    parts = [mine.filter(pc.equal(mine["group"], group)) for group in sorted(set(mine["group"].to_pylist()))]
    if len({part.num_rows for part in parts}) != 1:  # no repeats, or unequal ones
        return None
    found: Points = {answer: _column(parts[0], answer)}
    if {"prediction", "label"} <= names:
        found["error"] = np.mean([_column(p, "prediction") != _column(p, "label") for p in parts], axis=0)
    for column, name, sign in (("log_p_label", "nll", -1), ("log_p", "nll", -1), ("brier", "brier", 1)):
        if column in names:
            found[name] = sign * np.mean([_column(p, column) for p in parts], axis=0)
    return found


def _column(table: Any, name: str) -> Array:
    column = table[name]
    if pa.types.is_list(column.type):  # several outputs per example
        return np.stack([np.asarray(value) for value in column.to_pylist()])
    return np.asarray(column.to_numpy())


def same_examples(first: Points, second: Points) -> bool:
    """Return whether two runs' rows have the same answers in the same order."""
    return any(name in first and name in second and np.array_equal(first[name], second[name]) for name in ANSWERS)
