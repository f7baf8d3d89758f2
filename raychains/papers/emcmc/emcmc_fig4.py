"""The diagonal Fisher's spectrum at the last samples of SGD, SGLD and Entropy-MCMC (§6.3, Fig. 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.evaluation.loss_landscape import TRACE, ranks_of
from raychains.measures.panels import powers
from raychains.papers.emcmc import emcmc_chains, last_samples
from raychains.papers.emcmc.last_samples import LABELS, METHODS, REVISION, ROWS, SCALES, STYLES
from raychains.plotting.layout import legend

EXAMPLES = 1000
"""Training examples of a Fisher at most."""
EVERY = 3
"""Every third one of the kept ranks is shown."""
SHOWN = ("part", "row", "repeat", "rank", "eigenvalue")


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return sum and largest of the eigenvalues by sample, and the thinned spectra."""

    def measured(bench: rp.Networks, one: rp.LastSample) -> list[dict[str, Any]]:
        spectrum = bench.at("test", (1.0, one), fisher=min(EXAMPLES, bench.task.num_data))
        about, trace = one.about(run.part), spectrum[TRACE]
        return [{**about, "rank": rank, "eigenvalue": value, "trace": trace} for rank, value in ranks_of(spectrum)]

    rows = rp.of_each(run, f"fisher-{EXAMPLES}", rp.last_samples(run, METHODS), measured, REVISION)
    columns = {"trace": lambda mine: float(mine[0]["trace"]), "largest": lambda mine: float(mine[0]["eigenvalue"])}
    kept = set(sorted({row["rank"] for row in rows})[::EVERY])
    shown = [{name: row[name] for name in SHOWN} for row in rows if row["rank"] in kept]
    return {"cells": last_samples.cells(run.part, rows, columns), "spectrum": shown}


def _draw(spectrum: pd.DataFrame) -> Figure:
    """Draw sorted eigenvalues against their rank."""
    shown = spectrum[spectrum["eigenvalue"] > 1e-10 * spectrum["eigenvalue"].max()]
    drawn, found = rp.by_part(shown, 3.4, LABELS)
    for axis, of in found:
        for row, style in STYLES.items():
            mine = of[of["row"] == row].assign(log=lambda t: np.log(t["eigenvalue"]))
            for _, own in mine.groupby("repeat"):
                style.plot(axis, own["rank"], own["eigenvalue"], linestyle="-", linewidth=0.6, alpha=0.45)
            by = mine.groupby("rank")["log"]
            mean = by.mean()[by.size() == by.size().max()]
            style.plot(axis, mean.index, np.exp(mean), linewidth=1.8)
        axis.set(xscale="log", yscale="log", xlabel="Rank of the parameter")
        for one in (axis.xaxis, axis.yaxis):
            powers(one)
    found[0][0].set_ylabel("Eigenvalue (squared nats)")
    legend(drawn, [style.handle() for style in STYLES.values()], columns=4)
    return drawn


STUDY = rp.Study(
    **rp.listed("emcmc-fig4"),
    parts=last_samples.parts(tables),
    rows=ROWS,
    columns=(
        rp.Heading("trace", "Sum of the eigenvalues", "squared nats"),
        rp.Heading("largest", "Largest", "squared nats"),
    ),
    claims=tuple(
        rp.claim(
            f"emcmc-flatter-than-{other}-{part}",
            f"The eigenvalues' sum is smaller for Entropy-MCMC than for {ROWS[other]} on {label}.",
            *(part, "trace", "emcmc", "less", other, emcmc_chains.rule(other)),
            scales=SCALES[part],
        )
        for part, label in LABELS.items()
        for other in ("sgd", "sgld")
    ),
    settings=lambda scale: [
        *emcmc_chains.settings(scale),
        rp.Setting("Fisher", f"of up to {EXAMPLES:,} training images, their own labels", rp.OURS),
    ],
    differences=last_samples.DIFFERENCES
    + """
cpu gpu paper: The paper does not say how many images its Fisher is of. Labels are the data's own, images not
    augmented.
""",
    revision=REVISION,
    figures=rp.figure(
        "spectrum",
        _draw,
        name="spectrum",
        title="Spectrum of the diagonal Fisher information",
        caption="Diagonal entries of the empirical Fisher at each chain's last sample, sorted. Thin: each repeat; "
        "thick: their geometric mean. Less is flatter.",
        alt="Sorted entries of the diagonal Fisher information against their rank, on logarithmic axes",
    ),
)
