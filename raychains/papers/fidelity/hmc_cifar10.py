"""Distances of methods to full-batch HMC on CIFAR-10, all at as many gradient evaluations: agreement and total
variation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raychains import papers as rp

PART = "cifar10"
SEED = 5
IMAGES = {"smoke": 200}
"""Training images, where they are not 50,000."""
LABELS = {"sgd": "SGD, one network", "ensemble": "Deep ensemble"}
LABELS |= rp.labels("sgld sghmc csgld csghmc emcmc multiswag")
"""Rows, and the names of arms."""
ON_CPU = ("sgd", "ensemble", "sghmc", "csghmc")
CYCLICAL = ("csgld", "csghmc", "emcmc")
POINTS = ("sgd", "ensemble")
AGREEMENT, VARIATION, ERROR = "agreement", "total_variation", "error"
NOISE_FROM, EXPLORATION = 0.5, 0.8


SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(
        epochs=4,
        chains=2,
        draws=2,
        cycles=2,
        repeats=2,
        batch_size=20,
        options={"task_settings": ("depth=8", "width=4")},
    ),
    # Planned by .19 s of one of two busy cores for a gradient of 64 images, compiled: 2.5 minutes an epoch, 360 epochs
    # with those of a fifth method, 7.5 of 8 hours. Measured: 13.6 hours of chains on two cores.
    # Short chains have longer steps: `Study.differences`.
    "cpu": rp.Size(
        epochs=18,
        chains=2,
        draws=12,
        cycles=3,
        repeats=2,
        batch_size=64,
        own={row: {"lr": 0.03, "momentum": 0.9} for row in ON_CPU},
        options={"compile": "default"},
    ),
    "gpu": rp.Size(epochs=50, chains=4, draws=20, cycles=5, repeats=3, batch_size=64),
    "paper": rp.Size(epochs=200, chains=12, draws=40, cycles=4, repeats=3, batch_size=64),
}


def methods(scale: str) -> tuple[str, ...]:
    """Return the rows that run at a scale."""
    return ON_CPU if scale == "cpu" else tuple(LABELS)


def preset(scale: str) -> rp.Preset:
    """Return one arm for each method."""
    size = SIZES[scale]
    steps = size.epochs * -(-IMAGES.get(scale, 50_000) // (size.batch_size or 1))
    cyclical = rp.thinning.cyclical(steps, size.draws, size.cycles, EXPLORATION)
    level = rp.thinning.decreasing(steps, size.draws, NOISE_FROM)
    own: dict[str, dict[str, Any]] = {
        "sgd": {"epochs": size.epochs * size.chains, "chains": 1, **rp.thinning.ONE_COSINE},
        "ensemble": dict(rp.thinning.ONE_COSINE),
    }
    variants = []
    for row in methods(scale):
        given = {**own.get(row, cyclical if row in CYCLICAL else level), **size.own.get(row, {})}
        schedule = "cyclical" if row in CYCLICAL + POINTS else "constant"
        sampler = "sgdm" if row in POINTS else row
        variants.append(rp.Variant(row, LABELS[row] if row in POINTS else "", sampler, given, schedule=schedule))
    return size.preset(
        "hmc-cifar10",
        "methods beside full-batch HMC on CIFAR-10, at as many gradient evaluations (Izmailov et al. 2021)",
        "cifar10-resnet20-frn-silu",
        variants,
        temperature=1.0,
        seed=SEED,
    )


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return agreement and error in per cent and total variation of all samples, and by samples agreement and variation
    with 95 % intervals over test examples."""
    found = run.table("fidelity")
    rows = methods(run.scale)
    last = rp.of_all_samples(found)
    last = last.assign(agreement=100 * last["agreement"])
    cells = run.cells(rows, (AGREEMENT, VARIATION), last) + run.cells(rows, (ERROR,))
    names = {run.arm(row).name: row for row in rows}
    intervals = [f"{name}_{end}" for name in (AGREEMENT, VARIATION) for end in ("low", "high")]
    columns = ["row", "repeat", "samples", "chains", AGREEMENT, VARIATION, *intervals]
    growth = found.assign(row=found["arm"].map(names), part=run.part)[["part", *columns]]
    return {"cells": cells, "growth": growth.to_dict("records")}


CLAIMED = {
    rp.NOT_SMOKE: "ensemble sgd, sghmc sgd, csghmc sgd, sghmc ensemble, csghmc ensemble, csghmc sghmc",
    rp.ON_GPU: "sgld ensemble, csgld sgld, emcmc csgld, multiswag ensemble",
}
"""Pairs of methods of which the first one is claimed to be nearer to HMC, by scales; written before anything was
run."""
NEARER = {VARIATION: ("<", "a smaller total variation to HMC"), AGREEMENT: (">", "a higher agreement with HMC")}


