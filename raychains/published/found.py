"""A finished comparison of an experiment, and how its tables become cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from raychains.errors import RaychainsError
from raychains.experiments.presets import Preset
from raychains.planning import Arm, Comparison
from raychains.report import results
from raychains.store import RunStore


@dataclass(frozen=True)
class Found:
    """One comparison of a part in its store, after its evaluations."""

    store: RunStore
    comparison: Comparison
    preset: Preset
    tell: Callable[[str, int, int], None] = lambda what, done, total: None
    """Told (what is measured, done, total); it raises where the time is up."""

    def arm(self, variant: str) -> Arm:
        """The arm of the preset's variant of that name."""
        names = [v.name for v in self.preset.variants]
        return self.comparison.arms[names.index(variant)]

    @cached_property
    def results(self) -> pd.DataFrame:
        """Metrics per arm and repeat: the run's results.parquet."""
        return results.read(self.store, "results")

    def table(self, name: str) -> pd.DataFrame:
        """A table that an evaluation wrote.

        Raises:
            RaychainsError: it is not there.
        """
        found = self.store.table(name)
        if found is None:
            raise RaychainsError(f"run {self.store.name}: {name}.parquet is not there; evaluate the run again")
        return found.replace_schema_metadata(None).to_pandas()

    def digests(self, variant: str, repeat: int) -> str:
        """Digests of the chains that a repeat of an arm is made of, as one text."""
        arm = self.arm(variant)
        group = arm.chains[repeat // arm.chains[0][0].lanes]
        return " ".join(spec.digest for spec in group)

    def origin(self, variant: str, repeat: int) -> dict[str, Any]:
        """What a cell of all samples of an arm's repeat says of where it comes from: its digests and samples."""
        mine = self.results[(self.results["arm"] == self.arm(variant).name) & (self.results["repeat"] == repeat)]
        return {"digests": self.digests(variant, repeat), "samples": int(mine["samples"].iloc[0])}

    def cells(
        self, part: str, rows: Mapping[str, str], metrics: Mapping[str, str], scale: Mapping[str, float] | None = None
    ) -> list[dict[str, Any]]:
        """Cells of results.parquet, one per variant, metric and repeat.

        Args:
            part: the part's name.
            rows: the table's row by the preset's variant.
            metrics: the table's column by the metric's name.
            scale: what values are multiplied by, by metric (100 for per cent); 1 where nothing is said.
        """
        return self.cells_of(self.results, part, rows, metrics, scale)

    def cells_of(
        self,
        table: pd.DataFrame,
        part: str,
        rows: Mapping[str, str],
        metrics: Mapping[str, str],
        scale: Mapping[str, float] | None = None,
    ) -> list[dict[str, Any]]:
        """The same of any table with columns arm, repeat, the metrics and perhaps samples."""
        made = []
        for variant, row in rows.items():
            mine = table[table["arm"] == self.arm(variant).name]
            for values in mine.to_dict("records"):
                repeat = int(values["repeat"])
                origin = self.origin(variant, repeat)
                if "samples" in values:  # of a view, which may have fewer
                    origin["samples"] = int(values["samples"])
                for metric, column in metrics.items():
                    value = (scale or {}).get(metric, 1.0) * values[metric]
                    made.append(cell(part, row, column, repeat, value, **origin))
        return made


def cell(
    part: str, row: str, column: str, repeat: int, value: float, *, digests: str = "", samples: int = 0
) -> dict[str, Any]:
    """One value of one repeat.

    Args:
        part, row, column: where it stands.
        repeat: from 0.
        value: in the table's unit.
        digests: of the chains that it comes from, separated by spaces; empty for what needs no chains.
        samples: how many samples or draws it is made of.
    """
    return {
        "part": part, "row": row, "column": column, "repeat": repeat, "value": float(value),
        "digests": digests, "samples": samples,
    }  # fmt: skip


def joined(tables: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> dict[str, list[Mapping[str, Any]]]:
    """Several parts' tables as one, by name."""
    made: dict[str, list[Mapping[str, Any]]] = {}
    for one in tables:
        for name, rows in one.items():
            made.setdefault(name, []).extend(rows)
    return made
