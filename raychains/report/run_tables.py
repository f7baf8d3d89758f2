"""The report's tables: arms with their costs and metrics, the best in bold, and the views of their samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from raychains.core.sample import THETA
from raychains.evaluation.evaluation import Metric
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.tables import DASH, Cell, Row, Table, heads, seconds, texts, with_error
from raychains.report import reference_values
from raychains.store import RunStore

KINDS = {
    "all": "all samples",
    "first": "first {n} samples",
    "stages": "each stage",
    "cycles": "each cycle",
    "chains": "each chain",
    "variables": "each variable",
    "without-chain": "all but one chain",
    "samples": "single samples",
}
"""Names of the kinds of views, from much to little."""
VIEW_METRICS = 3
"""Metrics in the table of views; views.parquet has them all."""


def comparison(run: RunData) -> tuple[Table, list[str]]:
    """All arms with cost, means ± standard errors and published values; and the table's caption.

    Arms without results show dashes.
    """
    summary, arms = run.summary, run.comparison.arms
    theory = "modes" if reference_values.is_mixture(run.comparison) else None
    published = {name for arm in arms for name in arm.published}
    columns: list[str] = []
    bold = {m.name: best(summary, m) for m in run.metrics}
    cells: dict[str, list[Cell]] = {arm.name: [] for arm in arms}
    for metric in run.metrics:
        columns.append(head(metric))
        columns += ["Published"] * (metric.name in published) + ["Exact theory"] * (metric.name == theory)
        for arm in arms:
            own = cells[arm.name]
            own.append(Cell(value(summary, arm, metric), arm.name in bold[metric.name]))
            if metric.name in published:
                own.append(Cell(arm.published.get(metric.name, DASH)))
            if metric.name == theory:
                expected = reference_values.expected_modes(arm)
                own.append(Cell(DASH if expected is None else f"{expected:.2f}"))
    columns += [f"{run.comparison.unit.capitalize()} per\u00a0chain /\u00a0total"]
    columns += [] if run.comparison.cost_is_length else ["Gradient evaluations"]
    columns += ["Repeats"]
    columns += ["Draws" if run.by_blocks else "Samples", "Chain seconds"]
    for arm in arms:
        cells[arm.name] += texts(*_cost(run, arm))
    return _arms(run, columns, cells), _caption(run, any(bold.values()))


def minor(run: RunData) -> Table | None:
    """The metrics that the comparison's table leaves out; None where there are none."""
    if not run.minor:
        return None
    bold = {m.name: best(run.summary, m) for m in run.minor}
    cells = {
        arm.name: [Cell(value(run.summary, arm, m), arm.name in bold[m.name]) for m in run.minor]
        for arm in run.comparison.arms
    }
    return _arms(run, [head(m) for m in run.minor], cells)


