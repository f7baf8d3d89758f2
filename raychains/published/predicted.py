"""What a finished comparison's predictives say of every test example: the rows that its run keeps."""

from __future__ import annotations

import pyarrow.compute as pc

from raychains.errors import RaychainsError
from raychains.evaluation.base import Array
from raychains.published.found import Found

COLUMNS = ("label", "prediction", "confidence", "entropy")


def rows(run: Found, variant: str, repeat: int) -> dict[str, Array]:
    """The predictive of all samples of one repeat of an arm: `COLUMNS`, each [examples].

    Raises:
        RaychainsError: the run has no such rows.
    """
    table = run.store.table("rows")
    if table is None or not {*COLUMNS, "arm", "group"} <= set(table.column_names):
        raise RaychainsError(f"run {run.store.name}: rows.parquet lacks the predictions; evaluate the run again")
    arm = run.arm(variant).name
    mine = table.filter(pc.and_(pc.equal(table["arm"].cast("string"), arm), pc.equal(table["group"], repeat)))
    return {name: mine[name].to_numpy() for name in COLUMNS}
