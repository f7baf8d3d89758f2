"""Theorem 1 of cSG-MCMC: bias and mean squared error of cSGLD's average of a test function against the steps K.

It is checked on the average that is weighted by the steps, and the plain one is shown, too; docs/reference/theory.md
has what is stated and why. Noise throughout, β = 0; the test function is θ² on `DoubleWell`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from raychains import papers as rp
from raychains.evaluation.evaluation import Array
from raychains.papers.theory.lanes import Tell, drive, in_groups, pseudo_values, seeds
from raychains.plotting.charts import Axis, Chart, Line, Mark, Panel, Style
from raychains.plotting.style import HUES, INK, LINES, MUTED
from raychains.samplers import SGLD
from raychains.schedules import Cyclical

WEIGHTED, PLAIN = "weighted", "plain"
AVERAGES = (WEIGHTED, PLAIN)
CONTROL = "fixed"
POWERS: Mapping[str, float] = {"root": 1 / 2, "third": 1 / 3, CONTROL: 0.0}
"""Name of a sweep -> p in α₀ ∝ K^(−p)."""


# The target, and SGLD's exact errors on it


@dataclass(frozen=True)
class DoubleWell:
    """U(θ) = θ²/2 − log cosh(aθ): the equal mixture of N(−a, 1) and N(a, 1), since e^{−U} ∝ e^{−θ²/2}·cosh(aθ).

    U is not convex for a > 1, its gradient θ − a·tanh(aθ) is Lipschitz, and it is dissipative. θ² is even and U is too:
    hopping between the modes does not matter to its average, so what is left of the error at a large K is the step
    size's.
    """

    a: float = 1.5

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇U of a tensor."""
        return theta - self.a * torch.tanh(self.a * theta)

    def slope(self, theta: Array) -> Array:
        """Return ∇U of an array."""
        return theta - self.a * np.tanh(self.a * theta)

    @property
    def average(self) -> float:
        """The average of θ²."""
        return 1 + self.a**2


REACH = 11.0
SPACING = 0.05
"""Spacing of the grid on [0, REACH]; the trapezoid rule is exact to rounding for Gaussian kernels no narrower than
this."""


def lumps(lrs: Sequence[float], weights: Array, least: float) -> Iterator[tuple[float, Array]]:
    """Yield (step size, weights [averages]) where neighbouring steps too small for the grid are one of at least
    ``least``.

    Small steps before one that is large by itself (a cycle's last before the next cycle) hardly move the chain: their
    weights go with a step of size 0, and their sizes are added to the large one's. The same holds at the end.
    """
    lr, weight = 0.0, np.zeros(len(weights))
    for one, w in zip(lrs, weights.T, strict=True):
        if one >= least and weight.any():
            yield 0.0, weight
            weight = np.zeros(len(weights))
        lr, weight = lr + one, weight + w
        if lr >= least:
            yield lr, weight
            lr, weight = 0.0, np.zeros(len(weights))
    if weight.any():
        yield 0.0, weight


def exact_errors(
    target: DoubleWell, lrs: Sequence[float], weights: Array, *, start: float, gradient_sd: float
) -> list[tuple[float, float]]:
    """Return (bias, MSE) of A = Σ_k w_k·θ_k² as an estimate of θ²'s average, for θ_k of SGLD at ``lrs``; several A at
    once.

    With p the density of |θ_k|, q(x) = E[A_k; x] and r(x) = E[A_k²; x], a step with operator P and φ(x) = x² gives
    p ← pP, q ← qP + wφp, r ← rP + 2wφ(qP) + w²φ²p. U and both noises are symmetric, so |θ| is a Markov chain by itself.
    Steps below SPACING²/2 are lumped (`lumps`); half the spacing moves the results by 2e-4 of them.

    Args:
        target: U.
        lrs: α of each step, [steps]; the first of them large enough for the grid.
        weights: w, [averages, steps], each row summing to 1.
        start: θ₀.
        gradient_sd: of the gradient's Gaussian noise.
    """
    least = SPACING**2 / 2
    x = np.arange(0, REACH + SPACING / 2, SPACING)
    rule = np.full(len(x), SPACING)
    rule[0] /= 2
    phi, drift = x**2, target.slope(x)
    state: Array | None = None

    def kernel(centre: Array, lr: float) -> Array:
        variance = 2 * lr + (lr * gradient_sd) ** 2
        density = np.exp(-((x - centre[:, None]) ** 2) / (2 * variance))
        density += np.exp(-((x + centre[:, None]) ** 2) / (2 * variance))
        density *= rule / math.sqrt(2 * math.pi * variance)
        return density

    count = len(weights)
    for lr, w in lumps(lrs, weights, least):
        if state is None:
            first = np.array([start - lr * float(target.slope(np.asarray(start)))])
            state = np.concatenate([kernel(first, lr), np.zeros((2 * count, len(x)))])
        elif lr:
            state = state @ kernel(x - lr * drift, lr)
        p, q, r = state[0], state[1 : 1 + count], state[1 + count :]
        share = w[:, None] * phi
        r += 2 * share * q + share**2 * p
        q += share * p
    assert state is not None
    mass, *sums = (float(s) for s in state.sum(1))
    pairs, average = zip(sums[:count], sums[count:], strict=True), target.average
    return [(mean - average * mass, square - 2 * average * mean + average**2 * mass) for mean, square in pairs]


