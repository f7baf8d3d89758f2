"""Effective sample sizes on Bayesian logistic regression (App. A.2, Table 5), and how right the draws are.

The effective sample size rewards steps that are too large, and the published ones are not known. Hence three rules: the
largest step whose draws have the posterior's spread; and the steps at which SGLD has the published effective sample
size, which the other methods take as they are or so that all take the same mean step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import raychains as rc
from raychains import papers as rp
from raychains import tasks
from raychains.evaluation.evaluation import Array
from raychains.evaluation.mcmc_diagnostics import ess
from raychains.evaluation.moments import sd_ratio
from raychains.schedules import Schedule
from raychains.tasks.logistic_regression import LogisticRegression

DATASETS = ("australian", "german", "heart")


@dataclass(frozen=True)
class Arm:
    """One method under one schedule."""

    method: str
    """As in the published table."""
    schedule: str

    @property
    def key(self) -> str:
        """The key of its row."""
        return f"{self.method.lower()}-{self.schedule}"


ARMS = (
    *(Arm("SGLD", "decreasing"), Arm("SGLD", "constant"), Arm("cSGLD", "cyclical")),
    *(Arm("SGHMC", "decreasing"), Arm("SGHMC", "constant"), Arm("cSGHMC", "cyclical")),
)
"""The paper does not say whether its traditional step sizes fall; so both are there."""
MATCHED = ARMS[0]
"""The arm whose effective sample size is made the published one."""
PRINTED = """
sgld-decreasing: 1,676 | 492 | 2,199
csgld-cyclical: 2,138 | 978 | 2,541
sghmc-decreasing: 1,317 | 2,007 | 5,000
csghmc-cyclical: 4,707 | 2,436 | 5,000
"""
"""Mean effective sample size of 5,000 draws. No repeats are mentioned."""
VALUES = rp.printed(PRINTED, [(name, "start-ess") for name in DATASETS], "Zhang et al. 2020, Table 5")
LIMIT = 1.10
"""The largest median ratio of standard deviations, in either direction."""
BY_SPREAD, SAME_START, SAME_MEAN = RULES = ("spread", "start", "mean")
"""Rules by which a step size is chosen, and what their columns' keys begin with."""
SHOWN = (
    rp.Heading("spread-ess", "equally right draws: ESS", decimals=0),
    rp.Heading("spread-sd_ratio", "equally right draws: sd ratio", decimals=2),
    rp.Heading("start-ess", "SGLD's published ESS: ESS", decimals=0),
    rp.Heading("start-sd_ratio", "SGLD's published ESS: sd ratio", decimals=2),
)
"""The table's columns; the third rule's sizes are in the table ``steps`` only."""


# Step sizes by a rule on a grid

Measure = Callable[[float], float]
"""A step size to a figure; nan or infinity where the chain broke down."""
STRIDE = 4
"""`nearest` first tries every fourth step."""


def log_grid(low: float, high: float, per_decade: int) -> list[float]:
    """Return step sizes 10^(i/per_decade) from ``low`` to ``high``, rising, with three significant digits."""
    first = math.ceil(per_decade * math.log10(low) - 1e-9)
    last = math.floor(per_decade * math.log10(high) + 1e-9)
    return [float(f"{10 ** (i / per_decade):.3g}") for i in range(first, last + 1)]


def largest(steps: Sequence[float], measure: Measure, limit: float) -> float | None:
    """Return the largest of ``steps`` whose figure is at most ``limit``; None if there is none.

    They are tried from the largest down, because a figure such as a ratio of standard deviations need not be monotone:
    it is wrong for steps that are too large and again for those too small to get anywhere.
    """
    return next((step for step in sorted(steps, reverse=True) if measure(step) <= limit), None)  # false for nan


def nearest(steps: Sequence[float], measure: Measure, target: float) -> float:
    """Return the step whose figure is nearest to ``target`` on a logarithmic scale, for a figure that grows with the
    step.

    They are tried from the smallest up to the first that reaches ``target``, every fourth and then those just below; of
    all tried it is the nearest. Where none reaches it, all are tried but those at and above the first without a figure.

    Raises:
        UserError: none has a figure.
    """
    rising, found = sorted(steps), {}

    def reached(step: float) -> bool:
        """Return whether its figure is at least the target, or missing because the chain breaks down."""
        found[step] = measure(step)
        return not found[step] < target

    end = next((i for i in range(0, len(rising), STRIDE) if reached(rising[i])), len(rising))
    coarse = end < len(rising) and math.isfinite(found[rising[end]])
    first = max(0, end - STRIDE + 1) if coarse else 0
    for step in rising[first:end]:
        if step not in found and reached(step):
            break
    known = [(abs(math.log(size / target)), step) for step, size in found.items() if math.isfinite(size) and size > 0]
    if not known:
        raise rc.UserError(f"steps must have one at which the chain does not break down, got {list(steps)}")
    return min(known)[1]


