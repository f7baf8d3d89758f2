"""Weights of an arm's samples, for `evaluate --weights`: their table, their views and the figure of the cycles' shares.

Harmonic weights follow from training likelihoods by cycle, stacking from a validation split, truncated ones from the
posterior's mass that each cycle explored: `raychains.evaluation.averaging_weights`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from raychains.core.errors import UserError, unknown_name
from raychains.core.sample import THETA
from raychains.evaluation import averaging_weights
from raychains.evaluation.averaging_weights import DOMINANT
from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.measures import draws, panels
from raychains.measures.draws import target_of
from raychains.measures.measure import Context, class_weights
from raychains.planning.views import ALL, Key, Request, View, key_of
from raychains.plotting.charts import DASHED, DOT, HOLLOW, Axis, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import ALARM, HUES, MARKERS, MUTED, Drawing
from raychains.store import SampleRecord

if TYPE_CHECKING:
    from raychains.tasks import Task

WEIGHTINGS = ("equal", "harmonic", "truncated", "stacking")
"""``harmonic`` and ``stacking`` are for tasks that predict, ``truncated`` for densities with a potential."""
TRAIN, VAL = "train", "val"
NAMED = 24
"""Cycles up to which each has its name below the axis."""
CAPTION = (
    "Share of each cycle of each chain in the weighted average of the first repeat; where a method weighs samples, "
    "their sum. The line is what equal weights give."
)


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """The result of one weighting."""

    rows: Sequence[Mapping[str, Any]]
    """Rows of the table ``weights``: arm, group, repeat, weighting, chain (position in the arm), cycle, index (of the
    sample; −1 for a whole cycle), samples, weight (all of one arm, group and repeat sum to 1), log_evidence (nats) and
    dominance (of harmonic means; nan otherwise)."""
    requests: Sequence[Request]
    """The views with these weights; none for densities, which average no predictions."""
    warnings: Sequence[str]


def check(names: Sequence[str]) -> None:
    """Check that these are weightings.

    Raises:
        UserError: one is not.
    """
    for name in names:
        if name not in WEIGHTINGS:
            raise unknown_name("weights", name, WEIGHTINGS)


def check_task(task: Task, name: str, weighting: str) -> None:
    """Check that a weighting applies to a task's draws.

    Raises:
        UserError: it is for another kind of task, or needs a split that the task does not have.
    """
    if weighting != "equal" and task.low_dimensional != (weighting == "truncated"):
        kind = "a density" if task.low_dimensional else "no density"
        allowed = "equal or truncated" if task.low_dimensional else "equal, harmonic or stacking"
        raise UserError(f"weights must be {allowed} for task {name}, {kind}, got {weighting!r}")
    split = {"harmonic": TRAIN, "stacking": VAL}.get(weighting)
    if split is not None and split not in task.splits():
        hint = "; sample the run with `val_split=.1`" if split == VAL else ""
        raise UserError(f"weights {weighting} need the split {split!r}, which task {name} does not have{hint}")


def weigh(context: Context, weighting: str) -> Weighted:
    """Return the weights of every arm and group.

    Raises:
        UserError: the weighting needs a split, a temperature or a kind of task that the run does not have.
    """
    check([weighting])
    check_task(context.task, context.comparison.task, weighting)
    each = {"harmonic": _harmonic, "stacking": _stacked, "truncated": _truncated}[weighting]
    rows: list[Mapping[str, Any]] = []
    requests: list[Request] = []
    warnings: list[str] = []
    for arm, group in context.counted(f"{weighting} weights", context.groups):
        name, label = context.comparison.arms[arm].name, context.comparison.arms[arm].label
        for found in each(context, arm, group):
            about = {"arm": name, "group": group, "repeat": found.repeat, "weighting": weighting}
            rows += [{**about, **row} for row in found.rows]
            if found.weights is not None:
                requests.append(Request(arm=arm, group=group, view=ALL, weighting=weighting, weights=found.weights))
            if found.warning is not None:
                warnings.append(f"{label}, repeat {found.repeat}: {found.warning}")
    more = f" (and {len(warnings) - 1} more arms and repeats like it: see the table weights)" if warnings[1:] else ""
    return Weighted(rows=rows, requests=requests, warnings=[f"{warning}{more}" for warning in warnings[:1]])


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The weights of one arm and repeat."""

    repeat: int
    rows: Sequence[Mapping[str, Any]]
    weights: Mapping[Key, float] | None = None
    """The weight of each sample in an average of predictions; None for densities, which predict nothing."""
    warning: str | None = None


