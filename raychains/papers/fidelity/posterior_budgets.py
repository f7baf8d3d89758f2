"""Ways to spend gradients on a posterior: one setting at a time, and chains and cycles at three budgets, against
distances to HMC's draws.

The posteriors, step sizes and distances are those of `raychains.papers.fidelity.true_posterior`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.fidelity import true_posterior as study
from raychains.plotting.charts import Axis, Panel

SEED = 13
ENSEMBLE, VARIATION, W2, SPREAD = study.ENSEMBLE, study.VARIATION, study.W2, study.SPREAD
STYLES = rp.styles(study.LABELS, f"csghmc cyclical 0, sghmc decreasing 0, mile other 0, {ENSEMBLE} other 1")
"""Styles of the methods that spend the budgets."""
SHORTEST_MILE = 128
"""Epochs below which a chain of MILE has too few steps to tune itself."""


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """The budgets of a scale and how they are divided."""

    epochs: tuple[int, ...]
    """Gradient evaluations per training example of all chains together; digits have half of them, of 16 steps each
    instead of 7."""
    chains: tuple[int, ...]
    cycles: tuple[int, ...]
    """Cycles of a chain of cSGHMC."""
    members: tuple[int, ...]
    """Members of deep ensembles."""
    base: tuple[int, int]
    """Chains and cycles of the arm that differs from others in one setting."""
    draws: int
    """Kept draws of all chains together; deep ensembles have one a member."""
    repeats: int


CPU = Budgets(
    epochs=(256, 1024, 4096), chains=(1, 2, 4, 8), cycles=(1, 4), members=(4, 8, 16), base=(4, 4), draws=96, repeats=5
)
SIZES: Mapping[str, Budgets] = {
    "smoke": Budgets(epochs=(32,), chains=(1, 2), cycles=(2,), members=(2,), base=(2, 2), draws=8, repeats=2),
    "cpu": CPU,
    **dict.fromkeys(("gpu", "paper"), replace(CPU, repeats=20)),
}
SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lr-third": ("step size / 3", {"lr": 1 / 3}),
    "lr-triple": ("step size × 3", {"lr": 3.0}),
    "batch-16": ("batch 16", {"batch_size": 16}),
    "batch-128": ("batch 128", {"batch_size": 128}),
    "temperature-0.1": ("T = 0.1", {"temperature": 0.1}),
    "temperature-0.3": ("T = 0.3", {"temperature": 0.3}),
    "beta-0.25": ("β = 0.25", {"exploration": 0.25}),
    "beta-0.75": ("β = 0.75", {"exploration": 0.75}),
    "cycles-2": ("2 cycles", {"cycles": 2}),
    "cycles-8": ("8 cycles", {"cycles": 8}),
    "cycles-16": ("16 cycles", {"cycles": 16}),
}
"""Rows of cSGHMC that differ from the base in one setting, and the setting; ``lr`` is a factor."""
BURN_IN: Mapping[str, tuple[str, float]] = {
    "burn-in-0.05": ("SGHMC, noise from 0.05 of the steps on", 0.05),
    "burn-in-0.5": ("SGHMC, noise from 0.5 of the steps on", 0.5),
}
PRECONDITIONED = {"sgld": "SGLD", "psgld": "pSGLD, preconditioner of the burn-in"}
STEPS_PER_DRAW = (4, 10)
"""MILE's steps for each of its draws at least, of the regressions and of Digits: few steps keep the last of them in a
row."""
IN_SMOKE = ("batch-16", "temperature-0.1", "cycles-16", "psgld")


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to spend a budget."""

    method: str
    budget: int
    chains: int
    cycles: int = 1

    @property
    def name(self) -> str:
        """Return the arm's name."""
        cycles = f"-{self.cycles}-cycles" if self.method == "csghmc" else ""
        return f"{self.method}-{self.budget}-epochs-{self.chains}-chains{cycles}"