# Lanes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that the check of theorem 1 depends on."""

    steps: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    """K, ascending multiples of ``cycles``, at least 4: slopes are fitted to them."""
    lanes: int = 20_000
    groups: int = 20
    """Groups of lanes, of one size, for the intervals."""
    cycles: int = 4
    """M."""
    first_lr: float = 0.25
    """α₀ at the smallest K, in every sweep."""
    a: float = 1.5
    """Half the distance of the two modes."""
    start: float = 2.0
    """θ₀ of every lane."""
    gradient_sd: float = 2.0
    """Standard deviation of the gradient's noise."""
    seed: int = 0
    exact_until: int = 16384
    """The largest K for which the transition operator gives exact values as well (1 ms a step)."""
    powers: tuple[tuple[str, float], ...] = tuple(POWERS.items())
    """Sweeps: name and p."""

    def lr(self, power: float, steps: int) -> float:
        """α₀(K)."""
        return self.first_lr * (steps / self.steps[0]) ** -power

    def schedule(self, power: float, steps: int) -> Cyclical:
        return Cyclical(lr=self.lr(power, steps), steps=steps, cycles=self.cycles, exploration=0.0)


SMOKE = Plan(steps=(32, 64, 128, 256), lanes=400, exact_until=64)


def averages(
    plan: Plan, power: float, steps: int, seed: int, tell: Tell = lambda done, total: None
) -> tuple[Array, Array]:
    """Return (weighted, plain) averages of θ² over one cSGLD run of each lane, [lanes] each."""
    schedule = plan.schedule(power, steps)
    weighted, plain = torch.zeros(2, plan.lanes, dtype=torch.float64)
    whole = 0.0

    def add(lr: float, theta: torch.Tensor) -> None:
        nonlocal whole
        whole += lr
        weighted.addcmul_(theta, theta, value=lr)
        plain.addcmul_(theta, theta)

    drive(
        lambda p, noise: SGLD([p], lr=schedule.lr, num_data=1, seed=noise, lanes=plan.lanes),
        torch.full((plan.lanes,), plan.start, dtype=torch.float64),
        schedule=schedule,
        gradient=DoubleWell(plan.a).gradient,
        gradient_sd=plan.gradient_sd,
        seed=seed,
        visit=add,
        tell=tell,
    )
    return (weighted / whole).numpy(), (plain / steps).numpy()


def exact(plan: Plan, power: float, steps: int) -> dict[str, tuple[float, float]]:
    """Return bias and MSE of both averages by `exact_errors`, without lanes."""
    target, schedule = DoubleWell(plan.a), plan.schedule(power, steps)
    lrs = np.array([schedule.at(k).lr for k in range(1, steps + 1)])
    weights = np.stack([lrs / lrs.sum(), np.full(steps, 1 / steps)])
    found = exact_errors(target, lrs.tolist(), weights, start=plan.start, gradient_sd=plan.gradient_sd)
    return dict(zip(AVERAGES, found, strict=True))


# The experiment

