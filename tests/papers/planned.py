"""The chains of experiments as they are planned, and their figures as they are drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from raychains.core.config import Compare
from raychains.core.spec import ChainSpec
from raychains.papers import plan_status
from raychains.papers.plan_status import PlannedPart
from raychains.papers.study import Study, chosen

FEW = ("table4", "fig1", "fig2", "fig3a", "theorem2")
"""Those that `make test` runs, in the list's order: table4 and fig2 share chains of a density, fig1 has none, fig3a has
networks and a measure, theorem2 is a computation."""
needs_data = pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: it names the data root"
)


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


def crossed(**values: Any) -> pd.DataFrame:
    """Return a row for each combination of values."""
    lists = [value if isinstance(value, list | tuple | range) else [value] for value in values.values()]
    return pd.MultiIndex.from_product(lists, names=list(values)).to_frame(index=False)
