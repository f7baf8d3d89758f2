"""Theorem 1: how fast cSGLD's bias and mean squared error fall with the number of steps, and where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.evaluation.base import Array
from raychains.experiments.theory import slopes, weak
from raychains.experiments.theory.double_well import DoubleWell
from raychains.experiments.theory.drive import part, seeds
from raychains.experiments.theory.weak import AVERAGES, CONTROL, PLAIN, POWERS, WEIGHTED, Plan
from raychains.published.claims import Claim, Of, Summary
from raychains.published.experiment import Experiment, Part, Setting, Tables, Value
from raychains.published.found import cell
from raychains.published.tables import Heading
from raychains.published.theory.jackknife import pseudo_values
from raychains.published.work import Work
from raychains.report.figures.layout import COUNT, legend, log_axis, panels
from raychains.report.style import LINES, Drawing, Theme

PLANS = {"smoke": weak.SMOKE, "cpu": Plan(), "gpu": Plan(), "paper": Plan()}
PART = "double-well"
QUANTITIES = ("bias", "mse")
SWEEPS = {"root": "α₀ ∝ K^-1/2", "third": "α₀ ∝ K^-1/3", CONTROL: "α₀ fixed (control)"}
MEANS = {WEIGHTED: "weighted by the steps", PLAIN: "plain mean"}
SLACK = 0.05
"""By how much a slope over a finite range of K may be less steep than the exponent that it tends to."""
STATED = {
    ("root", "bias"): ("at most −1/2", -1 / 2), ("root", "mse"): ("at most −1/2", -1 / 2),
    ("third", "bias"): ("at most −1/3", -1 / 3), ("third", "mse"): ("at most −2/3", -2 / 3),
    (CONTROL, "bias"): ("at most 0", 0.0), (CONTROL, "mse"): ("at most 0", 0.0),
}  # fmt: skip


def key(sweep: str, average: str) -> str:
    """Of a row."""
    return f"{sweep}-{average}"


def computed(work: Work) -> Tables:
    """Slopes by jackknife pseudo-values of the groups of lanes, the errors behind them, and each group's own errors."""
    plan = PLANS[work.scale]
    groups: list[dict[str, Any]] = []
    exact: dict[tuple[str, int, str], tuple[Any, Any]] = {}
    total, done = len(plan.powers) * sum(plan.steps), 0
    for index, (sweep, power) in enumerate(plan.powers):
        for steps in plan.steps:
            tell = part(lambda d, t: work.tell("lanes", d, t), done, total)

            def lanes(
                index: int = index, sweep: str = sweep, power: float = power, steps: int = steps, tell: Any = tell
            ) -> Any:
                found = weak.averages(plan, power, steps, seeds(plan.seed, index, steps), tell)
                both = dict(zip(AVERAGES, found, strict=True))
                work.folder.write_arrow(f"draws/{sweep}-{steps}", pa.table(both))
                known = weak.exact(plan, power, steps) if steps <= plan.exact_until else {}
                return [row for average, values in both.items() for row in _of_groups(plan, average, values, known)]

            rows = work.piece(f"{sweep}-{steps}", lanes)
            groups += [
                {"sweep": sweep, "steps": steps, **{k: r[k] for k in ("average", "group", *QUANTITIES)}} for r in rows
            ]
            exact |= {(sweep, steps, r["average"]): (r["exact_bias"], r["exact_mse"]) for r in rows}
            done += steps
    return {"cells": cells(plan, groups), "errors": errors(plan, groups, exact), "groups": groups}


