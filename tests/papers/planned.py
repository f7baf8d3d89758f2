"""The chains of experiments as they are planned, and their figures as they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pandas as pd
from matplotlib.figure import Figure

from raychains.core.config import Compare
from raychains.core.spec import ChainSpec
from raychains.papers import plan_status
from raychains.papers.plan_status import PlannedPart
from raychains.papers.study import Study, chosen

FEW = ("fig1", "fig2", "fig3a", "table4", "theorem2")
"""Those that `make test` runs: one without chains, two of a density that share their chains, one of networks with a
measure, and one computation."""


@cache
def every() -> dict[str, Study]:
    return {one.name: one for one in chosen(["all"])}


def planned(name: str, scale: str) -> dict[str, PlannedPart]:
    return {p.part.name: p for p in plan_status.plan(every()[name], scale, Compare())}


def chains(part: PlannedPart) -> dict[str, list[list[ChainSpec]]]:
    assert not part.lacks and not part.refused
    return {
        variant.name: [list(group) for group in arm.chains]
        for sampled, made in part.comparisons
        for variant, arm in zip(sampled.preset.variants, made.comparison.arms, strict=True)
    }


def digests(part: PlannedPart) -> dict[str, list[list[str]]]:
    return {name: [[spec.digest for spec in group] for group in groups] for name, groups in chains(part).items()}


def drawn(name: str, tables: Mapping[str, pd.DataFrame]) -> Figure:
    (drawing,) = every()[name].figures("cpu", tables)
    return drawing.draw()
