"""Which methods come near the true posterior of small networks, all at as many gradient evaluations: distances to HMC's
draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.plotting.charts import Axis, Panel, Rule, dots, lines_of
from raychains.plotting.style import INK

ENSEMBLE = "deep-ensemble"
SEED = 11
EXAMPLES = 200
"""Training examples of the regressions: of more the posterior is too narrow for HMC in minutes."""
HIDDEN = 20
"""ReLU units of the one hidden layer."""
NAMES = {"concrete": "Concrete", "bikesharing": "Bike sharing", "protein": "Protein", "digits": "Digits"}
HELD_OUT = {"concrete": 927 - EXAMPLES, "bikesharing": 15_641 - EXAMPLES, "protein": 41_157 - EXAMPLES}
"""Training examples of the classic first split that chains do not see."""
LABELS = {"sgd": "SGD, one network"} | rp.labels(f"{ENSEMBLE} multiswag sgld sghmc csgld csghmc emcmc mile")
"""Rows, and the names of arms."""
CYCLICAL, FALLING = ("csgld", "csghmc", "emcmc"), ("sgd", "multiswag", "sgld", "sghmc", "psgld")
SCHEDULES = {**dict.fromkeys(CYCLICAL, "cyclical"), **dict.fromkeys(FALLING, "decreasing")}
EXPLORATION, NOISE_FROM = 0.5, 0.25
BATCH = 32
IN_SMOKE, SMOKE_EXAMPLES, SMOKE_LR = "concrete", 60, 1e-3
VARIATION, W2, SPREAD, AGREEMENT = "total_variation", "w2", "sd_ratio", "agreement"
GRID = """
sgd            0.0001  0.0001  0.0001  0.0003
sghmc          0.01    0.03    0.03    0.3
csghmc         0.01    0.03    0.03    0.3
multiswag      0.03    0.001   0.001   0.003
sgld           0.03    0.1     0.1     3
psgld          0.003   0.001   0.003   0.003
csgld          0.03    0.1     0.03    3
emcmc          0.01    0.1     0.01    1
deep-ensemble  0.003   0.003   0.001   0.001
"""
LR = {
    part: {row[0]: float(row[n]) for row in map(str.split, GRID.strip().splitlines())}
    for n, part in enumerate(NAMES, 1)
}
"""Step sizes by data set and method: those of `benchmarks/posterior_settings.py` with the smallest total variation;
MILE starts at the deep ensemble's. pSGLD is of `raychains.papers.fidelity.posterior_budgets`."""


SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(epochs=40, chains=2, draws=4, cycles=2, repeats=2, start=20),
    "cpu": rp.Size(epochs=2_000, chains=4, draws=48, cycles=4, repeats=10, start=200),
    "gpu": rp.Size(epochs=2_000, chains=4, draws=48, cycles=4, repeats=20, start=200),
    "paper": rp.Size(epochs=20_000, chains=8, draws=96, cycles=8, repeats=20, start=2_000),
}


def task_of(part: str, scale: str) -> tuple[str, tuple[str, ...]]:
    """Return a part's task and its settings."""
    hidden = f"hidden=[{HIDDEN if scale != 'smoke' else ''}]"
    if part == "digits":
        return "digits", (hidden,)
    held = HELD_OUT[part] if scale != "smoke" else 180 - SMOKE_EXAMPLES
    return f"uci-{part}", ("protocol=splits", "split=0", f"val_split={held}", hidden)


