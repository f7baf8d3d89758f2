"""cSG-MCMC's Table 5: effective sample sizes on Bayesian logistic regression, beside how right the draws are.

The effective sample size rewards steps that are too large, and the published ones are not known. Hence three rules: the
largest step whose draws have the posterior's spread; and the steps at which SGLD has the published effective sample
size, given to the other methods as they are or so that all take the same mean step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains import methods, tasks
from raychains.chain import Chain, Diverged
from raychains.errors import unknown_name
from raychains.evaluation.base import Array
from raychains.evaluation.diagnostics import ess
from raychains.evaluation.sampled import sd_ratio
from raychains.experiments.tuning import largest, log_grid, nearest
from raychains.options import Run
from raychains.sample import Sample
from raychains.schedules import Schedule
from raychains.tasks.logistic_regression import LogisticRegression

DATASETS = ("australian", "german", "heart")
PUBLISHED: Mapping[str, Mapping[str, int]] = {
    "SGLD": {"australian": 1676, "german": 492, "heart": 2199},
    "cSGLD": {"australian": 2138, "german": 978, "heart": 2541},
    "SGHMC": {"australian": 1317, "german": 2007, "heart": 5000},
    "cSGHMC": {"australian": 4707, "german": 2436, "heart": 5000},
}
"""Mean effective sample size of 5,000 draws: cSG-MCMC (ICLR 2020), Table 5. No repeats are mentioned."""
LIMIT = 1.10
"""Of the median ratio of standard deviations, whichever way it is off."""
BY_SPREAD = "sd ratio ≤ 1.10"
SAME_START = "SGLD as published, same first step"
SAME_MEAN = "SGLD as published, same mean step"
RULES = (BY_SPREAD, SAME_START, SAME_MEAN)


@dataclass(frozen=True)
class Arm:
    """One method under one schedule."""

    method: str
    """As in the published table."""
    sampler: str
    schedule: str


ARMS = (
    Arm("SGLD", "sgld", "decreasing"),
    Arm("SGLD", "sgld", "constant"),
    Arm("cSGLD", "csgld", "cyclical"),
    Arm("SGHMC", "sghmc", "decreasing"),
    Arm("SGHMC", "sghmc", "constant"),
    Arm("cSGHMC", "csghmc", "cyclical"),
)
"""The paper does not say whether its traditional step sizes fall; so both are there."""
MATCHED = ARMS[0]
"""Whose effective sample size is made the published one."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the table is made."""

    lanes: int = 10
    """Independent chains of every figure."""
    tuning_lanes: int = 5
    """Of those that steps are chosen on."""
    seed: int = 0
    """Steps are chosen on chains of this seed, figures are of chains of the next one."""
    steps: int = 6_000
    """Of each chain; five sixths of them are kept."""
    minibatch: int | None = None
    """Examples per step; None for all."""
    grid: tuple[float, float, int] = (0.1, 100.0, 10)
    """The steps that are tried: from, to, and how many a decade."""


@dataclass(frozen=True)
class Figures:
    """What an arm's chains gave, one entry per lane."""

    ess: Array
    """Mean over coefficients of the bulk effective sample size, each at most the number of draws."""
    uncapped: Array
    """The same without that bound: antithetic draws exceed it."""
    sd_ratio: Array
    """Median over coefficients of the standard deviation's ratio to the reference's, or its inverse where that is larger."""


class Bench:
    """One data set with its reference posterior, on which arms are measured.

    Args:
        dataset: one of `DATASETS`.
        plan: how long and how often.

    Raises:
        UserError: an unknown data set, or one that is not in the data root.
    """

    def __init__(self, dataset: str, plan: Plan) -> None:
        if dataset not in DATASETS:
            raise unknown_name("dataset", dataset, DATASETS)
        self.dataset, self.plan, self.name = dataset, plan, f"blr-{dataset}"
        task = tasks.make(self.name, minibatch=plan.minibatch)
        assert isinstance(task, LogisticRegression)
        self.task = task
        self.reference = task.posterior.reference()

    def method(self, arm: Arm, lr: float, *, tuning: bool) -> methods.Method:
        """What `raychains run --task blr-… --sampler … --schedule … --lr …` runs."""
        plan = self.plan
        seed, lanes = (plan.seed, plan.tuning_lanes) if tuning else (plan.seed + 1, plan.lanes)
        options = Run(
            task=self.name,
            sampler=arm.sampler,
            schedule=arm.schedule,
            lr=lr,
            seed=seed,
            steps=plan.steps,
            repeats=lanes,
        )
        return methods.resolve(options, task=self.task, name=self.name, sampler=arm.sampler, schedule=arm.schedule)

    def draws(self, arm: Arm, lr: float, *, tuning: bool) -> Array | None:
        """What is kept of one stack of chains, [draws, lanes, dim]; None if one of them diverged."""
        blocks = []
        try:
            for event in Chain(self.method(arm, lr, tuning=tuning).spec, self.task):
                if isinstance(event, Sample):
                    blocks.append(event.tensors["theta"].numpy())
        except Diverged:
            return None
        return np.concatenate(blocks)

    def spread(self, arm: Arm, lr: float) -> float:
        """Mean over lanes of the ratio of standard deviations, on the chains that steps are chosen on; infinite if they diverge."""
        found = self.draws(arm, lr, tuning=True)
        return float("inf") if found is None else float(sd_ratio(found, self.reference.sd).mean())

    def size(self, arm: Arm, lr: float) -> float:
        """Mean over lanes of the effective sample size, on the same chains; nan if they diverge."""
        found = self.draws(arm, lr, tuning=True)
        return float("nan") if found is None else float(figures(found, self.reference.sd).ess.mean())

    def same_mean(self, arm: Arm, lr: float) -> float:
        """The first step of ``arm`` for which it keeps its draws at the same mean step as `MATCHED` from ``lr``."""
        here, there = (mean_step(self.method(a, 1.0, tuning=True).schedule) for a in (arm, MATCHED))
        return lr * there / here

    def measured(self, arm: Arm, lr: float) -> tuple[Figures, Array] | None:
        """The figures of fresh chains and their draws [draws, lanes, dim]; None where one of them diverged."""
        found = self.draws(arm, lr, tuning=False)
        return None if found is None else (figures(found, self.reference.sd), found)

    def steps(self, arm: Arm, matched: float) -> dict[str, float | None]:
        """The first step of an arm by every rule.

        Args:
            arm: which.
            matched: the step at which `MATCHED` has the published effective sample size: `matched`.
        """
        grid = log_grid(*self.plan.grid)
        return {
            BY_SPREAD: largest(grid, lambda lr: self.spread(arm, lr), LIMIT),
            SAME_START: matched,
            SAME_MEAN: self.same_mean(arm, matched),
        }

    def matched(self) -> float:
        """The step of the grid at which `MATCHED` comes nearest to the published effective sample size."""
        published = PUBLISHED[MATCHED.method][self.dataset]
        return nearest(log_grid(*self.plan.grid), lambda lr: self.size(MATCHED, lr), published)

    def row(self, arm: Arm, rule: str, lr: float | None) -> dict[str, Any]:
        """The figures of fresh chains as one row; None for what a rule found no step for, or chains that diverge."""
        found = None if lr is None else self.measured(arm, lr)
        row: dict[str, Any] = {
            "dataset": self.dataset, "method": arm.method, "arm": arm.schedule, "rule": rule, "lr": lr,
            "published_ess": PUBLISHED[arm.method][self.dataset],
        }  # fmt: skip
        names = ("ess", "ess_uncapped", "sd_ratio")
        if found is None:
            return {**row, **dict.fromkeys([n for name in names for n in (name, f"{name}_se")]), "draws": None}
        seen, draws = found
        for name, values in zip(names, (seen.ess, seen.uncapped, seen.sd_ratio), strict=True):
            error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
            row |= {name: float(values.mean()), f"{name}_se": error}
        return {**row, "draws": len(draws)}


