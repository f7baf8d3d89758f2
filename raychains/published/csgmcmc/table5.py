"""Effective sample sizes on Bayesian logistic regression (App. A.2, Table 5), beside how right the draws are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raychains.evaluation.base import Array
from raychains.experiments import table5
from raychains.experiments.table5 import ARMS, BY_SPREAD, DATASETS, PUBLISHED, SAME_MEAN, SAME_START, Bench, Plan
from raychains.published.claims import Claim, Of, Summary
from raychains.published.experiment import Experiment, Part, Setting, Tables, Value
from raychains.published.found import cell
from raychains.published.tables import Heading
from raychains.published.work import Work

PLANS = {
    "smoke": Plan(lanes=2, tuning_lanes=2, steps=120, grid=(4.0, 16.0, 2)),
    "cpu": Plan(),
    "gpu": Plan(),
    "paper": Plan(lanes=1),
}
RULES = {BY_SPREAD: "spread", SAME_START: "start", SAME_MEAN: "mean"}
"""Rules by which a step size is chosen, and what their columns' keys begin with."""
SHOWN = {
    "spread-ess": ("equally right draws: ESS", 0),
    "spread-sd_ratio": ("equally right draws: sd ratio", 2),
    "start-ess": ("SGLD's published ESS: ESS", 0),
    "start-sd_ratio": ("SGLD's published ESS: sd ratio", 2),
}
"""The table's columns; the third rule's sizes are in the table ``steps`` only."""
TRADITIONAL = "decreasing"
"""The arm that stands for the paper's methods without cycles."""


def key(arm: table5.Arm) -> str:
    """Of an arm's row."""
    return f"{arm.method.lower()}-{arm.schedule}"


def computed(work: Work) -> Tables:
    """Per lane, arm and rule: effective sample size, ratio of standard deviations; and the chosen steps."""
    made: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    bench: list[Bench] = []

    def measured(arm: table5.Arm) -> list[dict[str, Any]]:
        if not bench:  # its reference takes as long as a dozen chains
            bench.append(Bench(work.part, PLANS[work.scale]))
        matched = work.piece("matched", lambda: [{"lr": bench[0].matched()}])[0]["lr"]
        rows: list[dict[str, Any]] = []
        for rule, lr in bench[0].steps(arm, matched).items():
            found = None if lr is None else bench[0].measured(arm, lr)
            if lr is None or found is None:
                continue
            figures, draws = found
            _keep(work, f"{key(arm)}-{RULES[rule]}", draws)
            rows += [
                {"rule": RULES[rule], "lane": i, "lr": lr, "ess": e, "sd_ratio": s, "draws": len(draws)}
                for i, (e, s) in enumerate(zip(figures.ess.tolist(), figures.sd_ratio.tolist(), strict=True))
            ]
        return rows

    for number, arm in enumerate(ARMS):
        work.tell(work.part, number, len(ARMS))
        for row in work.piece(key(arm), lambda arm=arm: measured(arm)):  # type: ignore[misc]
            for column in ("ess", "sd_ratio"):
                where = (work.part, key(arm), f"{row['rule']}-{column}", row["lane"], row[column])
                made.append(cell(*where, samples=row["draws"]))
            steps.append({"part": work.part, "row": key(arm), **row})
    return {"cells": [c for c in made if c["column"] in SHOWN], "steps": steps}


def _keep(work: Work, name: str, draws: Array) -> None:
    """The draws themselves [draws, lanes, dim], for whoever wants to compute these sizes otherwise."""
    table = {f"lane{i}": pa.array(list(draws[:, i].astype(np.float32))) for i in range(draws.shape[1])}
    work.folder.write_arrow(f"draws/{work.part}-{name}", pa.table(table))


CLAIMED = {
    "australian": (("cSGLD", "SGLD"), ("cSGHMC", "SGHMC")), "german": (("cSGLD", "SGLD"), ("cSGHMC", "SGHMC")),
    "heart": (("cSGLD", "SGLD"),),
}  # fmt: skip
"""A.2: cyclical methods have larger sizes than the same ones without cycles; on Heart SGHMC and cSGHMC have the same."""


def _claim(part: str, more: str, less: str) -> Claim:
    """That one method has a larger size than another at equally right draws."""
    of = {m: f"{m.lower()}-{'cyclical' if m.startswith('c') else TRADITIONAL}" for m in (more, less)}
    return Claim(
        name=f"{part}-{more.lower()}-above-{less.lower()}",
        text=f"{more} has a larger effective sample size than {less} at equally right draws ({part}).",
        part=part,
        left=Of(row=of[more], column="spread-ess"),
        right=Of(row=of[less], column="spread-ess"),
        direction="greater",
        rule="welch",
        scales=("cpu", "gpu"),
    )


def _values() -> list[Value]:
    return [
        Value(
            part=dataset, row=key(arm), column="start-ess", text=f"{PUBLISHED[arm.method][dataset]:,}",
            summary=Summary(mean=PUBLISHED[arm.method][dataset], se=float("nan"), n=0),
            source="Zhang et al. 2020, Table 5",
        )
        for dataset in DATASETS for arm in ARMS if arm.schedule != "constant"
    ]  # fmt: skip


def _settings(scale: str) -> list[Setting]:
    plan = PLANS[scale]
    return [
        Setting(name="draws", value=f"{plan.steps * 5 // 6:,} after {plan.steps // 6:,}", origin="ours" if scale == "smoke" else "published"),
        Setting(name="step sizes", value="by three rules, on a grid", origin="ours"),
        Setting(name="prior, scaling", value="N(0, 100·I), standardised", origin="ours"),
        Setting(name="gradients", value="of all examples", origin="ours"),
        Setting(name="momentum", value="0.9", origin="ours"),
        Setting(name="M, β", value="4, 1/6", origin="ours"),
        Setting(name="repeats", value=str(plan.lanes), origin="ours"),
    ]  # fmt: skip


def _differences(scale: str) -> list[str]:
    made = [
        "The paper's step sizes are unpublished, and the effective sample size rewards steps that are too long. So steps "
        "are chosen by three rules: the largest whose draws have a standard deviation within 10 % of the posterior's; "
        "the one at which SGLD comes nearest to the published size, for all methods as it is; and such that all have its mean "
        "step.",
        "The paper does not say whether its traditional steps fall: both arms are there.",
    ]
    if PLANS[scale].lanes == 1:
        return [*made, "The paper prints one number per cell and no number of runs; one chain of each runs."]
    return [*made, "The paper prints one number per cell; ours are means over independent chains."]


EXPERIMENTS = (
    Experiment(
        name="table5", title="effective sample sizes on Bayesian logistic regression", paper="csgmcmc", where="Table 5",
        order=10,
        parts=tuple(
            Part(name=name, label=name.capitalize(), data=lambda scale: ("uci",), computed=computed) for name in DATASETS
        ),
        rows=lambda scale: [Heading(key(a), f"{a.method}, {a.schedule}") for a in ARMS],
        columns=lambda scale: [Heading(name, label, decimals=digits) for name, (label, digits) in SHOWN.items()],
        absent="no step of the grid fits the rule, or the chains diverge",
        values=tuple(_values()),
        claims=tuple(_claim(d, *pair) for d, pairs in CLAIMED.items() for pair in pairs),
        settings=_settings,
        differences=_differences,
        hours={"smoke": 0.01, "cpu": 0.2, "gpu": 0.2, "paper": 0.1},
    ),
)  # fmt: skip
