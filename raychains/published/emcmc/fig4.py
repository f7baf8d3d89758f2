"""The diagonal Fisher's spectrum at the last samples of SGD, SGLD and Entropy-MCMC (§6.3, Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains.evaluation.flatness import TRACE, ranks_of
from raychains.published.claims import Claim, Of
from raychains.published.emcmc import basins, chains
from raychains.published.emcmc.basins import LABELS, LOOKS, ROWS, Last, Measured
from raychains.published.emcmc.table1 import rule
from raychains.published.experiment import Experiment, Setting, Tables
from raychains.published.found import Found
from raychains.published.tables import Heading
from raychains.report.figures.arms import powers
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.style import Drawing, Theme, line

EXAMPLES = 1000
"""Training examples of a Fisher at most."""
EVERY = 3
"""Of the kept ranks, which are shown."""


def tables(part: str, scale: str, found: Sequence[Found]) -> Tables:
    """Sum and largest of the eigenvalues by sample, and the thinned spectra."""
    (run,) = found

    def measured(bench: Measured, one: Last) -> list[dict[str, Any]]:
        spectrum = bench.at("test", (1.0, one), fisher=min(EXAMPLES, bench.task.num_data))
        return [
            {**one.about(part), "rank": rank, "eigenvalue": value, "trace": spectrum[TRACE]}
            for rank, value in ranks_of(spectrum)
        ]

    rows = basins.of_each(run, f"fisher-{EXAMPLES}", basins.last(run), measured)
    columns = {"trace": lambda mine: float(mine[0]["trace"]), "largest": lambda mine: float(mine[0]["eigenvalue"])}
    shown = [
        {k: r[k] for k in ("part", "row", "repeat", "rank", "eigenvalue")} for i, r in enumerate(rows) if i % EVERY == 0
    ]
    return {"cells": basins.cells(part, rows, columns), "spectrum": shown}


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Sorted eigenvalues against their rank."""
    if "spectrum" not in tables:
        return []
    spectrum = tables["spectrum"]
    return [
        Drawing(
            name="spectrum",
            title="Spectrum of the diagonal Fisher information",
            caption="Diagonal entries of the empirical Fisher at each chain's last sample, sorted. Thin: each repeat; thick: their "
            "geometric mean. Less is flatter.",
            alt="Sorted entries of the diagonal Fisher information against their rank, on logarithmic axes",
            draw=lambda theme: _draw(spectrum, theme),
        )
    ]


def _draw(spectrum: pd.DataFrame, theme: Theme) -> Figure:
    parts = list(dict.fromkeys(spectrum["part"]))
    figure, ((*axes,),) = panels(1, len(parts), 3.4)
    shown = spectrum[spectrum["eigenvalue"] > 1e-10 * spectrum["eigenvalue"].max()]
    for axis, name in zip(axes, parts, strict=True):
        for row, look in LOOKS.items():
            mine = shown[(shown["part"] == name) & (shown["row"] == row)].assign(log=lambda t: np.log(t["eigenvalue"]))
            for _, own in mine.groupby("repeat"):
                axis.plot(own["rank"], own["eigenvalue"], color=theme.colour(look), linewidth=0.6, alpha=0.45)
            by = mine.groupby("rank")["log"]
            mean = by.mean()[by.size() == by.size().max()]
            axis.plot(mean.index, np.exp(mean), color=theme.colour(look), linestyle=line(look), linewidth=1.8)
        axis.set(xscale="log", yscale="log", title=LABELS[name], xlabel="Rank of the parameter")
        for one in (axis.xaxis, axis.yaxis):
            powers(one)
    axes[0].set_ylabel("Eigenvalue (squared nats)")
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=4)
    return figure


def _claims(part: str) -> list[Claim]:
    return [
        Claim(
            name=f"emcmc-flatter-than-{other}-{part}", part=part, direction="less", rule=rule(other),
            text=f"The eigenvalues' sum is smaller for Entropy-MCMC than for {ROWS[other]} on {LABELS[part]}.",
            left=Of(row="emcmc", column="trace"), right=Of(row=other, column="trace"),
            scales=("smoke", "cpu") if part == "cifar10" else ("cpu", "gpu", "paper"),
        )
        for other in ("sgd", "sgld")
    ]  # fmt: skip


def settings(scale: str) -> list[Setting]:
    return [
        *chains.settings(scale),
        Setting(name="Fisher", value=f"of up to {EXAMPLES:,} training images, their own labels", origin="ours"),
    ]


EXPERIMENTS = (
    Experiment(
        name="emcmc-fig4", title="eigenspectrum of the diagonal Fisher", paper="emcmc", where="Fig. 4", order=24,
        parts=tuple(basins.part(dataset, tables) for dataset in LABELS),
        rows=basins.headings,
        columns=lambda scale: (
            Heading("trace", "Sum of the eigenvalues", "squared nats"), Heading("largest", "Largest", "squared nats"),
        ),
        claims=tuple(c for part in LABELS for c in _claims(part)),
        settings=settings,
        differences=lambda scale: [
            *basins.differences(scale),
            *(
                ["The paper does not say how many images its Fisher is of. Labels are the data's own, images not augmented."]
                if scale != "smoke"
                else []
            ),
        ],
        hours={"smoke": 0.002, "cpu": 0.14, "gpu": 3, "paper": 4},
        revision=basins.REVISION,
        figures=figures,
    ),
)  # fmt: skip