def _records(context: Context, arm: int, group: int) -> list[tuple[int, SampleRecord]]:
    """Return each sample with its chain's position in the arm, in the order of views."""
    positions = {spec.digest: i for i, spec in enumerate(context.comparison.arms[arm].chains[group])}
    return [(positions[spec.digest], record) for spec, record in context.select(arm, group).records]


def _each_alone(context: Context, split: str, arm: int, group: int, rows: bool) -> list[Any]:
    """Return each sample's own result on another split."""
    views = [
        View(name=f"sample:{position}:{r.meta.index}", kind="samples", sample=key_of(r.meta))
        for position, r in _records(context, arm, group)
    ]
    return context.evaluate(split, [Request(arm=arm, group=group, view=view, rows=rows) for view in views])


def _harmonic(context: Context, arm: int, group: int) -> Iterator[_Found]:
    if reason := class_weights(context):
        raise UserError(f"weights harmonic average 1/likelihood of the training examples: {reason}")
    records = _records(context, arm, group)
    cold = [r.meta.temperature for _, r in records if not r.meta.temperature > 0]
    if cold:
        raise UserError(
            f"weights harmonic need draws of a posterior, got temperature {cold[0]} in arm "
            f"{context.arm_name(arm)!r}: they average 1/likelihood over it"
        )
    if others := {r.meta.variable for _, r in records} - {THETA}:
        raise UserError(
            f"weights harmonic need draws of a posterior, got {', '.join(sorted(others))} in arm "
            f"{context.arm_name(arm)!r}: they average 1/likelihood over θ alone"
        )
    n = context.task.num_data
    nll = np.array([found.metrics[0]["nll"] for found in _each_alone(context, TRAIN, arm, group, rows=False)])
    temperature = np.array([r.meta.temperature for _, r in records])
    cycles = sorted({(position, r.meta.cycle) for position, r in records})
    label = {cycle: i for i, cycle in enumerate(cycles)}
    found = averaging_weights.harmonic_mean(-n * nll / temperature, [label[p, r.meta.cycle] for p, r in records])
    counts = np.bincount([label[p, r.meta.cycle] for p, r in records])
    rows = _shares(cycles, counts.tolist(), found)
    each = {key_of(r.meta): float(w) for (_, r), w in zip(records, found.samples, strict=True)}
    yield _Found(repeat=group, rows=rows, weights=each, warning=found.warning)


def _stacked(context: Context, arm: int, group: int) -> Iterator[_Found]:
    records = _records(context, arm, group)
    w = averaging_weights.stack(
        np.stack([_log_p(f.rows) for f in _each_alone(context, VAL, arm, group, rows=True)])
    ).tolist()
    rows = [_row(at, r.meta.cycle, index=r.meta.index, weight=v) for (at, r), v in zip(records, w, strict=True)]
    yield _Found(repeat=group, rows=rows, weights={key_of(r.meta): v for (_, r), v in zip(records, w, strict=True)})


def _log_p(rows: Mapping[str, Array]) -> Array:
    """Return ln p(y | x) of every example, whatever the likelihood."""
    return np.asarray(rows["log_p_label"] if "log_p_label" in rows else rows["log_p"], dtype=np.float64)


def _row(chain: int, cycle: int, *, weight: float, index: int = -1, samples: int = 1, **sums: float) -> dict[str, Any]:
    numbers = {"log_evidence": math.nan, "dominance": math.nan, **sums}
    sizes = {"chain": chain, "cycle": cycle, "index": index, "samples": samples, "weight": float(weight)}
    return {**sizes, **{name: float(value) for name, value in numbers.items()}}


def _shares(
    cycles: Sequence[tuple[int, int]], counts: Sequence[int], found: averaging_weights.Weights
) -> list[dict[str, Any]]:
    """Return a row per (chain, cycle)."""
    columns = zip(cycles, counts, found.shares, found.log_evidence, found.dominance, strict=True)
    return [_row(*c, samples=n, weight=w, log_evidence=e, dominance=d) for c, n, w, e, d in columns]


def _truncated(context: Context, arm: int, group: int) -> Iterator[_Found]:
    """Weigh, lane by lane, by the posterior's mass in what each cycle of each chain explored."""
    specs = context.comparison.arms[arm].chains[group]
    chains = [(i, draws.read(context.store.root, spec)) for i, spec in draws.finished(context.store.root, specs)]
    target = target_of(context.task, specs[0])
    if not target.temperature > 0:
        raise UserError(f"weights truncated need draws of a posterior, got temperature {target.temperature}")
    labels = np.concatenate([np.stack([np.full(len(c.cycle), i), c.cycle], axis=1) for i, c in chains])
    names, label, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    cycles = [(int(chain), int(cycle)) for chain, cycle in names]
    for lane in range(specs[0].lanes):
        values = np.concatenate([c.values[:, lane] for _, c in chains])
        known = target.potential(values)
        if known is None:
            raise UserError(
                f"weights truncated need the log density, which task {context.comparison.task} does not say"
            )
        found = averaging_weights.truncated(values, -known[0] / target.temperature, label.reshape(-1))
        rows = _shares(cycles, counts.tolist(), found)
        yield _Found(repeat=group * specs[0].lanes + lane, rows=rows, warning=found.warning)


