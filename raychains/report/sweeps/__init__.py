"""The page, the figures and the table of a sweep, from what its folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from raychains.store import SweepStore


def write(folder: SweepStore) -> str:
    """Draw ``report.html`` and ``figures/<name>.svg|png|parquet`` of a sweep; where the page lies.

    Raises:
        UserError: there is no such sweep, or a file of it is damaged.
    """
    from raychains.report.sweeps import page

    return page.write(folder)


def table(results: Any, plan: Mapping[str, Any] | None = None, *, most: int = 20) -> Table:
    """A sweep's points for a terminal, the best first.

    Args:
        results: the sweep's folder (`SweepStore`), or the rows of its results.parquet as a DataFrame, an Arrow table or dicts.
        plan: its plan, with rows: which options were swept and what decided; without it both are told from the columns.
        most: how many points are shown.
    """
    from raychains.report.sweeps import terminal

    return terminal.table(results, plan, most=most)