PLANS = dict.fromkeys(rp.NOT_SMOKE, Plan()) | {"smoke": SMOKE}
PART = "double-well"
QUANTITIES = ("bias", "mse")
SWEEPS = {"root": "α₀ ∝ 1/√K", "third": "α₀ ∝ 1/∛K", CONTROL: "α₀ fixed (control)"}
MEANS = {WEIGHTED: "weighted by the steps", PLAIN: "plain mean"}
SLACK = 0.05
"""By how much a slope over a finite range of K may be less steep than the exponent that it tends to."""
STATED = {
    "root": (("at most −1/2", -1 / 2), ("at most −1/2", -1 / 2)),
    "third": (("at most −1/3", -1 / 3), ("at most −2/3", -2 / 3)),
    CONTROL: (("at most 0", 0.0), ("at most 0", 0.0)),
}
"""Exponents of bias and mean squared error by sweep."""
Groups = Sequence[Mapping[str, Any]]
"""Rows: sweep, steps, average, group, bias, mse, exact_bias, exact_mse."""


def key(sweep: str, average: str) -> str:
    """Return a row's key."""
    return f"{sweep}-{average}"


def computed(work: rp.Computation) -> rp.Tables:
    """Return slopes by jackknife pseudo-values of the groups of lanes, the errors behind them, and each group's own
    errors."""
    plan = PLANS[work.scale]
    groups: list[dict[str, Any]] = []
    total, done = len(plan.powers) * sum(plan.steps), 0
    for (index, (sweep, _)), steps in product(enumerate(plan.powers), plan.steps):
        rows = work.piece(f"{sweep}-{steps}", partial(_errors_of_lanes, work, plan, index, steps, done, total))
        groups += [{"sweep": sweep, "steps": steps, **row} for row in rows]
        done += steps
    shown = [{k: v for k, v in row.items() if not k.startswith("exact")} for row in groups]
    return {"cells": cells(plan, groups), "errors": errors(plan, groups), "groups": shown}


def _errors_of_lanes(
    work: rp.Computation, plan: Plan, index: int, steps: int, done: int, total: int
) -> list[dict[str, Any]]:
    """Run the lanes of one sweep and K, keep their averages, and return every group's errors."""
    sweep, power = plan.powers[index]

    def tell(now: int, _: int) -> None:
        work.tell("lanes", done + now, total)

    found = averages(plan, power, steps, seeds(plan.seed, index, steps), tell)
    both = dict(zip(AVERAGES, found, strict=True))
    work.folder.write_arrow(f"draws/{sweep}-{steps}", pa.table(both))
    known = exact(plan, power, steps) if steps <= plan.exact_until else {}
    return [row for name, values in both.items() for row in _of_groups(plan, name, values, known)]


