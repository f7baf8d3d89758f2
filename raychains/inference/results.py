"""A run's results as tables: written to the run's folder by the driver, read back and summarised for reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from raychains.evaluation.bootstrap import with_intervals
from raychains.evaluation.evaluation import Metric
from raychains.planning.comparison import Comparison
from raychains.plotting.tables import DASH, with_error
from raychains.store import RunStore

if TYPE_CHECKING:
    from raychains.planning.views import ViewResult

DESCRIBES = {
    "results": {"arm", "group", "repeat", "samples", "chain_seconds"},
    "curves": {"arm", "repeat", "samples"},
    "views": {"arm", "group", "repeat", "view", "kind", "weighting", "samples", "chains"},
}
"""Columns beside the metrics."""
TEXTS = ("arm", "view", "kind", "weighting")
"""Columns that hold texts; all others hold numbers."""


def write(
    store: RunStore,
    comparison: Comparison,
    views: Mapping[tuple[int, int], ViewResult],
    seconds: Mapping[str, float],
    gradients: Mapping[str, int] | None = None,
) -> None:
    """Publish results.parquet (per arm and repeat), curves.parquet (first n samples) and rows.parquet (per example).

    results: arm, group, repeat, samples, chains (that the repeat was formed from: without those that were dropped),
        chain_seconds (of the repeat's chains, and of those that they start at), gradients (evaluations that the same
        chains made, where lengths do not tell: `Comparison.cost_is_length`), and one column per metric.
    curves: arm, repeat, samples, and one column per metric.
    rows: arm, group, and the evaluation's columns.
    """
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    rows: list[pa.Table] = []
    for (a, g), view in sorted(views.items()):
        arm = comparison.arms[a]
        group = arm.chains[g]
        cost = {"samples": view.samples, "chains": view.chains, "chain_seconds": arm.per_repeat(g, seconds)}
        cost |= {"gradients": arm.per_repeat(g, gradients)} if gradients and not comparison.cost_is_length else {}
        for i, (metrics, curve) in enumerate(zip(view.metrics, view.curves, strict=True)):
            repeat = g * group[0].lanes + i
            results.append({"arm": arm.name, "group": g, "repeat": repeat, **cost, **metrics})
            for n, values in enumerate(zip(*curve.values(), strict=True), start=1):
                about = {"arm": arm.name, "repeat": repeat, "samples": n}
                curves.append({**about, **dict(zip(curve, values, strict=True))})
        n = len(next(iter(view.rows.values())))
        columns = {name: pa.array(list(v) if v.ndim > 1 else v) for name, v in view.rows.items()}
        rows.append(pa.table({"arm": pa.array([arm.name] * n).dictionary_encode(), "group": np.full(n, g), **columns}))
    store.write_table("results", results)
    store.write_table("curves", curves)
    if rows:
        store.write_arrow("rows", pa.concat_tables(rows, promote_options="default").unify_dictionaries())


def write_views(store: RunStore, comparison: Comparison, views: Sequence[ViewResult], bins: int) -> None:
    """Publish views.parquet: one row per view and repeat.

    Columns: arm, group, repeat, view (``chain:2``), kind (of `planning.views.KINDS`, ``first`` for first:N), weighting,
    samples, chains (that the view was formed from), and one column per metric; of the equally weighted view of all
    samples also the 95 % bootstrap intervals over test points, ``<metric>_low`` and ``<metric>_high``, with ``bins``
    for calibration errors.
    """
    rows: list[dict[str, Any]] = []
    for result in views:
        asked = result.request
        arm = comparison.arms[asked.arm]
        lanes = arm.chains[asked.group][0].lanes
        # Rows of lanes are no test points, and a thousand resamples of every view would take minutes.
        whole = asked.view.kind == "all" and asked.weighting == "equal" and lanes == 1
        view = {"view": asked.view.name, "kind": asked.view.kind, "weighting": asked.weighting}
        for i, metrics in enumerate(result.metrics):
            about = {"arm": arm.name, "group": asked.group, "repeat": asked.group * lanes + i, **view}
            ends = with_intervals(result.rows, metrics, bins=bins) if whole else {}
            rows.append({**about, "samples": result.samples, "chains": result.chains, **metrics, **ends})
    store.write_table("views", rows)


def read_rows(
    store: RunStore, name: str, *, texts: Sequence[str] = (), numbers: Sequence[str] = ()
) -> pd.DataFrame | None:
    """Read a measure's table; None where there is none, or nothing in it.

    Args:
        texts, numbers: columns that it must have, of texts and of numbers (null reads as nan); others may be there.

    Raises:
        UserError: the file is damaged: it cannot be read, or a column lacks or is of another kind.
    """
    found = _frame(store, name)
    if found is None or not len(found):
        return None
    if not {*texts, *numbers} <= set(found.columns):
        raise store.damaged(name)
    kinds = {column: found[column].dtype.kind for column in numbers}
    if any(kind not in "iufb" for kind in kinds.values()):
        raise store.damaged(name)
    if any(not isinstance(value, str) for column in texts for value in found[column].unique()):
        raise store.damaged(name)
    return found


def summary(comparison: Comparison, results: pd.DataFrame, metrics: tuple[Metric, ...]) -> pd.DataFrame:
    """One row per arm: label, cost, repeats done, samples, chain seconds (and gradient evaluations, where the cost does
    not say them), mean and s.e. of every metric.

    Columns ``<metric>`` and ``<metric>_se``; the standard error over repeats is nan with one repeat. Arms without
    results have nan.
    """
    table = []
    for arm in comparison.arms:
        mine = results[results["arm"] == arm.name] if len(results) else results
        n = len(mine)
        row: dict[str, Any] = {"arm": arm.name, "label": arm.label}
        row |= {f"cost ({comparison.unit} per chain/total)": arm.cost, "repeats": n}
        row["samples"] = int(mine["samples"].iloc[0]) if n else 0
        row["chain_seconds"] = float(mine["chain_seconds"].mean()) if n else np.nan
        if not comparison.cost_is_length:
            row["gradients"] = float(mine["gradients"].mean()) if n and "gradients" in mine else np.nan
        for metric in metrics:
            values = mine[metric.name].to_numpy(dtype=float) if n else np.full(1, np.nan)  # a nan stays one
            row[metric.name] = float(values.mean())
            row[f"{metric.name}_se"] = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
            if metric.name in arm.published:
                row[f"{metric.name}_published"] = arm.published[metric.name]
        table.append(row)
    return pd.DataFrame(table).set_index("arm")


def compact(table: pd.DataFrame, metrics: Iterable[Metric]) -> pd.DataFrame:
    """Texts ``4.18 ± 0.04`` by the metrics' labels, of columns ``<metric>`` and ``<metric>_se``; published values
    beside them."""
    columns: dict[str, list[str]] = {}
    for m in metrics:
        pairs = zip(table[m.name], table[f"{m.name}_se"], strict=True)
        columns[m.label] = [with_error(float(mean), float(error), m) for mean, error in pairs]
        if f"{m.name}_published" in table:
            columns[f"{m.label}, published"] = table[f"{m.name}_published"].fillna(DASH).tolist()
    return pd.DataFrame(columns, index=table.index)


def read(store: RunStore, name: str) -> pd.DataFrame:
    """``results``, ``curves`` or ``views`` as a DataFrame; an empty one where there is none.

    Raises:
        UserError: the file is damaged.
    """
    found = _frame(store, name)
    if found is None or not len(found.columns):
        return pd.DataFrame()
    numbers = found.drop(columns=list(TEXTS), errors="ignore").dtypes
    if not DESCRIBES[name] <= set(found.columns) or any(kind.kind not in "iuf" for kind in numbers):
        raise store.damaged(name)
    return found


def _frame(store: RunStore, name: str) -> pd.DataFrame | None:
    table = store.table(name)
    try:
        return None if table is None else table.replace_schema_metadata(None).to_pandas()
    except (pa.ArrowException, ValueError, KeyError, TypeError):
        raise store.damaged(name) from None
