"""The sources of a part's tables: a finished comparison of the store, or a computation that keeps its pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from raychains.core.errors import RaychainsError, UserError
from raychains.evaluation.evaluation import Array
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Arm, Comparison
from raychains.planning.presets.named import Preset
from raychains.store import RunStore

Row = Mapping[str, Any]
Names = Iterable[str] | Mapping[str, str]
"""Names, or what they are called in the table by name."""
Progress = Callable[[str, int, int], None]
"""Told (what is measured, done, total); it raises where the time is up."""
PERCENT = ("error", "top5_error", "accuracy", "top1", "top5", "auroc", "share_below_half_nat")
"""Metrics that tables show in per cent."""
PREDICTIONS = ("label", "prediction", "confidence", "entropy")


def silent(what: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True)
class CompletedRun:
    """One comparison of a part in its store, after its evaluations."""

    store: RunStore
    comparison: Comparison
    preset: Preset
    part: str
    """The part's name."""
    scale: str
    tell: Progress = silent

    def arm(self, variant: str) -> Arm:
        """Return the arm of the preset's variant of that name."""
        names = [v.name for v in self.preset.variants]
        return self.comparison.arms[names.index(variant)]

    @cached_property
    def data(self) -> RunData:
        """The run as measures read it: its chains' samples and draws."""
        return RunData(self.store, self.comparison)

    @cached_property
    def results(self) -> pd.DataFrame:
        """Metrics per arm and repeat: the run's results.parquet."""
        return results.read(self.store, "results")

    def table(self, name: str) -> pd.DataFrame:
        """Return a table that an evaluation wrote.

        Raises:
            RaychainsError: it is not there.
        """
        found = self.store.table(name)
        if found is None:
            raise RaychainsError(f"run {self.store.name}: {name}.parquet is not there; evaluate the run again")
        return found.replace_schema_metadata(None).to_pandas()

    def predictions(self, variant: str, repeat: int) -> dict[str, Array]:
        """Return the predictive of all samples of one repeat of an arm: `PREDICTIONS`, each [examples].

        Raises:
            RaychainsError: the run kept none.
        """
        table = self.store.table("rows")
        if table is None or not {*PREDICTIONS, "arm", "group"} <= set(table.column_names):
            raise RaychainsError(f"run {self.store.name}: rows.parquet lacks the predictions; evaluate the run again")
        of_arm = pc.equal(table["arm"].cast("string"), self.arm(variant).name)
        mine = table.filter(pc.and_(of_arm, pc.equal(table["group"], repeat)))
        return {name: mine[name].to_numpy() for name in PREDICTIONS}

    def digests(self, variant: str, repeat: int) -> str:
        """Return the digests of the chains that a repeat of an arm is made of, as one text."""
        chains = self.arm(variant).chains
        return " ".join(spec.digest for spec in chains[repeat // chains[0][0].lanes])

    def origin(self, variant: str, repeat: int) -> dict[str, Any]:
        """Return the digests and number of samples of a cell of all samples of an arm's repeat."""
        mine = self.results[(self.results["arm"] == self.arm(variant).name) & (self.results["repeat"] == repeat)]
        return {"digests": self.digests(variant, repeat), "samples": int(mine["samples"].iloc[0])}

    def cells(self, rows: Names, metrics: Names, table: pd.DataFrame | None = None) -> list[dict[str, Any]]:
        """Return the cells of a table, one per variant, metric and repeat.

        Args:
            rows: the preset's variants, and what their rows are called where that is another name.
            metrics: of the table, or ``accuracy``, ``top1`` and ``top5``; and their columns where they have other
                names.
            table: with columns arm, repeat, metrics and perhaps samples; default results.parquet.
        """
        known = self.results if table is None else table
        known = known.assign(**{m: 1 - known[e] for m, e in COMPLEMENTS.items() if e in known})
        made = []
        for variant, row in _named(rows):
            for values in known[known["arm"] == self.arm(variant).name].to_dict("records"):
                repeat = int(values["repeat"])
                origin = self.origin(variant, repeat)
                if "samples" in values:  # of a view, which may have fewer
                    origin["samples"] = int(values["samples"])
                for metric, column in _named(metrics):
                    value = (100 if metric in PERCENT else 1) * values[metric]
                    made.append(cell(self.part, row, column, repeat, value, **origin))
        return made


COMPLEMENTS = {"accuracy": "error", "top1": "error", "top5": "top5_error"}
"""Metrics that are 1 − another."""


def _named(names: Names) -> Iterable[tuple[str, str]]:
    return names.items() if isinstance(names, Mapping) else ((name, name) for name in names)


def cell(
    part: str, row: str, column: str, repeat: int, value: float, *, digests: str = "", samples: int = 0
) -> dict[str, Any]:
    """Return one value of one repeat (from 0) in the table's unit, the digests of its chains separated by spaces, and
    how many samples or draws it is made of.
    """
    where = {"part": part, "row": row, "column": column, "repeat": repeat}
    return {**where, "value": float(value), "digests": digests, "samples": samples}


def of_all_samples(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table by number of samples that are of all samples of an arm's repeat."""
    return table[table["samples"] == table.groupby(["arm", "group"])["samples"].transform("max")]


def joined(tables: Iterable[Mapping[str, Sequence[Row]]]) -> dict[str, list[Row]]:
    """Return the tables of several parts as one set, by name."""
    made: dict[str, list[Row]] = {}
    for one in tables:
        for name, rows in one.items():
            made.setdefault(name, []).extend(rows)
    return made


@dataclass(frozen=True)
class Computation:
    """A part that needs no chains of the store: an interrupted one resumes from the pieces that it kept."""

    scale: str
    part: str
    """The part's name."""
    folder: RunStore
    """The experiment's folder in the store, which holds the pieces and whatever raw draws they keep."""
    revision: int
    """The experiment's: pieces of another are not used."""
    tell: Progress = silent

    def piece(self, name: str, compute: Callable[[], Sequence[Row]]) -> list[dict[str, Any]]:
        """Return the rows of a piece, whose name is unique in the part: those that were kept, else computed now and
        kept."""

        def computed() -> Sequence[Row]:
            self.tell(name, 0, 1)
            return compute()

        return kept(self.folder, f"pieces/{self.part}-{name}-r{self.revision}", computed)


def kept(folder: RunStore, file: str, compute: Callable[[], Sequence[Row]]) -> list[dict[str, Any]]:
    """Return the rows of a folder's table: those that an earlier call wrote, else computed now and written there."""
    with contextlib.suppress(UserError):  # damaged: computed anew
        if (found := folder.table(file)) is not None:
            return list(found.to_pylist())
    rows = [dict(row) for row in compute()]
    folder.write_table(file, rows)
    return rows
