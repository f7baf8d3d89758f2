"""Theorem 2, appendix G's convex bound and Entropy-MCMC's theorem 1: distances to the target against the bounds on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from matplotlib.figure import Figure

from raychains.evaluation import discrepancy
from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian
from raychains.experiments.theory import dimension, recursion, wasserstein
from raychains.experiments.theory.drive import drive, seeds
from raychains.experiments.theory.wasserstein import CONTROL, HARMONIC, POLYNOMIAL, SCHEDULES
from raychains.published.claims import Claim, Of
from raychains.published.experiment import Experiment, Part, Setting, Tables
from raychains.published.found import cell
from raychains.published.tables import Heading
from raychains.published.theory.jackknife import pseudo_values
from raychains.published.work import Work
from raychains.report.figures.arms import powers
from raychains.report.figures.layout import COUNT, handle, legend, log_axis, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme
from raychains.samplers import SGLD, EntropyMCMC
from raychains.schedules import Constant

PLANS = {"smoke": wasserstein.SMOKE, "cpu": wasserstein.Plan(), "gpu": wasserstein.Plan(), "paper": wasserstein.Plan()}
PAIRS = {"smoke": dimension.SMOKE, "cpu": dimension.Plan(), "gpu": dimension.Plan(), "paper": dimension.Plan()}
PART = "gaussian"
SCHEDULED = {
    "cyclical": "cSGLD, cyclical step (Eq. 1)", HARMONIC: "SGLD, h₀/k", POLYNOMIAL: "SGLD, h₀k^-0.55",
    CONTROL: "past stability (control)",
}  # fmt: skip
CONSTANT = {
    "sgld_bound": "SGLD, constant step, in d",
    "printed": "Entropy-MCMC, constant step: the bound in 2d as stated",
    "corrected": "Entropy-MCMC, constant step: with the pair's own constants",
}
BOUNDS = {"general": "bound", "special": "printed", "convex": "convex"}
"""Columns, and what they are called in `wasserstein`."""
COLUMNS = {
    "general": "Theorem 2, general", "special": "Theorem 2, with the sums printed for this step", "convex": "Convex (App. G)",
    "agreement": "W₂ of lanes / exact W₂",
}  # fmt: skip
TOLERANCE = 0.05
"""Of the last column around 1."""


def computed(work: Work) -> Tables:
    """Per bound the smallest log₁₀(bound / W₂) over K, W₂ from lanes, by the groups' jackknife; exact values beside."""
    plan, pair = PLANS[work.scale], PAIRS[work.scale]
    names = [(name, plan.steps) for name in SCHEDULES] + [(CONTROL, plan.outside_steps)]
    cells: list[dict[str, Any]] = []
    rows = [_short(row) for row in wasserstein.table(plan)]
    for number, (name, steps) in enumerate(names):
        work.tell("schedules", number, len(names) + len(CONSTANT))
        exact = [row for row in rows if row["schedule"] == name]
        found = work.piece(name, lambda exact=exact, steps=steps: scheduled(work, plan, exact[: len(steps)]))  # type: ignore[misc]
        cells += _cells(found, plan.lanes // plan.groups)
    pairs = [dimension.row(pair, start, lr, t) for start in pair.starts for lr in pair.lrs for t in pair.times]
    for number, name in enumerate(CONSTANT):
        work.tell("constant steps", len(names) + number, len(names) + len(CONSTANT))
        found = work.piece(name, lambda name=name: constant(work, pair, name, pairs))  # type: ignore[misc]
        cells += _cells(found, pair.lanes // pair.groups)
    return {"cells": cells, "distances": rows, "constant": [dict(r) for r in pairs]}


def _cells(found: Sequence[Mapping[str, Any]], samples: int) -> list[dict[str, Any]]:
    return [cell(PART, r["row"], r["column"], r["group"], r["value"], samples=samples) for r in found]


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """The exact distance and the bounds of a row, as numbers throughout."""
    return {
        "schedule": row["schedule"], "steps": row["steps"], "w2": row["w2"],
        **{column: math.nan if row[name] is None else float(row[name]) for column, name in BOUNDS.items()},
    }  # fmt: skip


def scheduled(work: Work, plan: wasserstein.Plan, exact: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pseudo-values of one step size's columns, from the rows of `distances` whose lanes are drawn."""
    name, draws = exact[0]["schedule"], []
    for row in exact:
        seed = seeds(plan.seed, [*SCHEDULES, CONTROL].index(name), row["steps"])
        draws.append(wasserstein.lanes(plan, plan.schedule(name, row["steps"]), seed))
        keep(work, f"{name}-{row['steps']}", draws[-1])
    target = recursion.target(plan.precision)
    made = {
        column: smallest([row[column] for row in exact], target) for column in BOUNDS if math.isfinite(exact[0][column])
    }
    made["agreement"] = ratio([row["w2"] for row in exact], target)
    return _pseudo(name, made, np.stack(draws, axis=1), plan.groups)


def smallest(bounds: Sequence[Any], target: Gaussian) -> Callable[[Array], float]:
    """log₁₀(bound / W₂) at the K where it is smallest, of lanes [groups, lanes, K, dim]."""
    return lambda groups: min(
        math.log10(float(bound) / w2(groups[:, :, at], target)) for at, bound in enumerate(bounds)
    )


def ratio(exact: Sequence[float], target: Gaussian) -> Callable[[Array], float]:
    """√ of the sum over K of lanes' W₂² over that of the exact ones: the small ones, which are mostly noise, count little."""
    whole = sum(value**2 for value in exact)
    return lambda groups: math.sqrt(sum(w2(groups[:, :, at], target) ** 2 for at in range(len(exact))) / whole)


def w2(groups: Array, target: Gaussian) -> float:
    """Of all lanes of some groups [groups, lanes, dim], by fitted moments."""
    return discrepancy.w2(discrepancy.fit(groups.reshape(-1, groups.shape[-1])), target)


def _pseudo(row: str, made: Mapping[str, Callable[[Array], float]], lanes: Array, groups: int) -> list[dict[str, Any]]:
    """Every column's pseudo-values, from lanes [lanes, …]."""
    grouped = lanes.reshape(groups, -1, *lanes.shape[1:])
    return [
        {"row": row, "column": column, "group": g, "value": value}
        for column, statistic in made.items()
        for g, value in enumerate(pseudo_values(statistic, grouped))
    ]


def constant(work: Work, plan: dimension.Plan, name: str, exact: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same of a bound at a constant step, at the start, step size and time where it is tightest."""
    own = "sgld_w2" if name == "sgld_bound" else "joint_w2"
    row = min(exact, key=lambda r: float(r[name]) / float(r[own]))
    lanes = final(plan, float(row["start"]), float(row["lr"]), int(row["steps"]), alone=name == "sgld_bound")
    keep(work, name, lanes)
    precision = np.diag(plan.eigenvalues)
    target = recursion.target(precision if name == "sgld_bound" else recursion.joint_precision(precision, plan.eta))
    made = {"convex": smallest([row[name]], target), "agreement": ratio([float(row[own])], target)}
    return _pseudo(name, made, lanes[:, None], plan.groups)


def final(plan: dimension.Plan, start: float, lr: float, steps: int, *, alone: bool) -> Array:
    """The last state of lanes under a constant step: θ of SGLD [lanes, d], or (θ, θₐ) of Entropy-MCMC [lanes, 2d]."""
    values = torch.tensor(plan.eigenvalues, dtype=torch.float64)
    seed = seeds(plan.seed, 100 + int(alone), steps)
    generator = torch.Generator().manual_seed(seeds(seed, 1))
    fresh = torch.randn(plan.lanes, len(values), generator=generator, dtype=torch.float64)

    def make(parameter: torch.Tensor, noise: int) -> Any:
        if alone:
            return SGLD([parameter], lr=lr, num_data=1, seed=noise, lanes=plan.lanes)
        return EntropyMCMC([parameter], lr=lr, eta=plan.eta, num_data=1, seed=noise, lanes=plan.lanes)

    sampler = drive(
        make, start + math.sqrt(plan.start_variance) * fresh, schedule=Constant(lr=lr, steps=steps),
        gradient=lambda theta: theta * values, gradient_sd=plan.gradient_sd, seed=seed,
    )  # fmt: skip
    return torch.cat([tensors[0] for _, tensors in sampler.draws()], dim=1).numpy()


def keep(work: Work, name: str, lanes: Array) -> None:
    """The last states [lanes, dim], for whoever wants to measure them otherwise."""
    work.folder.write_arrow(f"draws/{name}", pa.table({f"theta{i}": lanes[:, i] for i in range(lanes.shape[1])}))


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """W₂ and the bounds on it against K."""
    if "distances" not in tables:
        return []
    table = tables["distances"]
    return [
        Drawing(
            name="distances",
            title="Distance to the target, and the bounds on it",
            caption="W₂ between the law after K steps and the Gaussian target, exact, beside theorem 2's general bound, the same "
            "with the sums printed for this step, and the convex bound of appendix G. The control lies outside the assumptions: its distance "
            "leaves the bound.",
            alt="Exact W₂ and three bounds against the number of steps for three step sizes and a control",
            draw=lambda theme: _draw(table, theme),
        )
    ]


LOOKS = {
    "w2": Look("cyclical", 0, "W₂, exact"), "general": Look("decreasing", 0, "theorem 2, general"),
    "special": Look("decreasing", 1, "theorem 2, with the printed sums"), "convex": Look("other", 2, "convex (App. G)"),
}  # fmt: skip


def _draw(table: pd.DataFrame, theme: Theme) -> Figure:
    figure, axes = panels(2, 2, 2.6)
    for axis, (name, label) in zip((a for row in axes for a in row), SCHEDULED.items(), strict=True):
        mine = table[table["schedule"] == name]
        for column, look in LOOKS.items():
            axis.plot(
                mine["steps"], mine[column], color=theme.colour(look), marker="o", markersize=3,
                linestyle="-" if column == "w2" else "--",
            )  # fmt: skip
        axis.set(xscale="log", yscale="log", title=label)
        log_axis(axis.xaxis, subs=(1.0, 2.0, 4.0) if name == CONTROL else (1.0, 3.0))
        axis.xaxis.set_major_formatter(COUNT)
        powers(axis.yaxis)
    for row in axes:
        row[0].set_ylabel("W₂")
    for axis in axes[-1]:
        axis.set_xlabel("Steps K")
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=4)
    return figure


def _above(name: str, text: str, row: str, column: str, direction: Any = "greater") -> Claim:
    return Claim(
        name=name, text=text, part=PART, left=Of(row=row, column=column), right=0.0, direction=direction,
        rule="one-sample", must_decide=True, scales=("cpu", "gpu", "paper"),
    )  # fmt: skip


CLAIMS = (
    *(
        _above(f"{column}-above-{row}", f"{COLUMNS[column]}: the bound lies above W₂ at every K ({SCHEDULED[row]}).", row, column)
        for row in SCHEDULES
        for column in BOUNDS
        if (row, column) != (POLYNOMIAL, "special")
    ),
    _above(
        "control-leaves", "Control: with a step past stability W₂ leaves the general bound.", CONTROL, "general", "less"
    ),
    _above("sgld-convex", "The convex bound of a constant step lies above SGLD's W₂.", "sgld_bound", "convex"),
    _above(
        "only-the-dimension", "Entropy-MCMC's bound is SGLD's with the dimension doubled, and lies above the pair's W₂.",
        "printed", "convex",
    ),
    _above(
        "pair-constants", "With the joint energy's own constants the bound lies above the pair's W₂.", "corrected", "convex"
    ),
    *(
        Claim(
            name=f"lanes-agree-{row.replace('_', '-')}", part=PART, left=Of(row=row, column="agreement"), right=1.0,
            text=f"W₂ of the public sampler's lanes is the exact one, to 5 % ({label}).", direction="equal",
            tolerance=TOLERANCE, rule="one-sample", must_decide=True, scales=("cpu", "gpu", "paper"),
        )
        for row, label in (SCHEDULED | CONSTANT).items()
    ),
)  # fmt: skip


def settings(scale: str) -> list[Setting]:
    plan, pair = PLANS[scale], PAIRS[scale]
    return [
        Setting(
            name="target", value=f"Gaussian, eigenvalues {', '.join(f'{v:g}' for v in plan.eigenvalues)}", origin="ours"
        ),
        Setting(name="start", value=f"N({plan.start:g}, {plan.start_variance:g}·I)", origin="ours"),
        Setting(name="noise on the gradient", value=f"Gaussian, sd {plan.gradient_sd:g}", origin="ours"),
        Setting(name="first step, M", value=f"{plan.lr:g}, {plan.cycles}", origin="ours"),
        Setting(name="step sizes", value="Eq. 1; h₀/k; h₀k^-0.55", origin="published"),
        Setting(name="K", value=", ".join(f"{k:,}" for k in plan.steps), origin="ours"),
        Setting(name="control", value=f"Eq. 1 from {plan.outside_lr:g}", origin="ours"),
        Setting(name="lanes", value=f"{plan.lanes:,} in {plan.groups} groups", origin="ours"),
        Setting(
            name="η, constant steps", value=f"{pair.eta:g}; {', '.join(f'{v:g}' for v in pair.lrs)}", origin="ours"
        ),
    ]


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["2,000 lanes of few steps: this only shows that everything runs."]
    return [
        "The paper does not test its bounds. On a Gaussian the law after K steps is known, so that a bound can be held against "
        "the exact distance and against that of the public samplers' draws.",
        "Numbers are log₁₀ of a bound over W₂ at the K (for constant steps: the start, step and time) where it is smallest: "
        "below 0 the bound is broken. Repeats are the jackknife's pseudo-values of the groups of lanes.",
        "Theorem 2's constants are derived again from the lemmas that it cites: C₂ is four times the printed one, C₀ is without "
        "the factor α₀/α_min, and a sum of steps below 1 counts as 1. The column for this step has the printed sums of steps and "
        "of their squares, and these constants.",
        "The bounds hold and are far from sharp: theorem 2's is tens to millions of times W₂ and grows with K where W₂ falls. "
        "Its special case with β > 1 says nothing and is not claimed.",
        "Entropy-MCMC's theorem 1 takes the joint energy to be as convex and as smooth as the original one. It is not: its least "
        "curvature is below half of it. As stated the bound is broken by starts far from the target; with the joint energy's own "
        "constants it holds.",
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        name="theorem2", title="W₂ to the target against the bounds", paper="csgmcmc",
        where="Theorem 2, App. G; Entropy-MCMC's Theorem 1", order=41,
        parts=(Part(name=PART, label="", computed=computed),),
        rows=lambda scale: [Heading(key, label) for key, label in (SCHEDULED | CONSTANT).items()],
        columns=lambda scale: [
            Heading(key, f"log₁₀ bound/W₂: {label}" if key in BOUNDS else label, decimals=3) for key, label in COLUMNS.items()
        ],
        absent="no such bound is stated for this step",
        claims=CLAIMS,
        settings=settings,
        differences=differences,
        hours={"smoke": 0.002, "cpu": 0.01, "gpu": 0.01, "paper": 0.01},
        figures=figures,
    ),
)  # fmt: skip
