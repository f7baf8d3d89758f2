"""The diagonal Fisher's spectrum at the last samples of SGD, SGLD and Entropy-MCMC (§6.3, Fig. 4)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import gmean

from raychains import papers as rp
from raychains.evaluation.loss_landscape import TRACE, ranks_of
from raychains.papers.emcmc import emcmc_chains, last_samples
from raychains.papers.emcmc.last_samples import LABELS, METHODS, REVISION, ROWS, STYLES
from raychains.plotting.charts import Axis, Panel

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
    return rp.by_part(LABELS, _panel, height=3.4, legend_columns=4)(shown)


def _panel(spectrum: pd.DataFrame) -> Panel:
    what = (["repeat"], "rank", "eigenvalue", gmean)
    marks = [m for style, of in rp.styled(spectrum, STYLES) for m in rp.each_and_mean(style, of, *what)]
    x, y = Axis(label="Rank of the parameter", scale="log"), Axis(label="Eigenvalue (squared nats)", scale="log")
    return Panel(marks=marks, x=x, y=y)


STUDY = rp.Study(
    name="emcmc-fig4",
    paper="emcmc",
    where="Fig. 4",
    title="eigenspectrum of the diagonal Fisher",
    needs=("cifar100", "cifar10"),
    hours=(0.002, 0.14, 3, 4),
    parts=last_samples.parts(tables),
    rows=ROWS,
    columns=(
        rp.Heading("trace", "Sum of the eigenvalues", "squared nats"),
        rp.Heading("largest", "Largest", "squared nats"),
    ),
    claims=rp.stated(
        f"emcmc-flatter-than-{other}-{part} | {part} trace | emcmc < {other} {emcmc_chains.rule(other)} | The "
        f"eigenvalues' sum is smaller for Entropy-MCMC than for {ROWS[other]} on {label}."
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
