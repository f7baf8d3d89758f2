"""Weights of an arm's samples: by cycle from training likelihoods, by stacking on a validation split, by posterior mass.

All are of a finished run; `evaluate` forms the weighted views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from raychains.analyses import blocks
from raychains.analyses.base import Context
from raychains.analyses.target import target_of
from raychains.errors import UserError, unknown_name
from raychains.evaluation import stacking, truncated, weights
from raychains.evaluation.base import Array
from raychains.planning.views import ALL, Key, Request, View, key_of
from raychains.store import SampleRecord

if TYPE_CHECKING:
    from raychains.spec import ChainSpec
    from raychains.tasks import Task

WEIGHTINGS = ("equal", "harmonic", "truncated", "stacking")
"""``harmonic`` and ``stacking`` are for tasks that predict, ``truncated`` for densities that say their potential."""
TRAIN, VAL = "train", "val"


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """What came of one weighting."""

    rows: Sequence[Mapping[str, Any]]
    """Of the table ``weights``: arm, group, repeat, weighting, chain (position in the arm), cycle, index (of the sample;
    −1 for a whole cycle), samples, weight (all of one arm, group and repeat sum to 1), log_evidence (nats) and dominance
    (of harmonic means; nan otherwise)."""
    requests: Sequence[Request]
    """The views with these weights; none for densities, which average no predictions."""
    warnings: Sequence[str]


def check(names: Sequence[str]) -> None:
    """Whether these are weightings.

    Raises:
        UserError: one is not.
    """
    for name in names:
        if name not in WEIGHTINGS:
            raise unknown_name("weights", name, WEIGHTINGS)


def check_task(task: Task, name: str, weighting: str) -> None:
    """Whether a weighting says anything about a task's draws.

    Raises:
        UserError: it is for another kind of task, or needs a split that the task does not have.
    """
    if weighting != "equal" and task.low_dimensional != (weighting == "truncated"):
        kind = "a density" if task.low_dimensional else "no density"
        allowed = "equal or truncated" if task.low_dimensional else "equal, harmonic or stacking"
        raise UserError(f"weights must be {allowed} for task {name}, {kind}, got {weighting!r}")
    split = {"harmonic": TRAIN, "stacking": VAL}.get(weighting)
    if split is not None and split not in task.splits():
        hint = "; sample the run with --val-split" if split == VAL else ""
        raise UserError(f"weights {weighting} need the split {split!r}, which task {name} does not have{hint}")


def weigh(context: Context, weighting: str) -> Weighted:
    """The weights of every arm and group.

    Raises:
        UserError: the weighting needs a split, a temperature or a kind of task that the run does not have.
    """
    check([weighting])
    check_task(context.task, context.comparison.task, weighting)
    if weighting == "truncated":
        return _truncated(context)
    by_name: Mapping[str, Callable[[Context, int, int], _Found]] = {"harmonic": _harmonic, "stacking": _stacked}
    rows: list[Mapping[str, Any]] = []
    requests: list[Request] = []
    warnings: list[str] = []
    for done, (arm, group) in enumerate(context.groups):
        context.progress(f"{weighting} weights", done, len(context.groups))
        found = by_name[weighting](context, arm, group)
        about = {"arm": context.comparison.arms[arm].name, "group": group, "repeat": group, "weighting": weighting}
        rows += [{**about, **row} for row in found.rows]
        requests.append(Request(arm=arm, group=group, view=ALL, weighting=weighting, weights=found.weights))
        if found.warning is not None:
            warnings.append(f"{context.comparison.arms[arm].label}, group {group}: {found.warning}")
    context.progress(f"{weighting} weights", len(context.groups), len(context.groups))
    return Weighted(rows=rows, requests=requests, warnings=_together(warnings))


@dataclass(frozen=True, kw_only=True)
class _Found:
    rows: Sequence[Mapping[str, Any]]
    weights: Mapping[Key, float]
    warning: str | None = None


def _together(warnings: Sequence[str]) -> list[str]:
    """One line for all: the first, and how many are like it."""
    more = (
        f" (and {len(warnings) - 1} more arms and repeats like it: see the table weights)" if len(warnings) > 1 else ""
    )
    return [f"{warning}{more}" for warning in warnings[:1]]


def _records(context: Context, arm: int, group: int) -> list[tuple[int, SampleRecord]]:
    """Each sample with its chain's position in the arm, in the order of views."""
    positions = {spec.digest: i for i, spec in enumerate(context.comparison.arms[arm].chains[group])}
    return [(positions[spec.digest], record) for spec, record in context.select(arm, group).records]


def _alone(context: Context, split: str, arm: int, group: int, rows: bool) -> list[Any]:
    """Each sample's own result on another split."""
    views = [
        View(name=f"sample:{position}:{r.meta.index}", kind="samples", sample=key_of(r.meta))
        for position, r in _records(context, arm, group)
    ]
    return context.evaluate(split, [Request(arm=arm, group=group, view=view, rows=rows) for view in views])


