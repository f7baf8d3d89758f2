"""Loss around the last samples, and between θ and θₐ (§6.3, Fig. 5; D.2, Figs. 9 and 10)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.csgmcmc.fig3b import hill
from raychains.papers.emcmc import emcmc_chains, last_samples
from raychains.papers.emcmc.last_samples import LABELS, METHODS, REVISION, ROWS, SCALES, STYLES
from raychains.plotting.charts import Axis, Chart, Panel

FAR = (0.0, 4.0, 8.0, 12.0, 16.0, 20.0)
SIZES = {
    "smoke": (1, (0.0, 4.0), 3),
    "cpu": (3, (0.0, 2.0, 4.0, 6.0, 8.0, 10.0), 11),
    "gpu": (3, FAR, 11),
    "paper": (10, FAR, 11),
}
"""Random directions, Euclidean distances along them, points between θ and θₐ."""
SAME_MODE = 1.0
"""Per cent by which the error may rise between θ and θₐ in one mode."""


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return training NLL and test error along random directions and between the variables, and their means."""
    directions, distances, points = SIZES[run.scale]
    ends = rp.last_samples(run, METHODS)
    anchors = {one.repeat: one for one in ends if one.row == "emcmc-anchor"}

    def around(bench: rp.Networks, one: rp.LastSample) -> list[dict[str, Any]]:
        """Measure along directions whose entries are standard normal: their length is nearly the root of their
        number."""
        unit, here = math.sqrt(bench.parameters), _both(bench, (1.0, one))
        made = []
        for seed in range(directions):
            for far in distances:
                there = {"directions": ((far / unit, seed),), "normalise": "none"}
                metrics = _both(bench, (1.0, one), **there) if far else here
                made.append({**one.about(run.part), "direction": seed, "distance": far, **metrics})
        return made

    def between(bench: rp.Networks, one: rp.LastSample) -> list[dict[str, Any]]:
        other = anchors[one.repeat]
        about = {**one.about(run.part), "other": other.record.sha256}
        lines = np.linspace(0, 1, points).tolist()
        return [{**about, "t": t, **_both(bench, (1 - t, one), (t, other))} for t in lines]

    far = "-".join(f"{d:g}" for d in distances)
    thetas = [one for one in ends if one.row == "emcmc-theta"]
    along = rp.of_each(run, f"around-{directions}-to-{far}", ends, around, REVISION)
    across = rp.of_each(run, f"between-{points}", thetas, between, REVISION)
    means = {"train": lambda mine: _mean(mine, "train_nll"), "test": lambda mine: _mean(mine, "test_error")}
    risen = last_samples.cells(run.part, [{**r, "row": "emcmc"} for r in across], {"rise": rise})
    cells = [*last_samples.cells(run.part, along, means), *risen]
    return {"cells": cells, "around": along, "between": across}


def _both(bench: rp.Networks, *parts: tuple[float, rp.LastSample], **settings: Any) -> dict[str, float]:
    """Return training and test NLL in nats, test error in per cent."""
    train, test = (bench.at(split, *parts, **settings) for split in ("train", "test"))
    return {"train_nll": train["nll"], "test_nll": test["nll"], "test_error": 100 * test["error"]}


def _mean(rows: rp.Rows, name: str) -> float:
    return float(np.mean([r[name] for r in rows]))


def rise(rows: rp.Rows) -> float:
    """Return the most that the error between θ and θₐ rises above the line between its ends, in per cent; at least
    0."""
    return hill([r["test_error"] for r in sorted(rows, key=lambda r: r["t"])])