def _of_groups(
    plan: Plan, average: str, values: Array, known: Mapping[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """Bias and mean squared error of every group of lanes, beside the exact ones."""
    away = values - DoubleWell(plan.a).average(np.square)
    bias, mse = (slopes.in_groups(v, plan.groups) for v in (away, away**2))
    exact = dict(zip(("exact_bias", "exact_mse"), known.get(average, (None, None)), strict=True))
    return [
        {"average": average, "group": g, "bias": float(bias[g]), "mse": float(mse[g]), **exact}
        for g in range(plan.groups)
    ]


def array(groups: Sequence[Mapping[str, Any]], sweep: str, average: str, quantity: str) -> tuple[list[int], Array]:
    """K, and the quantity of every group at every K [groups, K]."""
    mine = pd.DataFrame([g for g in groups if g["sweep"] == sweep and g["average"] == average])
    table = mine.pivot_table(index="group", columns="steps", values=quantity)
    return [int(k) for k in table.columns], table.to_numpy()


def fitted(sweep: str, steps: Sequence[int]) -> slice:
    """The K that a slope is fitted to: the upper half for the control, where what falls with K is small."""
    return slice(len(steps) // 2, None) if sweep == CONTROL else slice(None)


def slope(steps: Sequence[int], means: Array) -> float:
    """Of log |mean| against log K; nan where the error changes its sign."""
    if not (np.all(means > 0) or np.all(means < 0)):
        return float("nan")
    return slopes.line_slope(np.log(np.asarray(steps, dtype=float)), np.log(np.abs(means)))


def cells(plan: Plan, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A slope's pseudo-value per group: their mean is the slope without its bias, their spread its standard error."""
    made = []
    for sweep, _ in plan.powers:
        for average in AVERAGES:
            for quantity in QUANTITIES:
                steps, values = array(groups, sweep, average, quantity)
                use = fitted(sweep, steps)
                found = pseudo_values(lambda kept: slope(steps[use], kept.mean(0)), values[:, use])  # noqa: B023
                row = key(sweep, average)
                made += [
                    cell(PART, row, quantity, g, v, samples=plan.lanes // plan.groups) for g, v in enumerate(found)
                ]
    return made


def errors(
    plan: Plan, groups: Sequence[Mapping[str, Any]], exact: Mapping[tuple[str, int, str], tuple[Any, Any]]
) -> list[dict[str, Any]]:
    """Bias and mean squared error with 95 % intervals for every sweep, average and K."""
    made = []
    for sweep, power in plan.powers:
        for average in AVERAGES:
            columns = {q: array(groups, sweep, average, q) for q in QUANTITIES}
            for at, steps in enumerate(columns["bias"][0]):
                row: dict[str, Any] = {"sweep": sweep, "average": average, "steps": steps, "lr": plan.lr(power, steps)}
                for number, quantity in enumerate(QUANTITIES):
                    it = slopes.jackknife(float, columns[quantity][1][:, at])
                    row |= {quantity: it.value, f"{quantity}_low": it.low, f"{quantity}_high": it.high}
                    row[f"{quantity}_exact"] = exact[sweep, steps, average][number]
                made.append(row)
    return made


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Both errors against K."""
    if "errors" not in tables:
        return []
    table = tables["errors"]
    return [
        Drawing(
            name="errors",
            title="Bias and mean squared error of cSGLD's averages",
            caption=f"Of θ² on a double well, from {PLANS[scale].lanes:,} lanes, with 95 % intervals; crosses: exact values by the transition "
            "operator. The theorem is about the average that is weighted by the steps. Grey: the stated exponents.",
            alt="Bias and mean squared error against the number of steps on logarithmic axes for three choices of α₀",
            draw=lambda theme: _draw(table, theme),
        )
    ]


def _draw(table: pd.DataFrame, theme: Theme) -> Figure:
    figure, ((left, right),) = panels(1, 2, 3.6)
    colours = dict(zip(SWEEPS, (theme.families[f][0] for f in ("cyclical", "other", "decreasing")), strict=True))
    for axis, quantity, best in ((left, "bias", ("root", -1 / 2)), (right, "mse", ("third", -2 / 3))):
        for (sweep, average), mine in table.groupby(["sweep", "average"], sort=False):
            x, y = mine["steps"].to_numpy(dtype=float), mine[quantity].abs().to_numpy()
            bars = np.stack([mine[quantity] - mine[f"{quantity}_low"], mine[f"{quantity}_high"] - mine[quantity]])
            dashes: Any = LINES[0 if average == WEIGHTED else 1]
            axis.errorbar(
                x, y, yerr=np.minimum(bars, 0.9 * y), color=colours[sweep], linestyle=dashes, marker="o", markersize=3
            )
            known = mine[f"{quantity}_exact"].abs()
            axis.plot(x, known, "x", color=colours[sweep], markersize=6)
        own = table[(table["sweep"] == best[0]) & (table["average"] == WEIGHTED)]
        steps, first = own["steps"].to_numpy(dtype=float), abs(own[quantity].iloc[0])
        axis.plot(steps, 0.5 * first * (steps / steps[0]) ** best[1], color=theme.muted, linewidth=1)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="Steps K",
            ylabel="|Bias|" if quantity == "bias" else "Mean squared error",
        )
        log_axis(axis.xaxis, subs=(1.0, 3.0))
        log_axis(axis.yaxis)
        axis.xaxis.set_major_formatter(COUNT)
    looks: list[Any] = [Line2D([], [], color=colours[s], label=label) for s, label in SWEEPS.items()]
    for n, m in enumerate(AVERAGES):
        dashes = LINES[n]
        looks.append(Line2D([], [], color=theme.ink, linestyle=dashes, label=MEANS[m]))
    legend(figure, looks, columns=3)
    return figure


def _claim(
    name: str, text: str, sweep: str, average: str, quantity: str, right: float, direction: Any = "less"
) -> Claim:
    return Claim(
        name=name, text=text, part=PART, left=Of(row=key(sweep, average), column=quantity), right=right,
        direction=direction, rule="one-sample", must_decide=True, scales=("cpu", "gpu", "paper"),
    )  # fmt: skip


CLAIMS = (
    _claim(
        "bias-falls", "At α₀ ∝ K^-1/2 the weighted average's bias falls as K^-1/2, up to 0.05 in the exponent.",
        "root", WEIGHTED, "bias", -1 / 2 + SLACK,
    ),
    _claim(
        "mse-falls", "At α₀ ∝ K^-1/3 the weighted average's mean squared error falls as K^-2/3, up to 0.05.",
        "third", WEIGHTED, "mse", -2 / 3 + SLACK,
    ),
    _claim(
        "plain-bias-falls", "At α₀ ∝ K^-1/2 the plain mean's bias falls as K^-1/2, up to 0.05.",
        "root", PLAIN, "bias", -1 / 2 + SLACK,
    ),
    _claim(
        "plain-mse-falls", "At α₀ ∝ K^-1/3 the plain mean's error, which the text writes, falls as K^-2/3, up to 0.05.",
        "third", PLAIN, "mse", -2 / 3 + SLACK,
    ),
    _claim(
        "control-bias-stays", "Control: at a fixed α₀ the bias stays; its slope is nearer to 0 than to −1/2.",
        CONTROL, WEIGHTED, "bias", -1 / 4, "greater",
    ),
    _claim(
        "control-mse-stays", "Control: at a fixed α₀ the mean squared error stays; its slope is nearer to 0 than to −2/3.",
        CONTROL, WEIGHTED, "mse", -1 / 3, "greater",
    ),
)  # fmt: skip


def settings(scale: str) -> list[Setting]:
    plan = PLANS[scale]
    return [
        Setting(name="target", value=f"½N({-plan.a:g}, 1) + ½N({plan.a:g}, 1)", origin="ours"),
        Setting(name="test function", value="θ²", origin="ours"),
        Setting(name="step size", value="Eq. 1", origin="published"),
        Setting(name="M", value=str(plan.cycles), origin="ours"),
        Setting(name="noise", value="throughout (β = 0), as in the analysis", origin="published"),
        Setting(name="noise on the gradient", value=f"Gaussian, sd {plan.gradient_sd:g}", origin="ours"),
        Setting(
            name="α₀", value=f"{plan.first_lr:g} at K = {plan.steps[0]}, then K^-1/2, K^-1/3 or fixed", origin="ours"
        ),
        Setting(name="K", value=f"{plan.steps[0]:,} to {plan.steps[-1]:,}, doubling", origin="ours"),
        Setting(name="start", value=f"{plan.start:g}", origin="ours"),
        Setting(name="lanes", value=f"{plan.lanes:,} in {plan.groups} groups", origin="ours"),
    ]


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["400 lanes of at most 256 steps: this only shows that everything runs."]
    return [
        "The theorem is an upper bound without constants; the paper does not test it. Its exponents follow from "
        "bias = O(1/(α₀K) + α₀) and error = O(1/(α₀K) + α₀²) for α₀ ∝ K^-p: −min(p, 1−p) and −min(2p, 1−p).",
        "How α₀ goes with K is damaged in the text that we have: the p that are best for either quantity are run, and a fixed "
        "α₀ as the control.",
        "The main text writes the plain mean, the lemma behind it needs the mean weighted by the steps. With few long cycles the "
        "plain mean counts the draws of small steps, which hardly move, too often: its error falls more slowly.",
        "A slope's repeats are the jackknife's pseudo-values of the groups of lanes.",
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        name="theorem1", title="bias and mean squared error against the number of steps", paper="csgmcmc",
        where="Theorem 1", order=40,
        parts=(Part(name=PART, label="", computed=computed),),
        rows=lambda scale: [Heading(key(s, a), f"{SWEEPS[s]}, {MEANS[a]}") for s in POWERS for a in AVERAGES],
        columns=lambda scale: (
            Heading("bias", "Slope of log |bias|", decimals=3), Heading("mse", "Slope of log error²", decimals=3),
        ),
        values=tuple(
            Value(
                part=PART, row=key(sweep, WEIGHTED), column=quantity, text=text,
                summary=Summary(mean=exponent, se=float("nan"), n=0),
                source="Zhang et al. 2020, Theorem 1, for this α₀(K)", standing="derived",
            )
            for (sweep, quantity), (text, exponent) in STATED.items()
        ),
        claims=CLAIMS,
        settings=settings,
        differences=differences,
        hours={"smoke": 0.001, "cpu": 0.2, "gpu": 0.2, "paper": 0.2},
        figures=figures,
    ),
)  # fmt: skip
