"""Table 1b and Fig. 11: accuracy on CIFAR-10-C by severity, mean over the types of corruption, and by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from raychains.published.claims import Claim, Of
from raychains.published.emcmc.chains import NAMES, differences, preset, settings
from raychains.published.emcmc.table1 import rule
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import handle, legend
from raychains.report.looks import Look
from raychains.report.style import WIDTH, Drawing, Theme, line, marker

ROWS = ("sgd", "sgld", "emcmc")
LOOKS = {
    "sgd": Look("decreasing", 0, "SGD"), "sgld": Look("other", 1, "SGLD"), "emcmc": Look("cyclical", 0, "Entropy-MCMC"),
}  # fmt: skip
SEVERITIES = range(1, 6)
PART = "cifar10-c"
ACROSS = 4
"""Panels in a row."""


def tables(scale: str, found: Sequence[Found]) -> Tables:
    """Mean accuracies over the types by severity, and every type's."""
    (run,) = found
    table = run.table("corrupted")
    cells, types = [], []
    for row in ROWS:
        mine = table[(table["arm"] == run.arm(row).name) & (table["severity"] > 0)]
        mine = mine.assign(accuracy=100 * (1 - mine["error"]))
        for (repeat, severity), of in mine.groupby(["repeat", "severity"], sort=True):
            origin = run.origin(row, int(repeat))
            cells.append(cell(PART, row, str(severity), int(repeat), of["accuracy"].mean(), **origin))
        types += [
            {"part": PART, "row": row, "corruption": kind, "severity": int(severity), "accuracy": float(accuracy)}
            for (kind, severity), accuracy in mine.groupby(["corruption", "severity"], sort=False)["accuracy"]
            .mean()
            .items()
        ]
    return {"cells": cells, "types": types}


def figures(scale: str, stored: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Fig. 11: a panel for every type."""
    types = stored.get("types")
    if types is None or not len(types):
        return []
    return [
        Drawing(
            name="corruptions", title="Accuracy by type of corruption",
            caption="Test accuracy against the severity of each corruption, mean over the repeats.",
            alt="Accuracy against severity of SGD, SGLD and Entropy-MCMC, a panel for every type of corruption",
            draw=partial(_draw, types),
        )
    ]  # fmt: skip


def _draw(types: pd.DataFrame, theme: Theme) -> Figure:
    kinds = list(dict.fromkeys(types["corruption"]))
    across = min(ACROSS, len(kinds))
    down = -(-len(kinds) // across)
    figure = Figure(figsize=(WIDTH, 1.75 * down + 0.8))
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, kind in zip(axes, kinds, strict=False):
        for row, look in LOOKS.items():
            mine = types[(types["corruption"] == kind) & (types["row"] == row)].sort_values("severity")
            axis.plot(
                mine["severity"], mine["accuracy"], color=theme.colour(look), linestyle=line(look), marker=marker(look),
                markersize=3, linewidth=1.2,
            )  # fmt: skip
        axis.set_title(kind.replace("_", " "), fontsize=8)
        axis.set_xticks(list(SEVERITIES))
    for spare in axes[len(kinds) :]:
        spare.set_axis_off()
    for lowest in axes[max(0, len(kinds) - across) : len(kinds)]:
        lowest.set_xlabel("Severity")
        lowest.tick_params(labelbottom=True)
    figure.supylabel("Accuracy (%)", fontsize=9)
    legend(figure, [handle(theme, look, markers=True) for look in LOOKS.values()], columns=3)
    return figure


def _differences(scale: str) -> list[str]:
    made = differences(scale)
    if scale != "smoke":
        made.append(
            "The paper's numbers are unreadable in the text that we have. Means are over the types of CIFAR-10-C that are in "
            "the data root, 19 where it is whole."
        )
    return made


EXPERIMENTS = (
    Experiment(
        name="emcmc-corrupted", title="accuracy on corrupted CIFAR-10", paper="emcmc", where="Table 1b", order=31,
        parts=(
            Part(
                name=PART, label="CIFAR-10-C", data=lambda scale: ("cifar10", "cifar10-c"), tables=tables,
                sampled=lambda scale: [
                    Sampled(preset=preset("cifar10", scale, ROWS), evaluations=(Evaluated(measures=("corrupted",)),))
                ],
            ),
        ),
        rows=lambda scale: [Heading(row, NAMES[row]) for row in ROWS],
        columns=lambda scale: [Heading(str(s), f"Severity {s}", "%", 2) for s in SEVERITIES],
        claims=tuple(
            Claim(
                name=f"emcmc-above-{other}-severity-{s}", part=PART, direction="greater", rule=rule(other),
                text=f"Entropy-MCMC is more accurate than {NAMES[other]} at severity {s}.",
                left=Of(row="emcmc", column=str(s)), right=Of(row=other, column=str(s)),
            )
            for other in ("sgd", "sgld")
            for s in SEVERITIES
        ),
        settings=settings,
        differences=_differences,
        hours={"smoke": 0.02, "cpu": 0.6, "gpu": 1.5, "paper": 5.0},
        figures=figures,
    ),
)  # fmt: skip