def figures(draws: Array, sd: Array) -> Figures:
    """Of draws [draws, lanes, dim], given the reference's standard deviations [dim]."""
    each = np.stack([ess(draws[None, :, lane]) for lane in range(draws.shape[1])])  # [lanes, dim]
    return Figures(np.minimum(each, len(draws)).mean(1), each.mean(1), sd_ratio(draws, sd))


def mean_step(schedule: Schedule) -> float:
    """Mean step size over the steps whose draws are kept."""
    kept = [s.lr for s in map(schedule.at, range(1, schedule.steps + 1)) if s.keep]
    return sum(kept) / len(kept)


def rows(
    datasets: Sequence[str] = DATASETS, plan: Plan | None = None, tell: Callable[[str], None] = lambda line: None
) -> Iterator[dict[str, Any]]:
    """The table, row by row: dataset, method, arm, rule, lr, ess, ess_uncapped, sd_ratio (each with its standard error
    over lanes, ``_se``), draws and published_ess.

    Args:
        datasets: of `DATASETS`.
        plan: default the table as it is published in docs/blr.md.
        tell: told in a line what is done.

    Raises:
        UserError: an unknown data set, or one that is not in the data root.
    """
    plan = plan if plan is not None else Plan()
    for dataset in datasets:
        bench = Bench(dataset, plan)
        r = bench.reference
        tell(
            f"{dataset}: reference of {r.chains} × {r.draws} draws, least effective sample size {r.ess.min():.0f}, largest "
            f"R-hat {r.r_hat.max():.4f}"
        )
        matched = bench.matched()
        for arm in ARMS:
            tell(f"{dataset}: {arm.method}, {arm.schedule}")
            for rule, lr in bench.steps(arm, matched).items():
                yield bench.row(arm, rule, lr)


PAIRS = (("cSGLD", "SGLD"), ("cSGHMC", "SGHMC"), ("SGHMC", "SGLD"), ("cSGHMC", "cSGLD"))
"""Methods whose effective sample sizes the paper's table lets one compare."""


def verdicts(found: Sequence[Mapping[str, Any]], traditional: str = "decreasing") -> list[dict[str, Any]]:
    """Which of the paper's comparisons hold: a row per data set, rule and pair of `PAIRS`.

    ``published`` and ``found`` say whether the first method has ``more``, ``less`` or ``the same``: of ours within two
    standard errors of the difference, of the paper's, which has no errors, where the numbers are equal. ``found`` is
    None where one of them has no figure.

    Args:
        found: `rows`.
        traditional: which arm stands for the methods without cycles.
    """
    known = {(r["dataset"], r["rule"], r["method"]): r for r in found if r["arm"] in ("cyclical", traditional)}
    made = []
    for dataset, rule in dict.fromkeys((d, rule) for d, rule, _ in known):
        for more, less in PAIRS:
            a, b = (known.get((dataset, rule, m)) for m in (more, less))
            if a is None or b is None:
                continue
            published = _compared(a["published_ess"] - b["published_ess"], 0.0)
            ours = None
            if a["ess"] is not None and b["ess"] is not None:
                error = ((a["ess_se"] or 0.0) ** 2 + (b["ess_se"] or 0.0) ** 2) ** 0.5
                ours = _compared(a["ess"] - b["ess"], 2 * error)
            made.append(
                {"dataset": dataset, "rule": rule, "first": more, "second": less, "published": published, "found": ours}
            )
    return made


def _compared(difference: float, within: float) -> str:
    if abs(difference) <= within:
        return "the same"
    return "more" if difference > 0 else "less"
