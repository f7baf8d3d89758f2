"""bde's benchmark of tabular regression: airfoil and bike sharing by its split, network, prior and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from raychains import papers as rp
from raychains.papers.regression.regression_methods import DIFFERENCES, LABELS, NAMES, claims, preset, settings, size_of

DATASETS = ("airfoil", "bikesharing")
RMSE, NLL = "rmse", "nll"
SEEDS = 5
BDE, BDE_ENSEMBLE = "bde", "bde-ensemble"
OTHERS = {"tabpfn": "TabPFN v2", "xgboost": "XGBoost", "forest": "Random forest"}
PRINTED = """
airfoil bde-ensemble: .3650 ± .0038 | .1760 ± .0043
airfoil bde: .1215 ± .0042 | −.9126 ± .0131
airfoil tabpfn: .1359 | −.9338
airfoil xgboost: .2025 |
airfoil forest: .2560 |
bikesharing bde-ensemble: .2880 ± .0052 | −.4550 ± .0173
bikesharing bde: .2261 ± .0016 | −.7315 ± .0098
"""
"""RMSE and NLL on standardised targets, mean ± standard deviation over 5 seeds where there is one; a line per data set
and row."""
SOURCE = "scikit-learn-contrib/bde, paper/paper.md"
SMALL = size_of(tune=20, draws=4, apart=2, start=4, members=2, repeats=2, batch_size=80)
SIZES: Mapping[str, Mapping[str, rp.Size]] = {
    "smoke": dict.fromkeys(DATASETS, SMALL),
    "cpu": {
        "airfoil": size_of(tune=500, draws=20, start=200, members=4, repeats=3),
        "bikesharing": size_of(tune=100, draws=8, apart=5, start=40, members=4, repeats=3),
    },
    "gpu": dict.fromkeys(DATASETS, size_of(tune=5_000, draws=100, repeats=3)),
    "paper": dict.fromkeys(DATASETS, size_of(tune=50_000, draws=100)),
}


def values() -> tuple[rp.Value, ...]:
    """Return the printed numbers, with standard errors of the mean from their standard deviations."""
    made = []
    for line in PRINTED.strip().splitlines():
        part, _, row = line.partition(" ")
        for value in rp.printed(row, [(part, RMSE), (part, NLL)], SOURCE, provenance="in the authors' repository"):
            sd = value.summary.se
            summary = replace(value.summary, se=sd / math.sqrt(SEEDS), n=0 if math.isnan(sd) else SEEDS)
            made.append(replace(value, summary=summary))
    return tuple(made)


VALUES = values()


def comparison_of(dataset: str, scale: str) -> rp.Preset:
    size = SIZES[scale][dataset]
    about = f"{NAMES[dataset]} by bde's protocol"
    return preset("bde-table", dataset, size, scale, about, repeats=size.repeats)


def tables(run: rp.CompletedRun) -> rp.Tables:
    return {"cells": run.cells(LABELS.keys(), {"rmse": RMSE, "nll_gaussian": NLL})}


def all_claims() -> tuple[rp.Claim, ...]:
    """Return the claims: MILE's published numbers at the published size; methods against each other; MILE against
    trees."""
    made: tuple[rp.Claim, ...] = ()
    for v in (v for v in VALUES if v.row == BDE):
        label, what, mean, sd = NAMES[v.part], v.column.upper(), v.summary.mean, v.summary.se * math.sqrt(SEEDS)
        published = (
            f"mile-{v.column}-as-published-{v.part} | {v.part} {v.column} | mile = {mean} | {label}: MILE's {what} is "
            f"bde's, {mean:g}, within its standard deviation over seeds, {sd:.4f}."
        )
        made += rp.stated(published, tolerance=sd, scales=("paper",))
        made += claims(v.part, label, v.column, "lower", what)
    trees = (
        f"mile-below-{v.row} | airfoil {RMSE} | mile < {v.summary.mean} | Airfoil: MILE has a lower RMSE than "
        f"{OTHERS[v.row]}'s published {v.summary.mean:g}."
        for v in VALUES
        if v.row in OTHERS and v.column == RMSE
    )
    return made + rp.stated(trees, scales=rp.NOT_SMOKE)


def settings_at(scale: str) -> list[rp.Setting]:
    sizes = SIZES[scale]
    seeds = sizes["airfoil"].repeats
    return [
        rp.Setting("split", "80 % / 20 %, train_test_split with random_state 0", rp.PUBLISHED),
        rp.Setting("network", "4 × 16 ReLU, outputs μ and softplus σ", rp.PUBLISHED),
        rp.Setting("seeds", str(seeds), rp.PUBLISHED if seeds == SEEDS else rp.OURS),
        *settings(sizes),
    ]


STUDY = rp.Study(
    name="bde-table",
    paper="bde",
    where="Benchmark",
    title="airfoil and bike sharing at equal gradient evaluations",
    needs=("uci-airfoil", "uci-bikesharing"),
    hours=(0.01, 0.7, 5, 40),
    parts=rp.parts(
        {name: NAMES[name] for name in DATASETS}, rp.comparison(comparison_of), tables, data="uci-{}".format
    ),
    rows={**LABELS, BDE_ENSEMBLE: "bde: deep ensemble", BDE: "bde: MILE", **OTHERS},
    columns=(rp.Heading(RMSE, "RMSE", "", 4), rp.Heading(NLL, "NLL of the moments' Gaussian", "nats", 4)),
    absent="published alone, or not published: not run here",
    values=VALUES,
    claims=all_claims(),
    settings=settings_at,
    differences=DIFFERENCES
    + """
smoke cpu gpu paper: Both metrics are on standardised targets. bde prints standard deviations over five seeds, we
    standard errors of the mean.
""",
)
