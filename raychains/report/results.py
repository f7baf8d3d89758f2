"""A run's results as tables: what the driver found, written to the run's folder, and read back as a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from raychains.evaluation.base import Metric
from raychains.planning.comparison import Comparison
from raychains.store import RunStore

if TYPE_CHECKING:
    from raychains.orchestration.dispatch import ViewResult

DESCRIBES = {
    "results": {"arm", "group", "repeat", "samples", "chain_seconds"},
    "curves": {"arm", "repeat", "samples"},
}
"""Columns beside the metrics."""


def write(
    store: RunStore, comparison: Comparison, views: Mapping[tuple[int, int], ViewResult], seconds: Mapping[str, float]
) -> None:
    """Publish results.parquet (per arm and repeat), curves.parquet (first n samples) and rows.parquet (per example).

    results: arm, group, repeat, samples, chains (that the repeat was formed from: without those that were dropped),
        chain_seconds (of the repeat's chains), and one column per metric.
    curves: arm, repeat, samples, and one column per metric.
    rows: arm, group, and the evaluation's columns.
    """
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    rows: list[pa.Table] = []
    for (a, g), view in sorted(views.items()):
        arm = comparison.arms[a]
        group = arm.chains[g]
        cost = arm.seconds(g, seconds)
        for i, (metrics, curve) in enumerate(zip(view.metrics, view.curves, strict=True)):
            repeat = g * group[0].lanes + i
            results.append(
                {
                    "arm": arm.name,
                    "group": g,
                    "repeat": repeat,
                    "samples": view.samples,
                    "chains": view.chains,
                    "chain_seconds": cost,
                    **metrics,
                }
            )
            for n, values in enumerate(zip(*curve.values(), strict=True), start=1):
                curves.append(
                    {"arm": arm.name, "repeat": repeat, "samples": n, **dict(zip(curve, values, strict=True))}
                )
        n = len(next(iter(view.rows.values())))
        columns = {name: pa.array(list(v) if v.ndim > 1 else v) for name, v in view.rows.items()}
        rows.append(pa.table({"arm": pa.array([arm.name] * n).dictionary_encode(), "group": np.full(n, g), **columns}))
    store.write_table("results", results)
    store.write_table("curves", curves)
    if rows:
        store.write_arrow("rows", pa.concat_tables(rows, promote_options="default").unify_dictionaries())


def summary(comparison: Comparison, results: pd.DataFrame, metrics: tuple[Metric, ...]) -> pd.DataFrame:
    """One row per arm: label, cost, repeats done, samples, chain seconds, and mean and s.e. of every metric.

    Columns ``<metric>`` and ``<metric>_se``; the standard error over repeats is nan with one repeat. Arms without
    results have nan.
    """
    table = []
    for arm in comparison.arms:
        mine = results[results["arm"] == arm.name] if len(results) else results
        n = len(mine)
        row: dict[str, Any] = {
            "arm": arm.name,
            "label": arm.label,
            f"cost ({comparison.unit} per chain/total)": arm.cost,
            "repeats": n,
            "samples": int(mine["samples"].iloc[0]) if n else 0,
            "chain_seconds": float(mine["chain_seconds"].mean()) if n else float("nan"),
        }
        for metric in metrics:
            row[metric.name] = float(mine[metric.name].mean()) if n else float("nan")
            row[f"{metric.name}_se"] = float(mine[metric.name].std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
            if metric.name in arm.published:
                row[f"{metric.name}_published"] = arm.published[metric.name]
        table.append(row)
    return pd.DataFrame(table).set_index("arm")


def read(store: RunStore, name: str) -> pd.DataFrame:
    """``results`` or ``curves`` as a DataFrame; an empty one where there is none.

    Raises:
        UserError: the file is damaged.
    """
    table = store.table(name)
    if table is None or not len(table.column_names):
        return pd.DataFrame()
    try:
        found = table.replace_schema_metadata(None).to_pandas()
    except (pa.ArrowException, ValueError, KeyError, TypeError):
        raise store.damaged(name) from None
    numbers = found.drop(columns="arm", errors="ignore").dtypes
    if not DESCRIBES[name] <= set(found.columns) or any(kind.kind not in "iuf" for kind in numbers):
        raise store.damaged(name)
    return found