def _draw(around: pd.DataFrame, between: pd.DataFrame) -> Figure:
    """Draw the paper's three panels, a row for each part."""
    shown: list[Panel] = []
    for part, mine in around.groupby("part", sort=False):
        for metric, label in (("train_nll", "Training NLL (nats)"), ("test_error", "Test error (%)")):
            lines = []
            for style, of in rp.styled(mine, STYLES):
                by = of.groupby(["repeat", "distance"])[metric].mean().groupby("distance")
                mean, sd = by.mean(), by.std().fillna(0)
                lines.append(style.line(mean.index, mean, band=(mean - sd, mean + sd)))
            title = LABELS[str(part)] if metric == "train_nll" else ""
            shown.append(Panel(marks=lines, x=Axis(label="Distance"), y=Axis(label=label), title=title))
        across = between[between["part"] == part]
        lines = [*rp.each_and_mean(STYLES["emcmc-theta"], across, ["repeat"], "t", "test_error")]
        shown.append(Panel(marks=lines, x=Axis(label="t, from θ (0) to θₐ (1)"), y=Axis(label="Test error (%)")))
    return Chart(panels=shown, columns=3, height=2.8, legend_columns=4)()


def claims(part: str) -> tuple[rp.Claim, ...]:
    """Return what §6.3 says, and D.2 on θₐ against θ."""
    where = f"on {LABELS[part]}."
    around = [
        f"{column}-below-{other}-{part} | {part} {column} | emcmc < {other} {emcmc_chains.rule(other)} | {what} around "
        f"Entropy-MCMC's samples is below that around {ROWS[other]}'s {where}"
        for column, what in (("train", "Training NLL"), ("test", "Test error"))
        for other in ("sgd", "sgld")
    ]
    variables = f"""
anchor-larger-train-{part} | {part} train | emcmc-anchor > emcmc-theta paired | Training NLL around θₐ is larger than
    around θ {where}
anchor-lower-test-{part} | {part} test | emcmc-anchor < emcmc-theta paired | Test error around θₐ is lower than around θ
    {where}
same-mode-{part} | {part} rise | emcmc < {SAME_MODE} | θ and θₐ lie in one mode: the error rises by less than
    {SAME_MODE:g} % between them {where}
"""
    return rp.stated("\n".join(around) + variables, scales=SCALES[part])


def settings(scale: str) -> list[rp.Setting]:
    directions, distances, points = SIZES[scale]
    return [
        *emcmc_chains.settings(scale),
        rp.Setting("random directions", str(directions), rp.PUBLISHED if scale == "paper" else rp.OURS),
        rp.Setting("distances", ", ".join(f"{d:g}" for d in distances), rp.OURS),
        rp.Setting("points between θ and θₐ", str(points), rp.OURS),
    ]


STUDY = rp.Study(
    name="emcmc-fig5",
    paper="emcmc",
    where="Fig. 5",
    title="loss around samples, and between θ and θₐ",
    needs=("cifar100", "cifar10"),
    hours=(0.002, 0.14, 3, 6),
    parts=last_samples.parts(tables),
    rows=ROWS,
    columns=(
        rp.Heading("train", "Training NLL along random lines", "nats", 3),
        rp.Heading("test", "Test error along them", "%", 2),
        rp.Heading("rise", "Rise of the error between θ and θₐ", "%", 2),
    ),
    absent="only Entropy-MCMC has two variables",
    claims=tuple(c for part in LABELS for c in claims(part)),
    settings=settings,
    differences=last_samples.DIFFERENCES
    + """
cpu gpu paper: How far the paper goes is not readable in our text. Directions are standard normal over all parameters,
    distances Euclidean, the same of all methods; the table has the mean along the lines.
""",
    revision=REVISION,
    figures=rp.figure(
        "around between",
        _draw,
        name="around",
        title="Around the last samples, and between θ and θₐ",
        caption="Left and middle: training NLL and test error at Euclidean distances from the last sample in "
        "random directions, mean over directions and repeats, bands ± one standard deviation over "
        "repeats. Right: test error on the line from θ (0) to θₐ (1); thin: each repeat.",
        alt="Training NLL and test error against distance for SGD, SGLD and both variables of Entropy-MCMC, and "
        "test error between its variables",
    ),
)