# The figure


@panels.drawn_from("weights", "arm weighting", "repeat chain cycle samples weight dominance")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw the shares of the cycles; None where only equal weights were formed."""
    shares = by_cycle(table)
    return Drawing(
        name="weights",
        title="Weights of the cycles",
        caption=" ".join([CAPTION, *warnings(run, shares)]),
        alt="Share of every cycle in the predictive, by arm and by method of weighting",
        draw=_chart(run, shares),
        data=shares.to_dict("records"),
    )


def by_cycle(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per arm, repeat, method and cycle of each chain: its samples, its share, the dominance of its
    sum."""
    by = table.groupby(["arm", "repeat", "weighting", "chain", "cycle"], sort=False)
    found = by.agg(samples=("samples", "sum"), share=("weight", "sum"), dominance=("dominance", "max")).reset_index()
    whole = found.groupby(["arm", "repeat", "weighting"])["samples"].transform("sum")
    return found.assign(equal=found["samples"] / whole)


def warnings(run: RunData, table: pd.DataFrame) -> list[str]:
    """Return a sentence per arm and method in which a single draw carries more than a tenth of a cycle's sum of 1/L."""
    out = []
    for arm in run.comparison.arms:
        mine = run.of(table, arm)
        for weighting, rows in mine.groupby("weighting", sort=True):
            bad = rows[rows["dominance"] > DOMINANT]
            if len(bad):
                out.append(
                    f"Warning: {arm.label}, {weighting}: in {len(bad)} of {len(rows)} sums one draw carries more than "
                    f"{DOMINANT:.0%} (up to {bad['dominance'].max():.0%}), so that these weights rest on single draws; "
                    f"equal weights are safer."
                )
    return out


def _chart(run: RunData, table: pd.DataFrame) -> Chart:
    table = table[table["repeat"] == table["repeat"].min()]
    methods = sorted(set(table["weighting"]))
    styles = [{"color": HUES[m % 3], "marker": MARKERS[m % 3]} for m in range(len(methods))]
    equal = {**DASHED, "color": MUTED}
    ring = {**DOT, **HOLLOW, "color": ALARM, "markersize": 10, "clip_on": False}
    shown = []
    for arm in run.comparison.arms:
        mine = run.of(table, arm).sort_values(["chain", "cycle"], kind="stable")
        names = [f"{chain}:{cycle}" for chain, cycle in zip(mine["chain"], mine["cycle"], strict=True)]
        at = {name: i for i, name in enumerate(dict.fromkeys(names))}
        mine = mine.assign(at=[float(at[name]) for name in names])
        marks: list[Mark] = []
        for m, (method, style) in enumerate(zip(methods, styles, strict=True)):
            rows = mine[mine["weighting"] == method]
            x = rows["at"] + (m - (len(methods) - 1) / 2) * 0.6 / len(methods)
            dot, stem = {**DOT, **style, "markersize": 5, "clip_on": False}, {"linewidth": 1.6, "alpha": 0.55}
            marks.append(Line(x=x, y=rows["share"], style=dot, upright=(0 * x, rows["share"]), bars=stem))
            for place, share in zip(rows["at"], rows["equal"], strict=True):
                marks.append(Rule(at=share, ends=(place - 0.5, place + 0.5), style=equal))
            if (bad := rows["dominance"] > DOMINANT).any():
                label = f"one draw carries > {DOMINANT:.0%}"
                marks.append(Line(x=x[bad], y=rows["share"][bad], style=ring, label=label))
        if marks and len(mine):
            ticks = {float(place): name for name, place in at.items()} if len(at) <= NAMED else {}
            x_axis = Axis(ticks=ticks, low=-0.6, high=len(at) - 0.4, grid=False)
            title = textwrap.shorten(arm.label, 90, placeholder="…")
            shown.append(Panel(marks=marks, x=x_axis, y=Axis(label="Share", low=0), title=title))
    shown[-1] = replace(shown[-1], x=replace(shown[-1].x, label="Chain : cycle"))
    legend = [(method, {**style, "linewidth": 1.6}) for method, style in zip(methods, styles, strict=True)]
    return Chart(panels=shown, height=2.1, legend=[*legend, ("equal weights", equal)], legend_columns=5)