# Chains


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Numbers and lengths of the chains, and the grid of steps."""

    lanes: int = 10
    """Independent chains of every figure."""
    tuning_lanes: int = 5
    """Chains that steps are chosen on."""
    seed: int = 0
    """Steps are chosen on chains of this seed, figures are of chains of the next one."""
    steps: int = 6_000
    """Steps of each chain; five sixths of them are kept."""
    minibatch: int | None = None
    """Examples per step; None for all."""
    grid: tuple[float, float, int] = (0.1, 100.0, 10)
    """The steps that are tried: from, to, and how many a decade."""


PLANS = {
    "smoke": Plan(lanes=2, tuning_lanes=2, steps=120, grid=(4.0, 16.0, 2)),
    "cpu": Plan(),
    "gpu": Plan(),
    "paper": Plan(lanes=1),
}


class Bench:
    """One of `DATASETS` with its reference posterior, on which arms are measured.

    Raises:
        UserError: the data set is not in the data root.
    """

    def __init__(self, dataset: str, plan: Plan) -> None:
        self.dataset, self.plan, self.name = dataset, plan, f"blr-{dataset}"
        task = tasks.make(self.name, minibatch=plan.minibatch)
        assert isinstance(task, LogisticRegression)
        self.task = task
        self.reference = task.posterior.reference()

    def method(self, arm: Arm, lr: float, *, tuning: bool) -> rp.Method:
        """Return what `raychains run --task blr-… --sampler … --schedule … --lr …` runs."""
        plan = self.plan
        seed, lanes = (plan.seed, plan.tuning_lanes) if tuning else (plan.seed + 1, plan.lanes)
        options: dict[str, Any] = {"lr": lr, "seed": seed, "steps": plan.steps, "repeats": lanes}
        return rp.density_method(self.task, self.name, sampler=arm.method.lower(), schedule=arm.schedule, **options)

    def draws(self, arm: Arm, lr: float, *, tuning: bool) -> Array | None:
        """Return the kept draws of one stack of chains, [draws, lanes, dim]; None if one of them diverged."""
        return rp.density_draws(self.method(arm, lr, tuning=tuning), self.task)

    def spread(self, arm: Arm, lr: float) -> float:
        """Return the mean of `sd_ratio` on the chains that steps are chosen on; infinite if they diverge."""
        found = self.draws(arm, lr, tuning=True)
        return math.inf if found is None else float(sd_ratio(found, self.reference.sd).mean())

    def size(self, arm: Arm, lr: float) -> float:
        """Return the mean of `sizes` on the same chains; nan if they diverge."""
        found = self.draws(arm, lr, tuning=True)
        return math.nan if found is None else float(np.mean(sizes(found)))

    def matched(self) -> float:
        """Return the step of the grid at which `MATCHED` comes nearest to the published effective sample size."""
        (published,) = (v.summary.mean for v in VALUES if (v.part, v.row) == (self.dataset, MATCHED.key))
        return nearest(log_grid(*self.plan.grid), lambda lr: self.size(MATCHED, lr), published)

    def steps(self, arm: Arm, matched: float) -> dict[str, float | None]:
        """Return the first step of an arm by every rule, from the one that `matched` returned."""
        grid = log_grid(*self.plan.grid)
        here, there = (mean_step(self.method(a, 1.0, tuning=True).schedule) for a in (arm, MATCHED))
        by_spread = largest(grid, lambda lr: self.spread(arm, lr), LIMIT)
        return {BY_SPREAD: by_spread, SAME_START: matched, SAME_MEAN: matched * there / here}

    def rows(
        self, arm: Arm, matched: float, keep: Callable[[str, Array], None] = lambda rule, draws: None
    ) -> list[dict[str, Any]]:
        """Return the figures of fresh chains by every rule that has a step, a row per lane: rule, lane, lr, ess,
        sd_ratio, draws.

        ``keep`` is called with the draws [draws, lanes, dim] by each rule.
        """
        made: list[dict[str, Any]] = []
        for rule, lr in self.steps(arm, matched).items():
            found = None if lr is None else self.draws(arm, lr, tuning=False)
            if found is None:
                continue
            keep(rule, found)
            for lane, figures in enumerate(zip(sizes(found), sd_ratio(found, self.reference.sd).tolist(), strict=True)):
                where = {"rule": rule, "lane": lane, "lr": lr}
                made.append(where | dict(zip(FIGURES, figures, strict=True)) | {"draws": len(found)})
        return made


FIGURES = ("ess", "sd_ratio")


def sizes(draws: Array) -> list[float]:
    """Return each lane's mean over coefficients of the bulk effective sample size, each at most the number of draws."""
    return [float(np.minimum(ess(draws[None, :, lane]), len(draws)).mean()) for lane in range(draws.shape[1])]


