"""A sweep's points in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from rich import box
from rich.table import Table
from rich.text import Text

from raychains.report.sweeps import rows
from raychains.report.sweeps.material import FAILED, STOPPED, Sweep
from raychains.store import SweepStore

METRICS = 2
"""That there is room for: what decides and the next."""
STYLES = {STOPPED: "dim", FAILED: "red"}


def table(results: Any, plan: Mapping[str, Any] | None, *, most: int) -> Table:
    """See `raychains.report.sweeps.table`."""
    sweep = _sweep(results, plan)
    heads, lines = rows.columns(sweep, METRICS), rows.build(sweep, METRICS)
    title = f"{len(lines)} point{'s' * (len(lines) != 1)}, the best first"
    out = Table(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left", title_style="bold", pad_edge=False)
    out.add_column("#", justify="right")
    for name in heads:
        out.add_column(
            Text(name), justify="left" if name == "Status" else "right", no_wrap=name not in ("Status", "Chain seconds")
        )
    for line in lines[:most]:
        cells = [Text(c.text, style="bold" if line.best else "") for c in line.cells]
        out.add_row(Text(line.rank), *cells, style=STYLES.get(line.status, ""))
    if len(lines) > most:
        out.caption = Text(f"and {len(lines) - most} more: results.parquet and the report have all")
    return out


def _sweep(results: Any, plan: Mapping[str, Any] | None) -> Sweep:
    if isinstance(results, Sweep):
        return results
    if isinstance(results, SweepStore):
        return Sweep.of(results)
    if isinstance(results, pa.Table):
        results = results.to_pandas()
    return Sweep(results if isinstance(results, pd.DataFrame) else pd.DataFrame(list(results)), plan=plan)
