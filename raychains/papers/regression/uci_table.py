"""Five UCI tables on the classic random splits, in the targets' own units, beside MC dropout's published numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from raychains import papers as rp
from raychains.papers.regression import bde_table
from raychains.papers.regression.regression_methods import DIFFERENCES, LABELS, NAMES, claims, preset, settings, size_of
from raychains.tasks.uci import CLASSIC_SPLITS

DATASETS = ("yacht", "concrete", "energy", "airfoil", "protein")
IN_SMOKE = ("yacht", "airfoil")
RMSE, LIKELIHOOD = "rmse", "log_likelihood"
DROPOUT, TWO_LAYERS = "dropout", "dropout-2-layers"
SPLITS = {"protein": 5}
"""Splits of the classic 20, where papers use fewer."""
PRINTED = {
    DROPOUT: """
concrete: 4.81 ± 0.14 | −2.94 ± 0.02
energy: 1.09 ± 0.05 | −1.72 ± 0.02
yacht: 0.72 ± 0.06 | −1.38 ± 0.01
protein: 4.27 ± 0.01 | −2.87 ± 0.00
""",
    TWO_LAYERS: """
concrete: 4.50 ± 0.18 | −2.82 ± 0.02
energy: 0.47 ± 0.01 | −1.48 ± 0.00
yacht: 0.66 ± 0.06 | −1.37 ± 0.02
protein: 3.62 ± 0.01 | −2.70 ± 0.00
""",
}
"""RMSE and log likelihood of MC dropout in the target's unit, by row, with ten times the paper's epochs and with two
hidden layers; a line per data set. Standard errors: an earlier version of the same file has them √20 times as large."""
SOURCE = "yaringal/DropoutUncertaintyExps, readme.md"
AIRFOIL_SD = 6.9058
"""Standard deviation in decibels of the training targets of bde's split, in which its benchmark measures."""
_SHORT = size_of(tune=300, draws=20, start=200, members=4, repeats=3)
SIZES: Mapping[str, Mapping[str, rp.Size]] = {
    "smoke": dict.fromkeys(DATASETS, bde_table.SMALL),
    "cpu": {
        **dict.fromkeys(DATASETS, _SHORT),
        "protein": size_of(tune=20, draws=8, apart=3, start=20, members=2, repeats=2),
    },
    "gpu": {
        **dict.fromkeys(DATASETS, size_of(tune=5_000, draws=100, repeats=5)),
        "protein": size_of(tune=500, draws=20, start=200, members=4, repeats=2),
    },
    "paper": {
        **dict.fromkeys(DATASETS, size_of(tune=50_000, draws=100, repeats=20)),
        "protein": size_of(tune=50_000, draws=100, repeats=SPLITS["protein"]),
    },
}


def log_likelihood_in_unit(nll: float, sd: float) -> float:
    """Return the log density per example of the target in its own unit, from the NLL of targets divided by ``sd``.

    y = sd·z + mean, so that p(y) = p(z)/sd.
    """
    return -nll - math.log(sd)


def values() -> tuple[rp.Value, ...]:
    """Return MC dropout's numbers, and of airfoil bde's benchmark in decibels."""
    made: list[rp.Value] = []
    for row, text in PRINTED.items():
        for line in text.strip().splitlines():
            part, _, cells = line.partition(":")
            columns, runs = [(part, RMSE), (part, LIKELIHOOD)], SPLITS.get(part, CLASSIC_SPLITS)
            made += rp.printed(f"{row}: {cells}", columns, SOURCE, runs=runs, provenance="in the authors' repository")
    for value in bde_table.VALUES:
        if value.part == "airfoil":
            known, same = value.summary, value.column == bde_table.RMSE
            mean = known.mean * AIRFOIL_SD if same else log_likelihood_in_unit(known.mean, AIRFOIL_SD)
            summary = rp.Summary(mean=mean, se=known.se * (AIRFOIL_SD if same else 1.0), n=known.n)
            column, source = (RMSE if same else LIKELIHOOD), f"{value.source}, in decibels"
            made.append(rp.Value("airfoil", value.row, column, rp.number(mean, 3), summary, source, "derived"))
    return tuple(made)


def sampled(dataset: str, scale: str) -> Sequence[rp.Sampled]:
    """Return one comparison for each split."""
    size, about = SIZES[scale][dataset], f"{NAMES[dataset]} on a classic random split"
    return [
        rp.Sampled(
            preset("uci-table", dataset, size, scale, f"{about}, number {split}", protocol="splits", split=split)
        )
        for split in range(size.repeats)
    ]