def batches(part: str, scale: str) -> int:
    """Return the steps of an epoch."""
    return -(-(SMOKE_EXAMPLES if scale == "smoke" else 500 if part == "digits" else EXAMPLES) // BATCH)


def variant(method: str, part: str, scale: str, size: rp.Size | None = None) -> rp.Variant:
    """Return a method's arm, of the scale's size or of another."""
    size = SIZES[scale] if size is None else size
    steps = size.epochs * batches(part, scale)
    falling = {"epochs": size.epochs, **rp.thinning.decreasing(steps, size.draws, NOISE_FROM)}
    cyclical = {"epochs": size.epochs, **rp.thinning.cyclical(steps, size.draws, size.cycles, EXPLORATION)}
    after = size.epochs - size.start
    own: dict[str, dict[str, Any]] = {
        "sgd": {"epochs": size.epochs * size.chains, "chains": 1, "schedule_settings": ("samples=1",)},
        ENSEMBLE: {"epochs": size.start, "chains": size.chains * (size.epochs // size.start)},
        "psgld": {**falling, "sampler_settings": (f"freeze_preconditioner_after={int(NOISE_FROM * steps)}",)},
        "mile": {  # a step takes two gradients of all examples: half of the steps tune, half are drawn from
            "epochs": after,
            "init_from": f"{ENSEMBLE}:{size.start},20",
            "sampler_settings": (f"tune={after // 4}",),
            "thinning": max(1, after // 4 // size.draws),
        },
    }
    given = dict(own.get(method, cyclical if method in CYCLICAL else falling))
    if method != "mile":
        given["batch_size"] = BATCH
    lr = SMOKE_LR if scale == "smoke" else LR[part][ENSEMBLE if method == "mile" else method]
    given["lr"] = f"{ENSEMBLE}={lr}" if method == "mile" else lr
    sampler = "sgdm" if method == "sgd" else method
    label = LABELS[method] if method == "sgd" else ""
    return rp.Variant(method, label, sampler, given, schedule=SCHEDULES.get(method, "constant"))


def preset(part: str, scale: str) -> rp.Preset:
    """Return one arm for each method."""
    size = SIZES[scale]
    task, settings = task_of(part, scale)
    packed = {} if scale in ("gpu", "paper") else {"pack": str(2 * size.chains)}
    return size.preset(
        f"true-posterior-{part}",
        f"methods beside HMC's draws of the same posterior, {NAMES[part]}, at as many gradient evaluations",
        task,
        [variant(method, part, scale) for method in LABELS],
        temperature=1.0,
        seed=SEED,
        task_settings=settings,
        **packed,
    )


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return the distances of all samples to HMC's predictive, those by samples and chains, and HMC's own
    diagnostics."""
    last = rp.of_all_samples(run.table("fidelity"))
    last = last.assign(agreement=100 * last[AGREEMENT], total_variation=100 * last[VARIATION])
    metrics = [m for m in (VARIATION, W2, SPREAD, AGREEMENT) if last[m].notna().any()]
    names = {run.arm(row).name: row for row in LABELS}
    by_chains = run.table("fidelity_chains").assign(part=run.part)
    by_chains["row"] = by_chains["arm"].map(names)
    about = run.table("fidelity_reference").assign(part=run.part)
    columns = ["part", "row", "repeat", "chains", "samples", VARIATION]
    return {
        "cells": run.cells(tuple(LABELS), metrics, last),
        "chains": by_chains[columns].to_dict("records"),
        "hmc": about.to_dict("records"),
    }


def _draw(cells: pd.DataFrame, hmc: pd.DataFrame) -> Figure:
    """Draw a panel for each data set with a line of dots for each method."""

    def panel(mine: pd.DataFrame) -> Panel:
        of = mine.groupby("row")["value"]
        rows = [dots(i, of.get_group(row), {"color": INK}) for i, row in enumerate(LABELS) if row in of.groups]
        x = Axis(label="Total variation (%)   ← better", low=0, margin=0.06)
        return Panel(marks=[*rows, between_halves(hmc, mine, upright=True)], x=x, y=lines_of([*LABELS.values()]))

    cells, height = cells[cells["column"] == VARIATION], 0.34 * len(LABELS) + 0.75
    return rp.by_part(NAMES, panel, columns=2, height=height, share_y=True)(cells)


def between_halves(hmc: pd.DataFrame, rows: pd.DataFrame, *, upright: bool = False) -> Rule:
    """Return a line at the distance between the two halves of HMC's chains, of the part that some rows are of."""
    mine = hmc[hmc["part"] == rows["part"].iloc[0]]
    return Rule(at=100 * float(mine[VARIATION].iloc[0]), upright=upright)


PAIRS = (
    ("sghmc", "sgd"),
    (ENSEMBLE, "sgd"),
    ("sghmc", ENSEMBLE),
    ("csghmc", ENSEMBLE),
    ("mile", ENSEMBLE),
    ("multiswag", ENSEMBLE),
    ("csgld", "sgld"),
    ("csghmc", "sghmc"),
    ("sghmc", "sgld"),
    ("mile", "sghmc"),
    ("emcmc", "csgld"),
)
"""(nearer, farther): what is claimed of every part, before anything was run."""


def all_claims() -> tuple[rp.Claim, ...]:
    """Return the claims, one family."""
    table = (
        f"{left}-nearer-than-{right}-{part} | {part} {VARIATION} | {left} < {right} paired | {label}: {LABELS[left]} "
        f"has a smaller total variation to the true posterior's predictive than {LABELS[right]}."
        for part, label in NAMES.items()
        for left, right in PAIRS
    )
    return rp.stated(table, scales=rp.NOT_SMOKE)


def settings_at(scale: str) -> list[rp.Setting]:
    size, smoke = SIZES[scale], scale == "smoke"
    steps = (size.epochs - size.start) // 4  # those that MILE draws from
    kept = -(-steps // max(1, steps // size.draws))
    miles = f" (MILE: {kept})" if kept != size.draws else ""
    return [
        rp.Setting(
            "network",
            "linear" if smoke else f"one hidden layer of {HIDDEN} ReLU units, one learned σ (Digits: classes)",
            rp.OURS,
        ),
        rp.Setting("training examples", f"{SMOKE_EXAMPLES if smoke else EXAMPLES} (Digits: 500)", rp.OURS),
        rp.Setting("prior, temperature", "N(0, I) (Digits: N(0, 2·I)), 1", rp.OURS),
        rp.Setting("epochs of a chain", f"{size.epochs:,}", rp.OURS),
        rp.Setting("chains of a method (SGD: one, as much longer)", str(size.chains), rp.OURS),
        rp.Setting("draws of a chain", f"{size.draws}{miles}", rp.OURS),
        rp.Setting(
            "members of the deep ensemble, epochs of each at most",
            f"{size.chains * (size.epochs // size.start)}, {size.start}",
            rp.OURS,
        ),
        rp.Setting("cycles, β", f"{size.cycles}, {EXPLORATION:g}", rp.OURS),
        rp.Setting("noise and draws without cycles", f"from {NOISE_FROM:g} of the epochs on", rp.OURS),
        rp.Setting("batch (MILE: all examples)", str(BATCH), rp.OURS),
        rp.Setting("step sizes", "the nearest of a grid, on another seed", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
    ]


def parts(
    preset: Callable[[str, str], rp.Preset], tables: Callable[[rp.CompletedRun], rp.Tables]
) -> tuple[rp.Part, ...]:
    """Return a part for each data set, from its comparison by part and scale, beside HMC's draws."""
    sampled = rp.comparison(preset, measures=("fidelity",), reference="hmc")
    scales = {part: rp.NOT_SMOKE for part in NAMES if part != IN_SMOKE}
    return rp.parts(NAMES, sampled, tables, data=lambda part: "" if part == "digits" else f"uci-{part}", scales=scales)


STUDY = rp.Study(
    name="true-posterior",
    paper="ours",
    where="Study",
    title="which methods come near the true posterior of small networks",
    needs=("uci-concrete", "uci-bikesharing", "uci-protein"),
    hours=(0.02, 0.6, 1, 8),
    parts=parts(preset, tables),
    rows=LABELS,
    columns=(
        rp.Heading(VARIATION, "Total variation", "%", 2),
        rp.Heading(W2, "W₂", "reference sd", 3),
        rp.Heading(SPREAD, "Spread of functions", "of the reference's", 3),
        rp.Heading(AGREEMENT, "Agreement", "%", 2),
    ),
    absent="not defined",
    claims=all_claims(),
    family=True,
    settings=settings_at,
    differences="""
smoke: A few steps of a linear network on 60 made-up examples: this only shows that everything runs.
smoke cpu gpu paper: No paper's table. The yardstick is Hamiltonian Monte Carlo with Metropolis' correction on all
    training examples, in double precision: eight chains, as long as R-hat of every prediction that is looked at needs
    to fall below 1.01.
cpu gpu paper: The regressions learn from 200 examples of the first classic split under 20 hidden units, so that HMC
    takes minutes; what holds here need not hold for wide networks and many examples.
smoke cpu gpu paper: All methods have the same number of gradient evaluations per training example: a step of MILE takes
    two gradients, the one network of SGD is trained as long as all chains of another method together, and the deep
    ensemble has as many members as that pays for at their most epochs.
cpu gpu paper: The step size of each method is the one of a grid with the smallest total variation to the same HMC
    draws, on another seed and with one chain (benchmarks/posterior_settings.py, docs/results/posterior-settings.csv).
smoke cpu gpu paper: Entropy-MCMC predicts with draws of θ and of θₐ, as its paper does: twice as many as the other
    samplers. The law of θₐ is the posterior's convolution with N(0, η·I).
cpu gpu paper: The members at which MILE starts are trained with the task's batch (bike sharing and protein 100, digits
    50), those of the deep ensemble's row with 32; on concrete they are the same.
cpu: The family had four more claims when its chains were run, on pSMILE, which was removed from raychains later. The
    other 44 verdicts are the same with and without them. The hours of chains count pSMILE's.
""",
    figures=rp.figure(
        "cells hmc",
        _draw,
        name="distances",
        title="Total variation to the true posterior's predictive",
        caption="A dot for each repeat. Dashed: the distance between the two halves of HMC's chains; nothing "
        "nearer can be told apart.",
        alt="Total variation to the true posterior's predictive of each method on each data set",
    ),
)