def mean_step(schedule: Schedule) -> float:
    """Return the mean step size over the steps whose draws are kept."""
    kept = [s.lr for s in map(schedule.at, range(1, schedule.steps + 1)) if s.keep]
    return sum(kept) / len(kept)


# The experiment


def computed(work: rp.Computation) -> rp.Tables:
    """Return the figures per lane, arm and rule; and the chosen steps."""
    cells: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    bench: list[Bench] = []

    def measured(arm: Arm) -> list[dict[str, Any]]:
        if not bench:  # its reference takes as long as a dozen chains
            bench.append(Bench(work.part, PLANS[work.scale]))

        def keep(rule: str, draws: Array) -> None:
            """Write the draws themselves, so that these sizes can be computed in another way."""
            table = {f"lane{i}": pa.array(list(draws[:, i].astype(np.float32))) for i in range(draws.shape[1])}
            work.folder.write_arrow(f"draws/{work.part}-{arm.key}-{rule}", pa.table(table))

        return bench[0].rows(arm, work.piece("matched", lambda: [{"lr": bench[0].matched()}])[0]["lr"], keep)

    for number, arm in enumerate(ARMS):
        work.tell(work.part, number, len(ARMS))
        for row in work.piece(arm.key, partial(measured, arm)):
            for name in FIGURES:
                where = (work.part, arm.key, f"{row['rule']}-{name}", row["lane"], row[name])
                cells.append(rp.cell(*where, samples=row["draws"]))
            steps.append({"part": work.part, "row": arm.key, **row})
    shown = {heading.key for heading in SHOWN}
    return {"cells": [c for c in cells if c["column"] in shown], "steps": steps}


CLAIMED = [(name, more, less) for name in DATASETS for more, less in (("cSGLD", "SGLD"), ("cSGHMC", "SGHMC"))][:-1]
"""A.2: cyclical methods have larger sizes than the same ones without cycles; on Heart SGHMC and cSGHMC have the
same."""


def claims() -> tuple[rp.Claim, ...]:
    """Return the claims, at equally right draws; the decreasing arms stand for the paper's methods without cycles."""
    pairs = ((name, more, less, more.lower(), less.lower()) for name, more, less in CLAIMED)
    table = (
        f"{name}-{left}-above-{right} | {name} spread-ess | {left}-cyclical > {right}-decreasing | {more} has a larger "
        f"effective sample size than {less} at equally right draws ({name})."
        for name, more, less, left, right in pairs
    )
    return rp.stated(table, scales=("cpu", "gpu"))


def settings(scale: str) -> list[rp.Setting]:
    plan = PLANS[scale]
    draws = f"{plan.steps * 5 // 6:,} after {plan.steps // 6:,}"
    return [
        rp.Setting("draws", draws, rp.OURS if scale == "smoke" else rp.PUBLISHED),
        rp.Setting("step sizes", "by three rules, on a grid", rp.OURS),
        rp.Setting("prior, scaling", "N(0, 100·I), standardised", rp.OURS),
        rp.Setting("gradients", "of all examples", rp.OURS),
        rp.Setting("momentum", "0.9", rp.OURS),
        rp.Setting("M, β", "4, 1/6", rp.OURS),
        rp.Setting("repeats", str(plan.lanes), rp.OURS),
    ]


STUDY = rp.Study(
    name="table5",
    paper="csgmcmc",
    where="Table 5",
    title="effective sample sizes on Bayesian logistic regression",
    needs=("uci",),
    hours=(0.01, 0.2, 0.2, 0.1),
    parts=tuple(rp.Part(name=name, label=name.capitalize(), data=("uci",), computed=computed) for name in DATASETS),
    rows={arm.key: f"{arm.method}, {arm.schedule}" for arm in ARMS},
    columns=SHOWN,
    absent="no step of the grid fits the rule, or the chains diverge",
    values=VALUES,
    claims=claims(),
    settings=settings,
    differences="""
smoke cpu gpu paper: The paper's step sizes are unpublished, and the effective sample size rewards steps that are too
    long. So steps are chosen by three rules: the largest whose draws have a standard deviation within 10 % of the
    posterior's; the one at which SGLD comes nearest to the published size, for all methods as it is; and such that
    all have its mean step.
smoke cpu gpu paper: The paper does not say whether its traditional steps fall: both arms are there.
paper: The paper prints one number per cell and no number of runs; one chain of each runs.
smoke cpu gpu: The paper prints one number per cell; ours are means over independent chains.
""",
)