def all_claims() -> tuple[rp.Claim, ...]:
    """Return both claims of every pair."""
    made: tuple[rp.Claim, ...] = ()
    for scales, pairs in CLAIMED.items():
        table = (
            f"{left}-nearer-than-{right}-{column.replace('_', '-')} | {PART} {column} | {left} {sign} {right} | "
            f"{LABELS[left]} has {words} than {LABELS[right]}, at as many gradients."
            for left, right in (pair.split() for pair in pairs.split(","))
            for column, (sign, words) in NEARER.items()
        )
        made += rp.stated(table, scales=scales)
    return made


def settings_at(scale: str) -> list[rp.Setting]:
    size, smoke = SIZES[scale], scale == "smoke"
    return [
        rp.Setting(
            "network",
            "ResNet-8-FRN, 4 channels" if smoke else "ResNet-20-FRN with SiLU",
            rp.OURS if smoke else rp.PUBLISHED,
        ),
        rp.Setting("prior, temperature", "N(0, .2·I), 1", rp.PUBLISHED),
        rp.Setting("augmentation", "none", rp.PUBLISHED),
        rp.Setting("training images", f"{IMAGES.get(scale, 50_000):,}", rp.OURS),
        rp.Setting("epochs of a chain", str(size.epochs), rp.OURS),
        rp.Setting("chains of a method (SGD: one, as much longer)", str(size.chains), rp.OURS),
        rp.Setting("draws of a chain (SGD and deep ensemble: the last iterate)", str(size.draws), rp.OURS),
        rp.Setting("cycles, β", f"{size.cycles}, {EXPLORATION:g}", rp.OURS),
        rp.Setting("noise and draws without cycles", f"from {NOISE_FROM:g} of the epochs on", rp.OURS),
        rp.Setting("batch", str(size.batch_size), rp.OURS),
        rp.Setting("step sizes", "three times the task's" if size.own else "the task's", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
    ]


STUDY = rp.Study(
    name="hmc-cifar10",
    paper="hmc",
    where="Metrics",
    title="agreement with full-batch HMC on CIFAR-10, and total variation to it",
    needs=("cifar10", "hmc-cifar10"),
    hours=(0.02, 7, 18, 220),
    parts=(
        rp.Part(
            name=PART,
            label="CIFAR-10",
            sampled=rp.comparison(preset, measures=("fidelity",)),
            tables=tables,
        ),
    ),
    rows=LABELS,
    columns=(
        rp.Heading(AGREEMENT, "Agreement", "%", 2),
        rp.Heading(VARIATION, "Total variation", "", 4),
        rp.Heading(ERROR, "Error", "%", 2),
    ),
    absent="not run here",
    claims=all_claims(),
    settings=settings_at,
    differences="""
smoke: A few steps on 200 made-up images, and a reference made of their labels: this only shows that everything runs.
cpu gpu paper: The reference is what the NeurIPS 2021 competition released of HMC's predictions, of chains that learn
    from 50,000 images, as ours do.
cpu gpu paper: The paper's own chains learn from 40,960 images and are far longer: five of SGLD of 10,000 epochs, 50
    networks of 500 epochs in a deep ensemble (its Table 3). Its agreement and total variation are not in any text that
    we have: no published numbers stand beside ours.
smoke cpu gpu paper: All methods have the same number of gradient evaluations: chains of as many epochs; the one network
    of SGD is trained as long as all chains of another method together.
smoke cpu gpu paper: SGD and the deep ensemble have momentum .9, a cosine and the prior as weight decay, and predict
    with last iterates; the paper's weight decay is another.
smoke cpu gpu paper: SGHMC and SGLD have no noise in the first half; the paper's have it from the start.
smoke gpu paper: The task's step sizes are as long as the paper's for SGHMC; those of SGLD, Entropy-MCMC and SWAG
    are ours and were not tuned on this network.
cpu: Few epochs want longer steps. After one epoch of SGD with a cosine, .03 had the least test error (59 %, of .01 62
    %, of .1 68 %), three times the task's: SGD, the deep ensemble, SGHMC and cSGHMC take it, all with momentum .9.
cpu: SGHMC and cSGHMC agree with
    HMC about as often as SGD does, but are too unsure, with a predictive entropy of .87 nats where HMC's is .40. Their
    chains are short: SGHMC's training loss still fell from .73 to .64 while it sampled, and cSGHMC averages draws of
    three cycles at losses near 1, .6 and .3. The long steps are hardly the reason: kinetic temperatures were 1.02 to
    1.15 but in the last steps of a cycle.
smoke cpu gpu paper: Entropy-MCMC predicts with draws of θ and of θₐ: twice as many as the other samplers.
cpu: Four of eight methods, two chains of 18 epochs, cSGHMC's of three cycles, two repeats, with compiled networks. The
    epochs were fixed before these chains: as many as two cores were expected to do in eight hours with a fifth method,
    pSMILE, which was removed from raychains later; all five took seven, and the hours of chains are of all five. Step
    sizes are those of an earlier run of three epochs. There SGHMC had falling steps at momentum .1 first, under which
    its first two chains hardly learned: the constant step of SGD took their place.
""",
)
