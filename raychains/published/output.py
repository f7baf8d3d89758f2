"""Everything that an experiment's folder shows, made of its stored tables alone: it can be made again anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from raychains.errors import UserError
from raychains.published import tables
from raychains.published.claims import Claim, Of, Verdict, judge
from raychains.published.experiment import Experiment, Part
from raychains.published.folder import Folder


def stored(folder: Folder, about: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The tables that a folder's ``about`` names, by name.

    Raises:
        UserError: one is missing or damaged.
    """
    found = {}
    for name in about["tables"]:
        table = folder.table(name)
        if table is None:
            raise UserError(f"experiment {folder.name}: {name}.parquet is missing; reproduce it again")
        found[name] = table.replace_schema_metadata(None).to_pandas()
    return found


def table_of(experiment: Experiment, scale: str, cells: pd.DataFrame, about: Mapping[str, Any]) -> tables.Table:
    """The experiment's table, published values beside ours; cells that are missing say why."""
    needless = _needless(experiment, cells)
    parts = [tables.Heading(p.name, _heading(p, p.name in needless)) for p in experiment.parts if scale in p.scales]
    rows, columns = experiment.rows(scale), experiment.columns(scale)
    keys = [{h.key for h in headings} for headings in (parts, rows, columns)]
    values = [v for v in experiment.values if all(k in s for k, s in zip((v.part, v.row, v.column), keys, strict=True))]
    return tables.build(
        cells,
        parts=parts,
        rows=rows,
        columns=columns,
        published={(v.part, v.row, v.column): (v.text, v.standing) for v in values},
        missing={("", "", ""): experiment.absent}
        | {(n, "", ""): f"{p['status']}: {p['reason']}" for n, p in about["parts"].items() if p["reason"]},
        title=f"{experiment.where}: {experiment.title}" + (" — SMOKE" if scale == "smoke" else ""),
    )


def _heading(part: Part, needless: bool) -> str:
    return f"{part.label} (in place of {part.stands_for})" if part.stands_for and not needless else part.label


def _needless(experiment: Experiment, cells: pd.DataFrame) -> set[str]:
    """Parts that stand for another one which was run itself."""
    there = set(cells["part"]) if len(cells) else set()
    run = {p.label for p in experiment.parts if p.name in there}
    return {p.name for p in experiment.parts if p.stands_for and p.stands_for in run}


def verdicts(experiment: Experiment, scale: str, cells: pd.DataFrame) -> list[Verdict]:
    """What becomes of the experiment's claims at a scale, of those whose parts were run, in their own place."""
    there = set(cells["part"]) - _needless(experiment, cells) if len(cells) else set()
    return [
        _judged(experiment, claim, cells)
        for claim in experiment.claims
        if scale in claim.scales and claim.part in there
    ]


def _judged(experiment: Experiment, claim: Claim, cells: pd.DataFrame) -> Verdict:
    left = _values(claim, claim.left, cells)
    right = _values(claim, claim.right, cells) if isinstance(claim.right, Of) else None
    if claim.rule == "paired" and right is not None:
        every = sorted({*left, *right})
        left, right = ({r: side.get(r, math.nan) for r in every} for side in (left, right))
    by = {(v.part, v.row, v.column): v.summary for v in experiment.values}
    of_left = by.get((claim.part, claim.left.row, claim.left.column))
    of_right = None
    if isinstance(claim.right, Of):
        of_right = by.get((claim.part, claim.right.row, claim.right.column))
    return judge(claim, list(left.values()), None if right is None else list(right.values()), of_left, of_right)


def _values(claim: Claim, of: Of, cells: pd.DataFrame) -> dict[int, float]:
    """By repeat, in order."""
    mine = cells[(cells["part"] == claim.part) & (cells["row"] == of.row) & (cells["column"] == of.column)]
    return {int(r): float(v) for r, v in sorted(zip(mine["repeat"], mine["value"], strict=True))}


def finite(value: float) -> float | None:
    """For JSON and parquet: what is no number is null."""
    return value if math.isfinite(value) else None


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict as a row of parquet: its claim by name, infinities as null."""
    claim = row["claim"]
    made = {"claim": claim["name"] if isinstance(claim, dict) else claim}
    return made | {k: finite(v) if isinstance(v, float) else v for k, v in row.items() if k != "claim"}


EMPTY = pd.DataFrame(
    {n: pd.Series(dtype=t) for n, t in
     {"part": str, "row": str, "column": str, "repeat": int, "value": float, "digests": str, "samples": int}.items()}
)  # fmt: skip
"""Cells of an experiment of which nothing was run."""
