"""Table 1b and Fig. 11: accuracy on CIFAR-10-C by severity, mean over the types of corruption, and by type."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.emcmc import emcmc_chains
from raychains.papers.emcmc.emcmc_chains import NAMES, preset, rule, settings
from raychains.plotting.layout import grid, legend

ROWS = ("sgd", "sgld", "emcmc")
STYLES = rp.styles(NAMES, "sgd decreasing 0, sgld other 1, emcmc cyclical 0")
SEVERITIES = range(1, 6)
PART = "cifar10-c"
ACROSS = 4
"""Panels in a row."""


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return mean accuracies over the types by severity, and every type's."""
    table = run.table("corrupted")
    cells, types = [], []
    for row in ROWS:
        mine = table[(table["arm"] == run.arm(row).name) & (table["severity"] > 0)]
        mine = mine.assign(accuracy=100 * (1 - mine["error"]))
        for (repeat, severity), of in mine.groupby(["repeat", "severity"], sort=True):
            origin = run.origin(row, int(repeat))
            cells.append(rp.cell(PART, row, str(severity), int(repeat), of["accuracy"].mean(), **origin))
        mean = mine.groupby(["corruption", "severity"], sort=False)["accuracy"].mean().reset_index()
        types += [{"part": PART, "row": row, **one} for one in mean.to_dict("records")]
    return {"cells": cells, "types": types}


def _draw(types: pd.DataFrame) -> Figure:
    """Draw Fig. 11: a panel for every type."""
    kinds = list(dict.fromkeys(types["corruption"]))
    drawn, axes = grid(len(kinds), ACROSS, 1.8, sharex=True, sharey=True)
    for axis, kind in zip(axes, kinds, strict=True):
        for row, style in STYLES.items():
            mine = types[(types["corruption"] == kind) & (types["row"] == row)].sort_values("severity")
            style.plot(axis, mine["severity"], mine["accuracy"], size=3, linewidth=1.2)
        axis.set_title(kind.replace("_", " "), fontsize=8)
        axis.set_xticks(list(SEVERITIES))
    for lowest in axes[-ACROSS:]:
        lowest.set_xlabel("Severity")
        lowest.tick_params(labelbottom=True)
    drawn.supylabel("Accuracy (%)", fontsize=9)
    legend(drawn, [style.handle(markers=True) for style in STYLES.values()], columns=3)
    return drawn


STUDY = rp.Study(
    **rp.listed("emcmc-corrupted"),
    parts=(
        rp.Part(
            name=PART,
            label="CIFAR-10-C",
            data=("cifar10", "cifar10-c"),
            sampled=rp.comparison(partial(preset, "cifar10", methods=ROWS), measures=("corrupted",)),
            tables=tables,
        ),
    ),
    rows={row: NAMES[row] for row in ROWS},
    columns=[rp.Heading(str(s), f"Severity {s}", "%", 2) for s in SEVERITIES],
    claims=tuple(
        rp.claim(
            f"emcmc-above-{other}-severity-{s}",
            f"Entropy-MCMC is more accurate than {NAMES[other]} at severity {s}.",
            *(PART, str(s), "emcmc", "greater", other, rule(other)),
        )
        for other in ("sgd", "sgld")
        for s in SEVERITIES
    ),
    settings=settings,
    differences=emcmc_chains.DIFFERENCES
    + """
cpu gpu paper: The paper's numbers are unreadable in the text that we have. Means are over the types of CIFAR-10-C
    that are in the data root, 19 where it is whole.
""",
    figures=rp.figure(
        "types",
        _draw,
        name="corruptions",
        title="Accuracy by type of corruption",
        caption="Test accuracy against the severity of each corruption, mean over the repeats.",
        alt="Accuracy against severity of SGD, SGLD and Entropy-MCMC, a panel for every type of corruption",
    ),
)
