"""Figs. 2 and 3: accuracy against confidence in 8 equally sized bins, of ATMC's posterior predictive and of SGD."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.evaluation import calibration_error
from raychains.papers.atmc import atmc_chains
from raychains.papers.atmc.atmc_chains import ATMC, BATCHNORM, CIFAR, IMAGENET, LABELS, NAMES, SGD, comparisons
from raychains.plotting.charts import DASHED, Axis, Chart, Line, Panel

BINS = 8
ROWS = {SGD: NAMES[SGD], BATCHNORM: NAMES[BATCHNORM], ATMC: "ATMC (posterior predictive)"}
STYLES = rp.styles(ROWS, "sgd decreasing 0, sgd-bn decreasing 1, atmc cyclical 0")
SCALES = {CIFAR: rp.ALL, IMAGENET: rp.NOT_SMOKE}
MASS, WIDTH = "mass", "width"
BINNINGS = {MASS: "equally many predictions", WIDTH: "equal width"}
OVERCONFIDENCE = "overconfidence"
CLAIMED = {OVERCONFIDENCE: "is less over-confident", f"ece-{MASS}": "is better calibrated"}


def tables(*runs: rp.CompletedRun) -> rp.Tables:
    """Return calibration errors per repeat, and the bins of every diagram."""
    cells: list[dict[str, Any]] = []
    bins: list[dict[str, Any]] = []
    by_row = {v.name: run for run in runs for v in run.preset.variants}
    for row in ROWS:
        run = by_row[row]
        for repeat in range(len(run.arm(row).chains)):
            rows = run.predictions(row, repeat)
            numbers: dict[str, float] = {}
            for binning, of in ((MASS, calibration_error.equal_mass), (WIDTH, calibration_error.equal_width)):
                diagram = of(rows, BINS)
                numbers[f"ece-{binning}"] = 100 * calibration_error.expected_error(diagram)
                means = zip(diagram.count.tolist(), diagram.confidence.tolist(), diagram.accuracy.tolist(), strict=True)
                for b, (count, confidence, accuracy) in enumerate(means):
                    if count:
                        where = {"part": run.part, "row": row, "repeat": repeat, "binning": binning, "bin": b}
                        bins.append({**where, "count": int(count), "confidence": confidence, "accuracy": accuracy})
            right = rows["prediction"] == rows["label"]
            numbers[OVERCONFIDENCE] = 100 * float(rows["confidence"].mean() - right.mean())
            origin = run.origin(row, repeat)
            cells += [rp.cell(run.part, row, column, repeat, value, **origin) for column, value in numbers.items()]
    return {"cells": cells, "bins": bins}


def pooled(bins: pd.DataFrame) -> pd.DataFrame:
    """Return bins of all repeats together, by binning, row and bin: count, and the means weighted by it."""
    weighted = bins.assign(**{c: bins[c] * bins["count"] for c in ("confidence", "accuracy")})
    by = weighted.groupby(["binning", "row", "bin"], sort=True)[["count", "confidence", "accuracy"]].sum().reset_index()
    return by.assign(**{c: by[c] / by["count"] for c in ("confidence", "accuracy")})


def _draw(bins: pd.DataFrame) -> Figure:
    whole, diagonal = pooled(bins), Line(x=[0, 1], y=[0, 1], style={**DASHED, "zorder": 1}, label="perfect calibration")
    shown = []
    for binning, label in BINNINGS.items():
        of = rp.styled(whole[whole["binning"] == binning], STYLES)
        lines = [style.line(mine["confidence"], mine["accuracy"], size=4.5) for style, mine in of]
        x, y = Axis(label="Confidence", low=0, high=1), Axis(label="Accuracy", low=0, high=1)
        shown.append(Panel(marks=[*lines, diagonal], x=x, y=y, title=f"Bins of {label}"))
    return Chart(panels=shown, columns=2, height=3.4, share_y=True, legend_columns=4)()


def sampled(dataset: str, scale: str) -> list[rp.Sampled]:
    return [rp.Sampled(preset) for preset in comparisons(dataset, scale, tuple(ROWS))]


def settings(scale: str) -> list[rp.Setting]:
    made = [*atmc_chains.settings(scale), rp.Setting("bins", str(BINS), rp.PUBLISHED)]
    if scale in rp.ON_GPU:
        made += [dataclasses.replace(s, name=f"ImageNet: {s.name}") for s in atmc_chains.imagenet_settings(scale)]
    return made


STUDY = rp.Study(
    name="atmc-calibration",
    paper="atmc",
    where="Figs. 2 and 3",
    title="calibration in 8 bins",
    needs=("cifar10", "imagenet"),
    hours=(0.01, 0.5, 50, 340),
    parts=rp.parts(LABELS, sampled, tables, scales=SCALES),
    rows=ROWS,
    columns=(
        rp.Heading(f"ece-{MASS}", "ECE, bins of equal mass", "%", 2),
        rp.Heading(f"ece-{WIDTH}", "ECE, bins of equal width", "%", 2),
        rp.Heading(OVERCONFIDENCE, "Mean confidence − accuracy", "%", 2),
    ),
    claims=rp.stated(
        f"{column}-below-{other}-{dataset} | {dataset} {column} | {ATMC} < {other} | On {LABELS[dataset]} ATMC's "
        f"posterior predictive {what} than {NAMES[other]}."
        for dataset in SCALES
        for other in (SGD, BATCHNORM)
        for column, what in CLAIMED.items()
    ),
    settings=settings,
    differences=atmc_chains.DIFFERENCES
    + re.sub("^(?:cpu )?(.*?): ", r"\1: ImageNet: ", atmc_chains.OF_IMAGENET, flags=re.MULTILINE)
    + """
cpu gpu paper: The paper's "8 equally sized bins" may hold equally many predictions or be equally wide: both are
    there. Its plots have no numbers in the text.
""",
    figures=rp.figure(
        "bins",
        _draw,
        name="reliability",
        title="Calibration on {part}",
        caption=f"Accuracy against mean confidence in {BINS} bins, all repeats together: below the diagonal a "
        "predictive is over-confident. Left: bins of equally many predictions; right: of equal width.",
        alt="Accuracy against confidence on {part} of ATMC and of SGD with and without BatchNorm",
        parts=LABELS,
    ),
)
