"""Between runs: in which settings they differ, and by how much where they were evaluated on the same examples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raychains.evaluation.base import Array, Metric
from raychains.evaluation.bootstrap import Interval, paired_difference
from raychains.planning import Arm
from raychains.report.material import Material

ANSWERS = ("label", "target")
"""Columns by which the same examples are known again."""
LONGEST = 44
"""Characters of a setting's value that are shown."""
UNTOLD = ("format", "repeat", "chain")
"""What a spec says of one chain and not of the run."""


def settings(runs: Sequence[Material]) -> list[tuple[str, list[str]]]:
    """The settings that differ between the runs, each with every run's value (or values, of its arms)."""
    told = [_settings(run) for run in runs]
    names = dict.fromkeys(name for each in told for name in each)
    rows = [(name, [each.get(name, ()) for each in told]) for name in names]
    return [(name, [", ".join(values) or "–" for values in each]) for name, each in rows if len(set(each)) > 1]


def _settings(run: Material) -> dict[str, tuple[str, ...]]:
    """Name to the values that the run's arms have, each once, in their order."""
    found: dict[str, dict[str, None]] = {}

    def tell(name: str, value: Any) -> None:
        found.setdefault(name, {})[_text(value)] = None

    for arm in run.comparison.arms:
        tell(f"{run.comparison.unit} per chain", arm.length)
        tell("chains per repeat", len(arm.chains[0]))
        tell("repeats", arm.repeats)
        for name, value in arm.chains[0][0].to_json().items():
            if name in UNTOLD:
                continue
            if isinstance(value, dict):
                for inner, setting in value.items():
                    tell(name if inner == "kind" else f"{name}: {inner}", setting)
            else:
                tell(name.replace("_", " "), value)
    for environment, _ in run.environments:
        tell("environment", environment)
    return {name: tuple(values) for name, values in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        text = json.dumps(value)
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@dataclass(frozen=True)
class Paired:
    """One arm of a later run against one of the first, on the same examples."""

    run: int
    arm: Arm
    against: Arm
    metric: Metric
    interval: Interval
    """Of the metric under ``arm`` less that under ``against``; resampled are the examples, the samples are held."""

    @property
    def distinct(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.interval.low > 0 or self.interval.high < 0


def paired(runs: Sequence[Material]) -> tuple[list[Paired], list[str]]:
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
            ours, theirs = points(run, arm), reference[against.name]
            if ours is None or theirs is None:
                why.add("its rows are not of examples with labels")
            elif not same_examples(ours, theirs):
                why.add("its examples have other labels")
            else:
                found += _pair(number, arm, against, ours, theirs, run)
        problems += [f"Run {run.store.name} is not paired with {first.store.name}: {reason}." for reason in sorted(why)]
    return found, problems


def _pair(number: int, arm: Arm, against: Arm, ours: Points, theirs: Points, run: Material) -> list[Paired]:
    out = []
    for metric in run.metrics:
        if metric.name in ours and metric.name in theirs:
            mean = _Mean(metric.name)
            interval = paired_difference(mean, _numbers(ours), _numbers(theirs), vectorised=True)
            out.append(Paired(number, arm, against, metric, interval))
    return out


class _Mean:
    """The mean of a column over the examples, of one resample or of many."""

    def __init__(self, column: str) -> None:
        self._column = column

    def __call__(self, rows: Mapping[str, Array]) -> Any:
        return rows[self._column].mean(axis=-1)


Points = dict[str, Array]
"""Per example: the answer (``label`` or ``target``), and metrics by name, mean over the groups of repeats."""


def _numbers(table: Points) -> Points:
    return {name: column for name, column in table.items() if name not in ANSWERS}


def points(run: Material, arm: Arm) -> Points | None:
    """What an arm's predictives are worth at every example; None where the run's rows do not say."""
    rows = run.rows
    answer = next((name for name in ANSWERS if rows is not None and name in rows.column_names), None)
    if rows is None or answer is None or "group" not in rows.column_names:
        return None
    mine = rows.filter(pc.equal(rows["arm"].cast("string"), arm.name))
    groups = sorted(set(mine["group"].to_pylist()))
    if not groups:
        return None
    parts = [mine.filter(pc.equal(mine["group"], group)) for group in groups]
    if len({part.num_rows for part in parts}) != 1:
        return None
    found: Points = {answer: _column(parts[0], answer)}
    names = set(rows.column_names)
    if {"prediction", "label"} <= names:
        found["error"] = np.mean([_column(p, "prediction") != _column(p, "label") for p in parts], axis=0)
    for column in ("log_p_label", "log_p"):
        if column in names:
            found["nll"] = -np.mean([_column(p, column) for p in parts], axis=0)
    if "brier" in names:
        found["brier"] = np.mean([_column(p, "brier") for p in parts], axis=0)
    return found


def _column(table: Any, name: str) -> Array:
    column = table[name]
    if pa.types.is_list(column.type):  # several outputs per example
        return np.stack([np.asarray(value) for value in column.to_pylist()])
    return np.asarray(column.to_numpy())


def same_examples(first: Points, second: Points) -> bool:
    """Whether two runs' rows have the same answers in the same order."""
    for name in ANSWERS:
        if (name in first) != (name in second):
            return False
        if name in first and not np.array_equal(first[name], second[name]):
            return False
    return True