def _of_groups(
    plan: Plan, average: str, values: Array, known: Mapping[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """Return bias and mean squared error of every group of lanes, and the exact ones."""
    away = values - DoubleWell(plan.a).average
    bias, mse = (in_groups(v, plan.groups).mean(1).tolist() for v in (away, away**2))
    of = dict(zip(("exact_bias", "exact_mse"), known.get(average, (None, None)), strict=True))
    return [{"average": average, "group": g, "bias": bias[g], "mse": mse[g], **of} for g in range(plan.groups)]


def array(groups: Groups, sweep: str, average: str, quantity: str) -> tuple[list[int], Array]:
    """Return K, and the quantity of every group at every K [groups, K]."""
    mine = pd.DataFrame([g for g in groups if g["sweep"] == sweep and g["average"] == average])
    table = mine.pivot_table(index="group", columns="steps", values=quantity)
    return [int(k) for k in table.columns], table.to_numpy()


def fitted(sweep: str, steps: Sequence[int]) -> slice:
    """Return the K that a slope is fitted to: the upper half for the control, where what falls with K is small."""
    return slice(len(steps) // 2, None) if sweep == CONTROL else slice(None)


def slope(steps: Sequence[int], means: Array) -> float:
    """Return the slope of log |mean| against log K; nan where the error changes its sign."""
    if not (np.all(means > 0) or np.all(means < 0)):
        return float("nan")
    return float(stats.linregress(np.log(np.asarray(steps, dtype=float)), np.log(np.abs(means))).slope)


def cells(plan: Plan, groups: Groups) -> list[dict[str, Any]]:
    """Return a slope's pseudo-value per group: their mean is the slope without its bias, their spread its standard
    error."""
    made = []
    for (sweep, _), average, quantity in product(plan.powers, AVERAGES, QUANTITIES):
        steps, values = array(groups, sweep, average, quantity)
        use = fitted(sweep, steps)
        found = pseudo_values(lambda kept: slope(steps[use], kept.mean(0)), values[:, use])  # noqa: B023
        samples = plan.lanes // plan.groups
        made += [rp.cell(PART, key(sweep, average), quantity, g, v, samples=samples) for g, v in enumerate(found)]
    return made


def errors(plan: Plan, groups: Groups) -> list[dict[str, Any]]:
    """Return bias and mean squared error with 95 % intervals for every sweep, average and K."""
    made = []
    exact = {(r["sweep"], r["average"], r["steps"]): r for r in groups}
    for (sweep, power), average in product(plan.powers, AVERAGES):
        columns = {q: array(groups, sweep, average, q) for q in QUANTITIES}
        for at, steps in enumerate(columns["bias"][0]):
            row: dict[str, Any] = {"sweep": sweep, "average": average, "steps": steps, "lr": plan.lr(power, steps)}
            for quantity in QUANTITIES:
                values = columns[quantity][1][:, at]
                low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
                row |= {quantity: float(values.mean()), f"{quantity}_low": float(low), f"{quantity}_high": float(high)}
                row[f"{quantity}_exact"] = exact[sweep, average, steps][f"exact_{quantity}"]
            made.append(row)
    return made


def _draw(table: pd.DataFrame) -> Figure:
    """Draw both errors against K."""
    colours = dict(zip(SWEEPS, (HUES[0], HUES[2], HUES[1]), strict=True))
    dashes = dict(zip(AVERAGES, LINES, strict=False))
    shown, x = [], Axis(label="Steps K", scale="log", whole=True)
    for quantity, label, best, power in (
        ("bias", "|Bias|", "root", -1 / 2),
        ("mse", "Mean squared error", "third", -2 / 3),
    ):
        marks: list[Mark] = []
        for (sweep, average), mine in table.groupby(["sweep", "average"], sort=False):
            y, sign = mine[quantity].abs(), np.sign(mine[quantity])
            low, high = np.sort([mine[f"{quantity}_{end}"] * sign for end in ("low", "high")], axis=0)
            style = {"color": colours[sweep], "linestyle": dashes[average], "marker": "o", "markersize": 3}
            marks.append(Line(x=mine["steps"], y=y, style=style, upright=(np.maximum(low, 0.1 * y), high)))
            cross = {"color": colours[sweep], "linestyle": "", "marker": "x", "markersize": 6}
            marks.append(Line(x=mine["steps"], y=mine[f"{quantity}_exact"].abs(), style=cross))
        own = table[(table["sweep"] == best) & (table["average"] == WEIGHTED)]
        steps, first = own["steps"].to_numpy(dtype=float), abs(own[quantity].iloc[0])
        slope = 0.5 * first * (steps / steps[0]) ** power
        marks.append(Line(x=steps, y=slope, style={"color": MUTED, "linewidth": 1}))
        shown.append(Panel(marks=marks, x=x, y=Axis(label=label, scale="log")))
    legend: list[tuple[str, Style]] = [(label, {"color": colours[sweep]}) for sweep, label in SWEEPS.items()]
    legend += [(MEANS[average], {"color": INK, "linestyle": line}) for average, line in dashes.items()]
    return Chart(panels=shown, columns=2, height=3.6, legend=legend)()


CLAIMS = rp.stated(
    f"""
bias-falls | {PART} bias | root-weighted < {-1 / 2 + SLACK} | At α₀ ∝ 1/√K the weighted average's bias falls as 1/√K,
    up to 0.05 in the exponent.
mse-falls | {PART} mse | third-weighted < {-2 / 3 + SLACK} | At α₀ ∝ 1/∛K the weighted average's mean squared error
    falls as 1/∛(K²), up to 0.05.
plain-bias-falls | {PART} bias | root-plain < {-1 / 2 + SLACK} | At α₀ ∝ 1/√K the plain mean's bias falls as 1/√K, up to
    0.05.
plain-mse-falls | {PART} mse | third-plain < {-2 / 3 + SLACK} | At α₀ ∝ 1/∛K the plain mean's error, which the text
    writes, falls as 1/∛(K²), up to 0.05.
control-bias-stays | {PART} bias | fixed-weighted > {-1 / 4} | Control: at a fixed α₀ the bias stays; its slope is
    nearer to 0 than to −1/2.
control-mse-stays | {PART} mse | fixed-weighted > {-1 / 3} | Control: at a fixed α₀ the mean squared error stays; its
    slope is nearer to 0 than to −2/3.
""",
    must_decide=True,
    scales=rp.NOT_SMOKE,
)


def values() -> tuple[rp.Value, ...]:
    """Return the exponents that the theorem states."""
    made = []
    for sweep, stated in STATED.items():
        for quantity, (text, exponent) in zip(QUANTITIES, stated, strict=True):
            summary = rp.Summary(mean=exponent, se=float("nan"), n=0)
            source = "Zhang et al. 2020, Theorem 1, for this α₀(K)"
            made.append(rp.Value(PART, key(sweep, WEIGHTED), quantity, text, summary, source, "derived"))
    return tuple(made)


def settings(scale: str) -> list[rp.Setting]:
    plan = PLANS[scale]
    return [
        rp.Setting("target", f"½N({-plan.a:g}, 1) + ½N({plan.a:g}, 1)", rp.OURS),
        rp.Setting("test function", "θ²", rp.OURS),
        rp.Setting("step size", "Eq. 1", rp.PUBLISHED),
        rp.Setting("M", str(plan.cycles), rp.OURS),
        rp.Setting("noise", "throughout (β = 0), as in the analysis", rp.PUBLISHED),
        rp.Setting("noise on the gradient", f"Gaussian, sd {plan.gradient_sd:g}", rp.OURS),
        rp.Setting("α₀", f"{plan.first_lr:g} at K = {plan.steps[0]}, then ∝ 1/√K, ∝ 1/∛K or fixed", rp.OURS),
        rp.Setting("K", f"{plan.steps[0]:,} to {plan.steps[-1]:,}, doubling", rp.OURS),
        rp.Setting("start", f"{plan.start:g}", rp.OURS),
        rp.Setting("lanes", f"{plan.lanes:,} in {plan.groups} groups", rp.OURS),
    ]


STUDY = rp.Study(
    name="theorem1",
    paper="csgmcmc",
    where="Theorem 1",
    title="bias and mean squared error against the number of steps",
    hours=(0.001, 0.2, 0.2, 0.2),
    parts=(rp.Part(name=PART, computed=computed),),
    rows={key(s, a): f"{SWEEPS[s]}, {MEANS[a]}" for s in POWERS for a in AVERAGES},
    columns=(
        rp.Heading("bias", "Slope of log |bias|", decimals=3),
        rp.Heading("mse", "Slope of log error²", decimals=3),
    ),
    values=values(),
    claims=CLAIMS,
    settings=settings,
    differences="""
smoke: 400 lanes of at most 256 steps: this only shows that everything runs.
cpu gpu paper: The theorem is an upper bound without constants; the paper does not test it. Its exponents follow from
    bias = O(1/(α₀K) + α₀) and error = O(1/(α₀K) + α₀²) for α₀ ∝ K^(−p): −min(p, 1−p) and −min(2p, 1−p).
cpu gpu paper: How α₀ goes with K is damaged in the text that we have: the p that are best for either quantity are
    run, and a fixed α₀ as the control.
cpu gpu paper: The main text writes the plain mean, the lemma behind it needs the mean weighted by the steps. With few
    long cycles the plain mean counts the draws of small steps, which hardly move, too often: its error falls more
    slowly.
cpu gpu paper: A slope's repeats are the jackknife's pseudo-values of the groups of lanes.
""",
    figures=rp.figure(
        "errors",
        _draw,
        name="errors",
        title="Bias and mean squared error of cSGLD's averages",
        caption=lambda scale, _: (
            f"Of θ² on a double well, from {PLANS[scale].lanes:,} lanes, with 95 % intervals; crosses: "
            "exact values by the transition operator. The theorem is about the average that is weighted by the "
            "steps. Grey: the stated exponents."
        ),
        alt="Bias and mean squared error against the number of steps on logarithmic axes for three choices of α₀",
    ),
)