def ways(scale: str) -> list[Way]:
    """Return all ways to spend the budgets of a scale, by the regressions' epochs."""
    size = SIZES[scale]
    made = []
    for budget in size.epochs:
        made += [Way(method="csghmc", budget=budget, chains=c, cycles=m) for c in size.chains for m in size.cycles]
        made += [Way(method="sghmc", budget=budget, chains=c) for c in size.chains]
        long = SHORTEST_MILE if scale != "smoke" else 1
        made += [Way(method="mile", budget=budget, chains=c) for c in size.chains if budget // c >= long]
        made += [Way(method=ENSEMBLE, budget=budget, chains=c) for c in size.members]
    return made


def base(scale: str) -> Way:
    """Return the way from which settings differ."""
    chains, cycles = SIZES[scale].base
    return Way(method="csghmc", budget=SIZES[scale].epochs[-1], chains=chains, cycles=cycles)


def epochs_of(budget: int, part: str) -> int:
    """Return the epochs that a part's chains have together."""
    return budget // 2 if part == "digits" else budget


def variant(way: Way, part: str, scale: str) -> rp.Variant:
    """Return the arm of a way to spend a budget."""
    each = epochs_of(way.budget, part) // way.chains
    size = rp.Size(
        epochs=each,
        chains=way.chains,
        draws=SIZES[scale].draws // way.chains,
        cycles=way.cycles,
        repeats=SIZES[scale].repeats,
        start=each if way.method == ENSEMBLE else max(2, 2 * (each // 10)),
    )
    made = study.variant(way.method, part, scale, size)
    options = {"chains": way.chains, **made.options}
    if way.method == "mile":
        steps = options["epochs"] // 2
        samples = min(steps // options["thinning"], round(steps / STEPS_PER_DRAW[part == "digits"]))
        options["schedule_settings"] = (f"samples={max(1, samples)}",)
    return replace(made, name=way.name, label=way.name, options=options)


def changed(part: str, scale: str) -> list[rp.Variant]:
    """Return the arms that differ from the base, or from its chains under another method, in one setting."""
    size, way = SIZES[scale], base(scale)
    start, each = variant(way, part, scale), size.draws // way.chains
    examples = study.batches(part, scale) * study.BATCH
    made = []
    for name, (label, given) in SETTINGS.items():
        options = {**start.options, **given}
        if "lr" in given:
            options["lr"] = start.options["lr"] * given["lr"]
        steps = options["epochs"] * examples // options["batch_size"]
        options |= rp.thinning.cyclical(steps, each, options["cycles"], options["exploration"])
        made.append(replace(start, name=name, label=label, options=options))
    falling = {method: variant(replace(way, method=method), part, scale) for method in ("sghmc", *PRECONDITIONED)}
    steps = start.options["epochs"] * study.batches(part, scale)
    for name, (label, begins) in BURN_IN.items():
        options = {**falling["sghmc"].options, **rp.thinning.decreasing(steps, each, begins)}
        made.append(replace(falling["sghmc"], name=name, label=label, options=options))
    made += [replace(falling[name], name=name, label=label) for name, label in PRECONDITIONED.items()]
    return [one for one in made if scale != "smoke" or one.name in IN_SMOKE]


def preset(part: str, scale: str) -> rp.Preset:
    """Return an arm for each way to spend each budget, and for each changed setting."""
    task, settings = study.task_of(part, scale)
    packed = {} if scale in rp.ON_GPU else {"pack": "auto"}
    common = {"temperature": 1.0, "repeats": SIZES[scale].repeats, "seed": SEED, "task_settings": settings}
    return rp.Preset(
        name=f"posterior-budgets-{part}",
        about=f"ways to spend gradients, beside HMC's draws of the same posterior, {study.NAMES[part]}",
        task=task,
        options={**common, **packed},
        variants=[variant(way, part, scale) for way in ways(scale)] + changed(part, scale),
    )


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return the distances of all samples to HMC's predictive, and each way's and repeat's by budget."""
    last = rp.of_all_samples(run.table("fidelity"))
    last = last.assign(total_variation=100 * last[VARIATION])
    metrics = [m for m in (VARIATION, W2, SPREAD) if last[m].notna().any()]
    cells = run.cells([v.name for v in run.preset.variants], metrics, last)
    value = {(c["row"], c["repeat"]): c["value"] for c in cells if c["column"] == VARIATION}
    steps = study.batches(run.part, run.scale)
    budgets = [
        {
            "part": run.part,
            "method": way.method,
            "steps": epochs_of(way.budget, run.part) * steps,
            "budget": way.budget,
            "chains": way.chains,
            "cycles": way.cycles,
            "repeat": repeat,
            VARIATION: value[way.name, repeat],
        }
        for way in ways(run.scale)
        for repeat in range(SIZES[run.scale].repeats)
    ]
    about = run.table("fidelity_reference").assign(part=run.part)
    return {"cells": cells, "budgets": budgets, "hmc": about.to_dict("records")}


def labels(scale: str) -> dict[str, str]:
    """Return the labels of the rows: settings first, then the ways to spend each budget."""
    made = {base(scale).name: _label(base(scale))}
    made |= {name: f"… with {label}" for name, (label, _) in SETTINGS.items()}
    made |= {name: label for name, (label, _) in BURN_IN.items()} | PRECONDITIONED
    kept = {v.name for v in preset("digits", scale).variants}
    made = {name: label for name, label in made.items() if name in kept}
    return made | {way.name: _label(way) for way in ways(scale) if way.name not in made}


def _label(way: Way) -> str:
    """Return a way in words."""
    chains = f"{way.chains} {'member' if way.method == ENSEMBLE else 'chain'}{'s' * (way.chains > 1)}"
    cycles = f" of {way.cycles} cycle{'s' * (way.cycles > 1)}" if way.method == "csghmc" else ""
    return f"{study.LABELS[way.method]}, {way.budget:,} epochs, {chains}{cycles}"


def _draw(budgets: pd.DataFrame, hmc: pd.DataFrame) -> Figure:
    """Draw a panel for each data set: the nearest way of each method against the budget."""

    def panel(mine: pd.DataFrame) -> Panel:
        means = mine.groupby(["method", "steps", "chains", "cycles"])[VARIATION].mean()
        nearest = rp.styled(means.groupby(["method", "steps"]).min().reset_index(), STYLES, "method")
        lines = [style.line(of["steps"], of[VARIATION], size=4) for style, of in nearest]
        steps = {float(n): f"{n:,}" for n in sorted(set(mine["steps"]))}
        x = Axis(label="Budget (minibatch gradients of all chains)", scale="log", ticks=steps)
        y = Axis(label="Total variation (%)", low=0)
        return Panel(marks=[*lines, study.between_halves(hmc, mine)], x=x, y=y)

    return rp.by_part(study.NAMES, panel, columns=2, height=2.3, legend_columns=4)(budgets)


def all_claims() -> tuple[rp.Claim, ...]:
    """Return the claims, one family, which were written before anything was run."""
    least, most = SIZES["cpu"].epochs[0], SIZES["cpu"].epochs[-1]
    start = base("cpu")
    small = replace(start, budget=least)
    pairs = (
        ("the step size is the grid's, not a third", start.name, "lr-third"),
        ("the step size is the grid's, not thrice", start.name, "lr-triple"),
        ("batches are of 16, not 128", "batch-16", "batch-128"),
        ("T is 1, not 0.3", start.name, "temperature-0.3"),
        ("T is 1, not 0.1", start.name, "temperature-0.1"),
        ("β is 0.25, not 0.75", "beta-0.25", "beta-0.75"),
        ("chains have 4 cycles, not 1", start.name, replace(start, cycles=1).name),
        ("chains have 16 cycles, not 2", "cycles-16", "cycles-2"),
        ("SGHMC's noise begins after 0.05 of the steps, not 0.5", "burn-in-0.05", "burn-in-0.5"),
        ("SGLD is preconditioned", "psgld", "sgld"),
        (f"{most:,} epochs are of 8 chains, not 1", replace(start, chains=8).name, replace(start, chains=1).name),
        (f"{least:,} epochs are of 1 chain, not 8", replace(small, chains=1).name, replace(small, chains=8).name),
        (
            f"{least:,} epochs are 4 chains of cSGHMC, not a deep ensemble of 8",
            small.name,
            Way(method=ENSEMBLE, budget=least, chains=8).name,
        ),
    )
    table = (
        f"{left}-nearer-than-{right}-{part}".replace(".", "") + f" | {part} {VARIATION} | {left} < {right} paired | "
        f"{label}: the predictive is nearer to the true posterior's where {text}."
        for part, label in study.NAMES.items()
        for text, left, right in pairs
    )
    return rp.stated(table, scales=rp.NOT_SMOKE)


def settings_at(scale: str) -> list[rp.Setting]:
    size = SIZES[scale]
    chains, cycles = size.base
    return [
        *[s for s in study.settings_at(scale) if s.name in ("network", "training examples", "prior, temperature")],
        rp.Setting(
            "budgets: epochs of all chains together (Digits: half)", ", ".join(f"{e:,}" for e in size.epochs), rp.OURS
        ),
        rp.Setting(
            "where one setting changes",
            f"cSGHMC, {chains} chains of {cycles} cycles, β {study.EXPLORATION:g}, batch {study.BATCH}, T 1",
            rp.OURS,
        ),
        rp.Setting("draws of all chains together, but for 16 cycles and MILE", str(size.draws), rp.OURS),
        rp.Setting("start of a chain of MILE", "a member of a deep ensemble, a fifth of its epochs at most", rp.OURS),
        rp.Setting("step sizes", "the nearest of a grid for one chain of 2,000 epochs, on another seed", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
    ]


STUDY = rp.Study(
    name="posterior-budgets",
    paper="ours",
    where="Study",
    title="how to spend gradients: settings, chains and cycles against the distance to true posteriors",
    needs=("uci-concrete", "uci-bikesharing", "uci-protein"),
    hours=(0.02, 1, 4, 4),
    parts=study.parts(preset, tables),
    rows=labels,
    columns=(
        rp.Heading(VARIATION, "Total variation", "%", 2),
        rp.Heading(W2, "W₂", "reference sd", 3),
        rp.Heading(SPREAD, "Spread of functions", "of the reference's", 3),
    ),
    absent="not defined",
    claims=all_claims(),
    family=True,
    settings=settings_at,
    differences="""
smoke: A few steps of a linear network on 60 made-up examples: this only shows that everything runs.
smoke cpu gpu paper: No paper's table. The yardstick is Hamiltonian Monte Carlo with Metropolis' correction on all
    training examples, as in true-posterior.
cpu gpu paper: The networks have 20 hidden units and few examples: a budget should be read in steps, and what holds here
    need not hold for wide networks.
cpu gpu paper: Step sizes are those of true-posterior whatever the budget, batch, temperature or number of chains; other
    step sizes may suit them better.
smoke cpu gpu paper: As many gradient evaluations per training example at each budget; members of deep ensembles, and of
    MILE's starts, count with their most epochs and may stop earlier.
cpu gpu paper: All samplers keep as many draws, but for 16 cycles (64), and MILE, which keeps one for every ten of its
    steps at most on Digits and for every four on the regressions: 5 or 6 draws of all chains together on Digits at 256
    epochs, 20 to 24 at 1,024 and 80 to 82 at 4,096; 26 on the regressions at 256 epochs and 102 to 104 at the others.
    At 256 epochs, and on Digits at 1,024, these are each chain's last steps in a row.
""",
    figures=rp.figure(
        "budgets hmc",
        _draw,
        name="budgets",
        title="Total variation to the true posterior's predictive against the budget",
        caption="Each method with the number of chains and cycles that came nearest. Dashed: the distance between "
        "the two halves of HMC's chains.",
        alt="Total variation to the true posterior's predictive against the minibatch gradients of all chains, by "
        "method and data set",
    ),
)