def _arms(run: RunData, columns: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> Table:
    """A row per arm, with a line above the first arm of another sampler."""
    arms = run.comparison.arms
    rows = [
        Row(
            (arm.label,),
            cells[arm.name],
            run.arm_styles[arm].colour,
            "begins" if i and arm.sampler != arms[i - 1].sampler else "",
        )
        for i, arm in enumerate(arms)
    ]
    return Table("Arm", heads(*columns), rows)


def head(metric: Metric) -> str:
    """A column's head: the metric with its unit, and an arrow to its better end if it has one."""
    return metric.label + {"lower": " ↓", "higher": " ↑"}.get(metric.better, "")


def value(summary: pd.DataFrame, arm: Arm, metric: Metric) -> str:
    """``3.93 ± 0.08``; the mean alone with one repeat, a dash without results."""
    row = summary.loc[arm.name]
    return with_error(float(row[metric.name]), float(row[f"{metric.name}_se"]), metric)


def best(summary: pd.DataFrame, metric: Metric) -> set[str]:
    """The arms of the best mean and of every mean within one combined standard error of it.

    None among fewer than two arms, and where no end of the metric is the better one.
    The combined error of two arms is √(se₁² + se₂²); an unknown one (a single repeat) counts as 0.
    """
    known = summary[summary[metric.name].notna()]
    if len(known) < 2 or metric.better == "neither":
        return set()
    means, errors = known[metric.name], known[f"{metric.name}_se"].fillna(0.0)
    first = means.idxmin() if metric.better == "lower" else means.idxmax()
    allowed = (errors**2 + errors[first] ** 2) ** 0.5
    return set(known.index[(means - means[first]).abs() <= allowed])


def _cost(run: RunData, arm: Arm) -> list[str]:
    row = run.summary.loc[arm.name]
    done = int(row["repeats"])
    drawn = run.draws(arm) if run.by_blocks and done else int(row["samples"])
    gradients = DASH if math.isnan(row.get("gradients", math.nan)) else f"{row['gradients']:,.0f}"
    return [
        f"{arm.length:,} / {arm.length * len(arm.chains[0]):,}",
        *([] if run.comparison.cost_is_length else [gradients]),
        str(done) if done == arm.repeats else f"{done} of {arm.repeats}",
        f"{drawn:,}" if done else DASH,
        seconds(float(row["chain_seconds"])),
    ]


def _caption(run: RunData, bold: bool) -> list[str]:
    what = "draws" if run.by_blocks else "samples"
    several = bool((run.summary["repeats"] > 1).any())
    spread = "Mean ± standard error over the repeats" if several else "A single repeat: no standard errors"
    out = [
        f"{spread}; {what} and chain seconds are those of one repeat, of all its chains together. "
        f"Evaluated on the split “{run.comparison.split}”."
    ]
    if not run.comparison.cost_is_length:
        out.append(
            "Gradient evaluations and chain seconds are those that were made, by a repeat's chains and by the chains "
            "that these start at; a chain that stops early has at most the length that is shown."
        )
    if bold and several:
        out.append(
            "Bold: the best mean, and every mean within one combined standard error of it (√(se₁² + se₂²)): "
            "the repeats do not tell these apart."
        )
    elif bold:
        out.append("Bold: the best value; without repeats nothing says how far it is due to chance.")
    return out + reference_values.notes(run.comparison)


def missing(run: RunData) -> list[str]:
    """Sentences about arms without results, and about repeats that were formed from fewer chains than their arm has."""
    unfinished, fewer = [], []
    for arm in run.comparison.arms:
        mine, n = run.of(run.results, arm), len(arm.chains[0])
        if len(mine) < arm.repeats:
            digests = [spec.digest for group in arm.chains for spec in group]
            finished = sum(d in run.finished for d in digests)
            lacking = f"{len(mine)} of {arm.repeats} repeats" if len(mine) else "no result"
            unfinished.append(f"{arm.label}: {lacking} yet; {finished} of its {len(digests)} chains are finished.")
        if "chains" in mine and (counts := mine.loc[mine["chains"] < n, "chains"]).size:
            repeats = f"{counts.size} of {arm.repeats} repeats" if arm.repeats > 1 else "the one repeat"
            fewer.append(
                f"{arm.label}: {repeats} formed from only {', '.join(str(c) for c in sorted(set(counts)))} of {n} "
                "chains; the others diverged and were dropped."
            )
    return unfinished + fewer


COORDINATES = 60
"""Rows at most of the table of coordinates; diagnostics.parquet has them all."""


def coordinates(run: RunData) -> Table | None:
    """Mean, effective sample sizes and R-hat of every followed number of a density, in each arm's first repeat.

    None before chains are diagnosed, and of networks.
    """
    columns = ("mean", "mcse", "bulk_ess", "tail_ess", "r_hat")
    texts_of = ("arm", "variable", "quantity", "unit")
    if not run.by_blocks:
        return None
    found = results.read_rows(run.store, "diagnostics", texts=texts_of, numbers=("repeat", *columns))
    if found is None:
        return None
    rows: list[Row] = []
    for arm in run.comparison.arms:
        mine = run.of(found, arm)
        mine = mine[(mine["unit"] == "chain") & (mine["variable"] == THETA) & (mine["repeat"] == mine["repeat"].min())]
        for i, (_, row) in enumerate(mine.iterrows()):
            mean, error, bulk, tail, r_hat = (float(row[name]) for name in columns)
            sizes = [f"{size:,.0f}" if math.isfinite(size) else DASH for size in (bulk, tail)]
            known = [f"{mean:.4g}", f"{error:.2g}" if math.isfinite(error) else DASH, *sizes]
            cells = texts(*known, f"{r_hat:.3f}" if math.isfinite(r_hat) else DASH)
            rows.append(Row((arm.label, str(row["quantity"])), cells, css="begins" if rows and not i else ""))
    shown = heads("Mean", "Monte Carlo error", "Bulk ESS", "Tail ESS", "R-hat")
    return Table("Quantity", shown, rows[:COORDINATES]) if rows else None


def choice(store: RunStore) -> Table | None:
    """Return the candidates that a fit tried before the run, rung by rung; None of a run that no fit made."""
    texts_of, numbers = ("candidate", "why"), ("rung", "epochs", "density", "se", "mixed")
    found = results.read_rows(store, "choice", texts=texts_of, numbers=numbers)
    if found is None:
        return None
    rows: list[Row] = []
    for rung, tried in found.groupby("rung"):
        for i, (_, row) in enumerate(tried.iterrows()):
            density = f"{row['density']:.3f} ± {row['se']:.3f}" if math.isfinite(row["density"]) else DASH
            mixed = f"{row['mixed']:.3f}" if math.isfinite(row["mixed"]) else DASH
            cells = texts(f"{row['epochs']:.0f}", density, mixed, row["why"])
            rows.append(Row((f"Pilots {rung:.0f}", row["candidate"]), cells, css="begins" if rows and not i else ""))
    return Table("Candidate", heads("Epochs", "Held-out log density (nats)", "Mixed with the first", "Outcome"), rows)


# Views


@dataclass(frozen=True)
class Kind:
    """One arm's views of one kind under one weighting."""

    arm: Arm
    label: str
    ensemble: bool
    """Return whether it is the one view of all samples, equally weighted."""
    rows: pd.DataFrame

    @property
    def count(self) -> int:
        """Views of one repeat."""
        return int(self.rows["view"].nunique())


def kinds(run: RunData) -> list[Kind]:
    """All kinds that were evaluated, in the order of the arms and of `KINDS`; other kinds come last."""
    found = []
    for arm in run.comparison.arms:
        mine = run.of(run.views, arm)
        if not len(mine):
            continue
        for kind in [*KINDS, *sorted(set(mine["kind"]) - set(KINDS))]:
            here = mine[mine["kind"] == kind]
            for weighting in sorted(set(here["weighting"]), key=lambda w: (w != "equal", w)):
                rows = here[here["weighting"] == weighting]
                for name in sorted(set(rows["view"])) if kind == "first" else [""]:
                    label = KINDS.get(kind, kind).format(n=name.partition(":")[2])
                    label += f", {weighting} weights" if weighting != "equal" else ""
                    part = rows[rows["view"] == name] if name else rows
                    found.append(Kind(arm, label, kind == "all" and weighting == "equal", part))
    return found


def view_metrics(run: RunData) -> tuple[Metric, ...]:
    """The first metrics of the comparison's table that views have too."""
    return tuple(m for m in run.metrics if m.name in run.views.columns)[:VIEW_METRICS]


def views(run: RunData) -> Table | None:
    """A row per arm and kind of views; None where only the whole arms were evaluated."""
    metrics = view_metrics(run)
    rows: list[Row] = []
    last = None
    for kind in kinds(run) if metrics else ():
        low, high = kind.rows["samples"].min(), kind.rows["samples"].max()
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        cells = texts(kind.label, f"{kind.count:,}", span, *(_view(kind, metric) for metric in metrics))
        new = kind.arm is not last
        rows.append(Row((kind.arm.label if new else "",), cells, css="begins" if new and rows else ""))
        last = kind.arm
    each = "Blocks of draws in each" if run.by_blocks else "Samples in each"
    return Table("Arm", heads("View", "Views", each, *map(head, metrics)), rows) if rows else None


def _view(kind: Kind, metric: Metric) -> str:
    """``4.31 (3.90 – 5.02)``; the value alone where there is one."""
    values = kind.rows[metric.name].to_numpy(dtype=float) * metric.scale
    values = values[[math.isfinite(v) for v in values]]
    if not len(values):
        return DASH
    low, mean, high = (f"{v:.{metric.digits}f}" for v in (values.min(), values.mean(), values.max()))
    return mean if len(values) == 1 else f"{mean} ({low} – {high})"
