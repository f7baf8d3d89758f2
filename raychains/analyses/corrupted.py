"""Metrics on corrupted inputs, by type and severity (CIFAR-10-C: Hendrycks & Dietterich 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raychains.analyses import companions
from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.calibration import not_labelled
from raychains.errors import UserError
from raychains.evaluation import corruption
from raychains.planning.views import Request

PREFIX = "corrupted:"
CLEAN = "none"
"""What the run's own split is called among the corruptions; its severity is 0."""

Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``corrupted``, every metric by corruption and severity, and ``corrupted_types``, means over the severities.

    corrupted: arm, group, repeat, corruption (``none`` at severity 0 is the run's own split), severity, and one column per
        metric of the split.
    corrupted_types: arm, group, repeat, corruption (``mean`` is that over all types), and the metrics' means over
        severities; types with fewer severities than others are left out.

    Raises:
        UserError: no corruption's data are there.
    """
    grid = _grid(context)
    # A type's severities share a file: the first tells of the others, whose images need not be held for that.
    there, missing = companions.present(context, [names[min(names)] for names in grid.values()])
    grid = {kind: names for kind, names in grid.items() if names[min(names)] in there}
    if not grid:
        raise UserError(
            f"no corruption of task {context.comparison.task} has its data here: {next(iter(missing.values()))}"
        )
    requests = [Request(arm=arm, group=group, rows=False) for arm, group in context.groups]
    wanted = [(CLEAN, 0, context.split)]
    wanted += [(kind, severity, name) for kind, names in grid.items() for severity, name in sorted(names.items())]
    rows: list[Row] = []
    for done, (kind, severity, split) in enumerate(wanted):
        context.progress("corruptions", done, len(wanted))
        for (arm, group), result in zip(context.groups, context.evaluate(split, requests), strict=True):
            key = {"arm": context.comparison.arms[arm].name, "group": group, "repeat": group}
            rows.append({**key, "corruption": kind, "severity": severity, **result.metrics[0]})
    context.progress("corruptions", len(wanted), len(wanted))
    metrics = [name for name in rows[0] if name not in ("arm", "group", "repeat", "corruption", "severity")]
    return {"corrupted": rows, "corrupted_types": _by_type(rows, metrics)}


def _grid(context: Context) -> dict[str, dict[int, str]]:
    """The splits' names by corruption and severity."""
    grid: dict[str, dict[int, str]] = {}
    for name in companions.offered(context, PREFIX):
        kind, _, severity = name.removeprefix(PREFIX).rpartition(":")
        if kind and severity.isdecimal():
            grid.setdefault(kind, {})[int(severity)] = name
    return grid


def _by_type(rows: list[Row], metrics: list[str]) -> list[Row]:
    found: list[Row] = []
    keys = dict.fromkeys((row["arm"], row["group"]) for row in rows)
    corrupted = [row for row in rows if row["severity"] > 0]
    most = max(len(severities) for severities in _severities(corrupted).values())
    types = [kind for kind, severities in _severities(corrupted).items() if len(severities) == most]
    for arm, group in keys:
        mine = [row for row in corrupted if (row["arm"], row["group"]) == (arm, group) and row["corruption"] in types]
        by_type: dict[str, dict[str, float]] = {kind: {} for kind in [*types, "mean"]}
        for metric in metrics:
            values: dict[str, dict[int, float]] = {kind: {} for kind in types}
            for row in mine:
                values[row["corruption"]][row["severity"]] = row[metric]
            if all(np.isfinite(v) for of in values.values() for v in of.values()):
                grid = corruption.collect(values)
                means: Mapping[str, float] = {**grid.by_type, "mean": grid.mean}
            else:
                means = dict.fromkeys(by_type, float("nan"))
            for kind, value in means.items():
                by_type[kind][metric] = value
        found += [{"arm": arm, "group": group, "repeat": group, "corruption": k, **v} for k, v in by_type.items()]
    return found


def _severities(rows: list[Row]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row in rows:
        found.setdefault(row["corruption"], set()).add(row["severity"])
    return found


def why_not(context: Context) -> str | None:
    """It needs a classifier whose task offers corruptions."""
    if reason := not_labelled(context):
        return reason
    if not _grid(context):
        return f"task {context.comparison.task} has no corrupted inputs: no split is called {PREFIX}KIND:SEVERITY"
    return None


ANALYSIS = Analysis(
    name="corrupted", about="every metric on corrupted inputs, by type and severity", tables=tables, why_not=why_not
)