def _harmonic(context: Context, arm: int, group: int) -> _Found:
    records = _records(context, arm, group)
    cold = [r.meta.temperature for _, r in records if not r.meta.temperature > 0]
    if cold:
        raise UserError(
            f"weights harmonic need draws of a posterior, got temperature {cold[0]} in arm "
            f"{context.comparison.arms[arm].name!r}: they average 1/likelihood over it"
        )
    n = context.task.num_data
    nll = np.array([found.metrics[0]["nll"] for found in _alone(context, TRAIN, arm, group, rows=False)])
    temperature = np.array([r.meta.temperature for _, r in records])
    cycles = sorted({(position, r.meta.cycle) for position, r in records})
    label = {cycle: i for i, cycle in enumerate(cycles)}
    found = weights.harmonic_mean(-n * nll / temperature, [label[p, r.meta.cycle] for p, r in records])
    counts = np.bincount([label[p, r.meta.cycle] for p, r in records])
    rows = [
        _row(*cycle, samples=int(counts[i]), weight=found.shares[i], log_evidence=found.log_evidence[i],
             dominance=found.dominance[i])
        for i, cycle in enumerate(cycles)
    ]  # fmt: skip
    each = {key_of(r.meta): float(w) for (_, r), w in zip(records, found.samples, strict=True)}
    return _Found(rows=rows, weights=each, warning=found.warning)


def _stacked(context: Context, arm: int, group: int) -> _Found:
    records = _records(context, arm, group)
    found = stacking.stack(np.stack([_log_p(f.rows) for f in _alone(context, VAL, arm, group, rows=True)]))
    rows = [
        _row(position, r.meta.cycle, index=r.meta.index, weight=w)
        for (position, r), w in zip(records, found.weights, strict=True)
    ]
    return _Found(
        rows=rows, weights={key_of(r.meta): float(w) for (_, r), w in zip(records, found.weights, strict=True)}
    )


def _log_p(rows: Mapping[str, Array]) -> Array:
    """ln p(y | x) of every example, whatever the likelihood."""
    return np.asarray(rows["log_p_label"] if "log_p_label" in rows else rows["log_p"], dtype=np.float64)


def _row(chain: int, cycle: int, *, weight: float, index: int = -1, samples: int = 1,
         log_evidence: float = math.nan, dominance: float = math.nan) -> dict[str, Any]:  # fmt: skip
    return {
        "chain": chain, "cycle": cycle, "index": index, "samples": samples, "weight": float(weight),
        "log_evidence": float(log_evidence), "dominance": float(dominance),
    }  # fmt: skip


def _truncated(context: Context) -> Weighted:
    """Per repeat (lane) of every group: the posterior's mass in what each cycle of each chain explored."""
    rows: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    for done, (a, g) in enumerate(context.groups):
        context.progress("truncated weights", done, len(context.groups))
        arm = context.comparison.arms[a]
        chains = [blocks.read(context.store.root, spec) for spec in arm.chains[g]]
        for lane in range(arm.chains[g][0].lanes):
            found, cycles, counts = _masses(context, arm.chains[g], chains, lane)
            about = {"arm": arm.name, "group": g, "repeat": g * arm.chains[g][0].lanes + lane, "weighting": "truncated"}
            rows += [
                {**about, **_row(*cycle, samples=counts[i], weight=found.shares[i], log_evidence=found.log_evidence[i],
                                 dominance=found.dominance[i])}
                for i, cycle in enumerate(cycles)
            ]  # fmt: skip
            if found.warning is not None:
                warnings.append(f"{arm.label}, repeat {about['repeat']}: {found.warning}")
    return Weighted(rows=rows, requests=(), warnings=_together(warnings))


def _masses(
    context: Context, specs: Sequence[ChainSpec], chains: Sequence[blocks.Draws], lane: int
) -> tuple[weights.Weights, list[tuple[int, int]], list[int]]:
    values = np.concatenate([c.values[:, lane] for c in chains])
    labels = np.concatenate([np.stack([np.full(len(c.cycle), i), c.cycle], axis=1) for i, c in enumerate(chains)])
    cycles, label, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    target = target_of(context.task, specs[0])
    if not target.temperature > 0:
        raise UserError(f"weights truncated need draws of a posterior, got temperature {target.temperature}")
    known = target.potential(values)
    if known is None:
        raise UserError(f"weights truncated need the log density, which task {context.comparison.task} does not say")
    found = truncated.truncated(values, -known[0] / target.temperature, label.reshape(-1))
    return found, [(int(chain), int(cycle)) for chain, cycle in cycles], [int(n) for n in counts]
