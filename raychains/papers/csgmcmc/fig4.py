"""Predictive entropy on notMNIST of networks that know MNIST (§5.3, Fig. 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.plotting.charts import Axis, Chart, Panel

COMPANION = "notmnist"
METHODS = rp.labels("sgd sgdm snapshot-sgdm sgld sghmc csgld csghmc")
STYLES = rp.styles(
    METHODS,
    "sgd other 2, sgdm other 1, snapshot-sgdm other 0, sgld decreasing 0, sghmc decreasing 1, csgld cyclical 0, "
    "csghmc cyclical 1",
)
SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(epochs=4, repeats=2, cycles=2),
    "cpu": rp.Size(epochs=40, repeats=3),
    "gpu": rp.Size(epochs=40, repeats=5),
    "paper": rp.Size(epochs=40, repeats=3),
}
SHORT_CYCLES = {"cycles": 2, "samples_per_cycle": 2, "exploration": 0.0}
"""Options of scale smoke that cyclical methods alone have."""
SURE = "sure"
"""Share of letters below half a nat, in per cent."""
EVERY = 2
"""Every second one of 201 entropies is kept for the curve."""
PAIRS = [(ours, m) for ours in ("csgld", "csghmc") for m in ("sgld", "sghmc", "snapshot-sgdm", "sgd", "sgdm")]
PAIRS += [("sgld", "sgd"), ("sghmc", "sgdm"), ("snapshot-sgdm", "sgdm")]


def preset(scale: str) -> rp.Preset:
    """Return mnist-uncertainty, each variant under its method's name."""
    known = rp.named("mnist-uncertainty")
    variants = [
        dataclasses.replace(v, name=v.sampler, options=_short(v) if scale == "smoke" else v.options)
        for v in known.variants
    ]
    return SIZES[scale].preset(known.name, known.about, known.task, variants, schedule=known.schedule)


def _short(variant: rp.Variant) -> dict[str, Any]:
    """Return options of an arm whose few epochs would not hold as many samples as it keeps."""
    if variant.sampler in ("sgld", "sghmc"):
        return {**variant.options, "schedule_settings": ("samples=1",)}
    if variant.sampler in ("snapshot-sgdm", "csgld", "csghmc"):
        return {**variant.options, **SHORT_CYCLES}
    return dict(variant.options)


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return over-confident shares of letters, and the distribution functions of their entropy, mean over repeats."""
    detected, curves = run.table("ood"), run.table("entropy_cdf")
    letters = detected[(detected["companion"] == COMPANION) & (detected["score"] == "entropy")]
    methods = {run.arm(m).name: m for m in METHODS}
    cells = run.cells(METHODS.keys(), {"share_below_half_nat": SURE, "mean_outside": "entropy"}, letters)
    own = curves[curves["companion"] == COMPANION]
    mean = own.groupby(["arm", "entropy"], sort=False)["cdf"].mean().reset_index()
    points = [
        {"method": methods[arm], "entropy": e, "cdf": share}
        for arm, of_arm in mean.groupby("arm", sort=False)
        for e, share in of_arm[["entropy", "cdf"]].to_numpy().tolist()[::EVERY]
    ]
    return {"cells": cells, "curve": points}


def draw(curve: pd.DataFrame) -> Figure:
    """Draw the paper's figure."""
    marks = [style.line(mine["entropy"], mine["cdf"]) for style, mine in rp.styled(curve, STYLES, "method")]
    x = Axis(label="Predictive entropy (nats)", low=0)
    y = Axis(label="Share of letters at or below", low=0, high=1.02)
    return Chart(panels=[Panel(marks=marks, x=x, y=y)], height=3.1, legend_columns=4)()


STUDY = rp.Study(
    name="fig4",
    paper="csgmcmc",
    where="Fig. 4",
    title="predictive entropy on notMNIST",
    needs=("mnist", "notmnist"),
    hours=(0.01, 0.3, 0.3, 0.2),
    parts=(
        rp.Part(
            name="mnist",
            label="MNIST → notMNIST",
            sampled=rp.comparison(preset, measures=("ood",)),
            tables=tables,
        ),
    ),
    rows=METHODS,
    columns=(rp.Heading(SURE, "Letters below half a nat", "%", 1), rp.Heading("entropy", "Mean entropy", "nats", 3)),
    claims=rp.stated(
        f"{better}-surer-less-than-{worse} | mnist {SURE} | {better} < {worse} | {METHODS[better]} is sure of fewer "
        f"letters than {METHODS[worse]}."
        for better, worse in PAIRS
    ),
    settings=lambda scale: (
        rp.Setting("network", "MLP 784-400-400-10", rp.OURS),
        rp.Setting("epochs", str(SIZES[scale].epochs), rp.OURS),
        rp.Setting("M, samples a cycle", "4, 3" if scale != "smoke" else "2, 2", rp.OURS),
        rp.Setting("step sizes, batch, λ", "docs/reference: tasks.md, presets.md", rp.OURS),
        rp.Setting("T", "1", rp.OURS),
        rp.Setting("repeats", str(SIZES[scale].repeats), rp.OURS),
    ),
    differences="""
smoke cpu gpu paper: The paper says three fully connected layers and gives no other setting of this experiment: all of
    them are ours.
smoke cpu gpu paper: Letters are the 10,000 of the notMNIST sample, not the whole set.
smoke cpu gpu paper: The paper shows curves and no numbers; the share below half a nat is where they differ most.
""",
    figures=rp.figure(
        "curve",
        draw,
        name="fig4",
        title="Entropy of predictions on letters",
        caption="Share of the letters whose predictive entropy is at most x: a curve that stays low is less "
        "over-confident. Mean over the repeats.",
        alt="Empirical distribution functions of predictive entropy on notMNIST for seven methods",
    ),
)
