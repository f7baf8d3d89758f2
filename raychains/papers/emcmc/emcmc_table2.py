"""Table 2: does predictive entropy separate SVHN from CIFAR (AUROC), and how calibrated is it on CIFAR (ECE)."""

from __future__ import annotations

from functools import partial
from typing import Any

from raychains import papers as rp
from raychains.evaluation.metrics import ece_mass
from raychains.papers.emcmc import emcmc_chains
from raychains.papers.emcmc.emcmc_chains import NAMES, below, preset

AUROC, ECE = "auroc", "ece"
BINS = 10
COMPANIONS = {"cifar10": "svhn", "cifar100": "svhn", "mnist": "notmnist"}
LABELS = {"cifar10": "CIFAR-10 → SVHN", "cifar100": "CIFAR-100 → SVHN", "mnist": "MNIST → notMNIST"}
ALONE = "cifar10-alone"
"""Without SVHN: calibration only."""
CLAIMED = {AUROC: "larger AUROC", ECE: "lower ECE"}
ON_CPU = ("cpu",)


def calibration(run: rp.CompletedRun) -> rp.Tables:
    """Return the calibration error of each method and repeat."""
    cells: list[dict[str, Any]] = []
    for row in NAMES:
        for repeat in range(len(run.arm(row).chains)):
            value = 100 * ece_mass(run.predictions(row, repeat), BINS)
            cells.append(rp.cell(run.part, row, ECE, repeat, value, **run.origin(row, repeat)))
    return {"cells": cells}


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return the calibration error, and the AUROC against the other set."""
    detected = run.table("ood")
    detected = detected[(detected["companion"] == COMPANIONS[run.part]) & (detected["score"] == "entropy")]
    return {"cells": [*calibration(run)["cells"], *run.cells(NAMES.keys(), [AUROC], detected)]}


def _part(name: str, scales: tuple[str, ...], **more: Any) -> rp.Part:
    sampled = rp.comparison(partial(preset, name), measures=("ood",))
    data = (name, COMPANIONS[name])
    return rp.Part(name=name, label=LABELS[name], data=data, sampled=sampled, tables=tables, scales=scales, **more)


PARTS = (
    _part("cifar10", rp.ALL),
    _part("cifar100", rp.NOT_SMOKE),
    rp.Part(
        name=ALONE,
        label="CIFAR-10, calibration alone",
        data=("cifar10",),
        sampled=rp.comparison(partial(preset, "cifar10")),
        tables=calibration,
        scales=ON_CPU,
        stands_for=LABELS["cifar10"],
    ),
    _part("mnist", ON_CPU, stands_for="CIFAR → SVHN"),
)


def settings(scale: str) -> list[rp.Setting]:
    made = [
        *emcmc_chains.settings(scale),
        rp.Setting("score", "predictive entropy", rp.PUBLISHED),
        rp.Setting("bins of ECE", f"{BINS}, of equal mass", rp.CODE),
    ]
    if scale == "cpu":
        small = emcmc_chains.MNIST
        value = f"MLP 784-400-400-10, {small.epochs} epochs of {small.options['train_subset']:,} images"
        made.append(rp.Setting("MNIST → notMNIST", value, rp.OURS))
    return made


CLAIM = "Entropy-MCMC has a {what} than {other} "

STUDY = rp.Study(
    name="emcmc-table2",
    paper="emcmc",
    where="Table 2",
    title="out-of-distribution detection and calibration",
    needs=("cifar10", "svhn", "cifar100", "mnist", "notmnist"),
    hours=(0.01, 0.7, 8, 28),
    parts=PARTS,
    rows=NAMES,
    columns=(rp.Heading(AUROC, "AUROC", "%", 2), rp.Heading(ECE, "ECE", "%", 2)),
    absent="the inputs of the other set are not there",
    claims=(
        *below("cifar10", CLAIMED, f"{CLAIM}({LABELS['cifar10']})."),
        *below("cifar100", CLAIMED, f"{CLAIM}({LABELS['cifar100']})."),
        *below(ALONE, {ECE: CLAIMED[ECE]}, f"{CLAIM}(CIFAR-10)."),
        *below("mnist", CLAIMED, f"{CLAIM}({LABELS['mnist']})."),
    ),
    settings=settings,
    differences=emcmc_chains.DIFFERENCES
    + """
cpu gpu paper: The paper's numbers are unreadable in the text that we have.
cpu: MNIST → notMNIST (its sample of 10,000 letters) stands in for CIFAR → SVHN; step sizes, prior and η there are
    ours. Where SVHN is missing, Table 1's chains still give the calibration on CIFAR-10.
""",
)