def tables(*runs: rp.CompletedRun) -> rp.Tables:
    """Return RMSE and log likelihood in the target's unit; a repeat is a split."""
    cells = []
    for split, run in enumerate(runs):
        for cell in run.cells(LABELS.keys(), {"rmse_original": RMSE, "nll_original": LIKELIHOOD}):
            sign = -1 if cell["column"] == LIKELIHOOD else 1
            cells.append({**cell, "repeat": split, "value": sign * cell["value"]})
    return {"cells": cells}


def all_claims() -> tuple[rp.Claim, ...]:
    """Return the claims: MILE against MC dropout, and methods against each other."""
    known = {RMSE: ("RMSE", "lower", "<"), LIKELIHOOD: ("log likelihood", "higher", ">")}
    table = (
        f"mile-{word}-than-dropout-{v.column.replace('_', '-')}-{v.part} | {v.part} {v.column} | mile {sign} "
        f"{v.summary.mean} | {NAMES[v.part]}: MILE has a {word} {what} than MC dropout's published {v.summary.mean:g}."
        for v in values()
        if v.row == DROPOUT
        for what, word, sign in [known[v.column]]
    )
    others = [claims(part, NAMES[part], LIKELIHOOD, "higher", "log likelihood") for part in DATASETS]
    return sum(others, rp.stated(table, scales=rp.NOT_SMOKE))


def settings_at(scale: str) -> list[rp.Setting]:
    sizes = SIZES[scale]
    shown = {name: sizes[name] for name in DATASETS if scale in scales_of(name)}
    return [
        rp.Setting("splits", "90 % / 10 %, random, by numpy's seed 1", rp.PUBLISHED),
        rp.Setting("network", "one hidden layer of 50 ReLU units (protein 100), one learned σ", rp.PUBLISHED),
        rp.Setting(
            "random splits of a data set",
            ", ".join(f"{s.repeats} ({NAMES[n]})" for n, s in shown.items()),
            rp.PUBLISHED if all(s.repeats == SPLITS.get(n, CLASSIC_SPLITS) for n, s in shown.items()) else rp.OURS,
        ),
        *settings(shown),
    ]


def scales_of(dataset: str) -> tuple[str, ...]:
    return rp.ALL if dataset in IN_SMOKE else rp.NOT_SMOKE


STUDY = rp.Study(
    name="uci-table",
    paper="dropout",
    where="Readme",
    title="five UCI tables on the classic splits",
    needs=("uci-yacht", "uci-concrete", "uci-energy", "uci-airfoil", "uci-protein"),
    hours=(0.02, 1.5, 30, 400),
    parts=rp.parts(
        {name: NAMES[name] for name in DATASETS},
        sampled,
        tables,
        data="uci-{}".format,
        scales={name: scales_of(name) for name in DATASETS},
    ),
    rows={
        **LABELS,
        DROPOUT: "MC dropout, 10× epochs",
        TWO_LAYERS: "MC dropout, 2 layers",
        bde_table.BDE_ENSEMBLE: "bde: deep ensemble",
        bde_table.BDE: "bde: MILE",
        **bde_table.OTHERS,
    },
    columns=(rp.Heading(RMSE, "RMSE", "", 3), rp.Heading(LIKELIHOOD, "Log likelihood", "nats", 3)),
    absent="published alone, or not published: not run here",
    values=values(),
    claims=all_claims(),
    settings=settings_at,
    differences=DIFFERENCES
    + f"""
smoke cpu gpu paper: MC dropout's numbers are of the 20 splits (5 of protein) that lie beside its code, in the target's
    unit, each with hyperparameters chosen on its own training data. Ours are of the first splits of as many as the
    table says, made as the script beside those splits makes them.
smoke cpu gpu paper: The airfoil numbers of bde, TabPFN, XGBoost and the random forest are of bde's one split into 80 %
    and 20 %, of another network, and are turned into decibels here: RMSE · {AIRFOIL_SD} and −NLL − ln {AIRFOIL_SD}.
    They are not of the splits of this table.
smoke cpu gpu paper: Step sizes were chosen on examples held out of two training sets, that of bde's split and that of
    the first classic one. Test examples of the other classic splits are among them.
""",
)
