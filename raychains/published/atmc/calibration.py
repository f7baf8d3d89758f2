"""Figs. 2 and 3: accuracy against confidence in 8 equally sized bins, of ATMC's posterior predictive and of SGD."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.evaluation import calibration
from raychains.published import predicted
from raychains.published.atmc.chains import (
    ATMC,
    BATCHNORM,
    CIFAR,
    IMAGENET,
    LABELS,
    NAMES,
    SGD,
    comparisons,
    differences,
    settings,
)
from raychains.published.claims import Claim, Of, Rule
from raychains.published.experiment import Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line, marker

BINS = 8
ROWS = (SGD, BATCHNORM, ATMC)
REAL = ("gpu", "paper")
"""Scales at which there is ImageNet."""
LOOKS = {
    SGD: Look("decreasing", 0, NAMES[SGD]), BATCHNORM: Look("decreasing", 1, NAMES[BATCHNORM]),
    ATMC: Look("cyclical", 0, "ATMC (posterior predictive)"),
}  # fmt: skip
MASS, WIDTH = "mass", "width"
BINNINGS = {MASS: "equally many predictions", WIDTH: "equal width"}
OVERCONFIDENCE = "overconfidence"
COLUMNS = {
    f"ece-{MASS}": "ECE, bins of equal mass", f"ece-{WIDTH}": "ECE, bins of equal width",
    OVERCONFIDENCE: "Mean confidence − accuracy",
}  # fmt: skip
Numbers = Mapping[str, float]


def tables(dataset: str, scale: str, found: Sequence[Found]) -> Tables:
    """Calibration errors per repeat, and the bins of every diagram."""
    cells, bins = [], []
    runs = {v.name: run for run in found for v in run.preset.variants}
    for row in ROWS:
        run = runs[row]
        for repeat in range(len(run.arm(row).chains)):
            rows = predicted.rows(run, row, repeat)
            numbers: dict[str, float] = {}
            for binning, of in ((MASS, calibration.equal_mass), (WIDTH, calibration.equal_width)):
                diagram = of(rows, BINS)
                numbers[f"ece-{binning}"] = 100 * calibration.expected_error(diagram)
                for b in range(BINS):
                    if diagram.count[b]:
                        bins.append(
                            {
                                "part": dataset, "row": row, "repeat": repeat, "binning": binning, "bin": b,
                                "count": int(diagram.count[b]), "confidence": float(diagram.confidence[b]),
                                "accuracy": float(diagram.accuracy[b]),
                            }
                        )  # fmt: skip
            right = rows["prediction"] == rows["label"]
            numbers[OVERCONFIDENCE] = 100 * float(rows["confidence"].mean() - right.mean())
            origin = run.origin(row, repeat)
            cells += [cell(dataset, row, column, repeat, value, **origin) for column, value in numbers.items()]
    return {"cells": cells, "bins": bins}


def figures(scale: str, stored: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """A figure per data set, as the paper has them, with both readings of "equally sized"."""
    bins = stored.get("bins")
    if bins is None or not len(bins):
        return []
    return [
        Drawing(
            name=f"reliability-{part}", title=f"Calibration on {LABELS[part]}",
            caption=(
                f"Accuracy against mean confidence in {BINS} bins, all repeats together: below the diagonal a predictive is "
                "over-confident. Left: bins of equally many predictions; right: of equal width."
            ),
            alt=f"Accuracy against confidence on {LABELS[part]} of ATMC and of SGD with and without BatchNorm",
            draw=partial(_draw, bins[bins["part"] == part]),
        )
        for part in dict.fromkeys(bins["part"])
    ]  # fmt: skip


def pooled(bins: pd.DataFrame) -> pd.DataFrame:
    """Bins of all repeats together, by binning, row and bin: count, and the means weighted by it."""
    weighted = bins.assign(**{c: bins[c] * bins["count"] for c in ("confidence", "accuracy")})
    by = weighted.groupby(["binning", "row", "bin"], sort=True)[["count", "confidence", "accuracy"]].sum().reset_index()
    return by.assign(**{c: by[c] / by["count"] for c in ("confidence", "accuracy")})


def _draw(bins: pd.DataFrame, theme: Theme) -> Figure:
    figure, (axes,) = panels(1, len(BINNINGS), 3.4, sharey=True)
    whole = pooled(bins)
    for axis, (binning, label) in zip(axes, BINNINGS.items(), strict=True):
        _panel(axis, whole[whole["binning"] == binning], theme)
        axis.set_title(f"Bins of {label}")
        axis.set_xlabel("Confidence")
    axes[0].set_ylabel("Accuracy")
    shown = [look for row, look in LOOKS.items() if row in set(whole["row"])]
    perfect = Line2D([], [], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, label="perfect calibration")
    legend(figure, [*(handle(theme, look, markers=True) for look in shown), perfect], columns=4)
    return figure


def _panel(axis: Axes, bins: pd.DataFrame, theme: Theme) -> None:
    for row, look in LOOKS.items():
        mine = bins[bins["row"] == row]
        axis.plot(
            mine["confidence"], mine["accuracy"], color=theme.colour(look), linestyle=line(look), marker=marker(look),
            markersize=4.5,
        )  # fmt: skip
    axis.plot([0, 1], [0, 1], color=theme.ink, linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
    axis.set(xlim=(0, 1), ylim=(0, 1))


def _part(dataset: str, scales: tuple[str, ...]) -> Part:
    return Part(
        name=dataset, label=LABELS[dataset], data=lambda scale: (dataset,), tables=partial(tables, dataset),
        sampled=lambda scale: [Sampled(preset=preset) for preset in comparisons(dataset, scale, ROWS)],
        scales=scales,
    )  # fmt: skip


def _claim(dataset: str, column: str, other: str, what: str, rule: Rule = "welch") -> Claim:
    return Claim(
        name=f"{column}-below-{other}-{dataset}", part=dataset, direction="less", rule=rule,
        text=f"On {LABELS[dataset]} ATMC's posterior predictive {what} than {NAMES[other]}.",
        left=Of(row=ATMC, column=column), right=Of(row=other, column=column),
    )  # fmt: skip


def _settings(scale: str) -> list[Setting]:
    made = [*settings(scale), Setting(name="bins", value=str(BINS), origin="published")]
    if scale in REAL:
        made += [dataclasses.replace(s, name=f"ImageNet: {s.name}") for s in settings(scale, IMAGENET)]
    return made


def _differences(scale: str) -> list[str]:
    made = differences(scale)
    if scale in REAL:
        made += [f"ImageNet: {text}" for text in differences(scale, IMAGENET) if text not in made]
    if scale != "smoke":
        made.append(
            'The paper\'s "8 equally sized bins" may hold equally many predictions or be equally wide: both are there. Its plots '
            "have no numbers in the text."
        )
    return made


EXPERIMENTS = (
    Experiment(
        name="atmc-calibration", title="calibration in 8 bins", paper="atmc", where="Figs. 2 and 3", order=17,
        parts=(_part(CIFAR, ("smoke", "cpu", "gpu", "paper")), _part(IMAGENET, ("cpu", "gpu", "paper"))),
        rows=lambda scale: [Heading(row, LOOKS[row].label) for row in ROWS],
        columns=lambda scale: [Heading(key, label, "%", 2) for key, label in COLUMNS.items()],
        claims=tuple(
            _claim(dataset, column, other, what)
            for dataset in (CIFAR, IMAGENET)
            for other in (SGD, BATCHNORM)
            for column, what in ((OVERCONFIDENCE, "is less over-confident"), (f"ece-{MASS}", "is better calibrated"))
        ),
        settings=_settings,
        differences=_differences,
        hours={"smoke": 0.01, "cpu": 0.5, "gpu": 50.0, "paper": 340.0},
        figures=figures,
    ),
)  # fmt: skip
