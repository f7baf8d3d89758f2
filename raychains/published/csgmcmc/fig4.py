"""Predictive entropy on notMNIST of networks that know MNIST (§5.3, Fig. 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains.experiments import presets
from raychains.experiments.presets import Preset, Variant
from raychains.published.claims import Claim, Of
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import legend
from raychains.report.style import LINES, WIDTH, Drawing, Theme

COMPANION = "notmnist"
METHODS = {
    "sgd": "SGD", "sgdm": "SGDM", "snapshot-sgdm": "Snapshot-SGDM", "sgld": "SGLD", "sghmc": "SGHMC", "csgld": "cSGLD",
    "csghmc": "cSGHMC",
}  # fmt: skip
FAMILIES = {"csgld": ("cyclical", 0), "csghmc": ("cyclical", 1), "sgld": ("decreasing", 0), "sghmc": ("decreasing", 1)}
OTHERS = {"sgd": 2, "sgdm": 1, "snapshot-sgdm": 0}
LENGTHS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"epochs": 4, "repeats": 2, "cycles": 2, "samples_per_cycle": 2, "exploration": 0.0},
    "cpu": {"epochs": 40, "repeats": 3},
    "gpu": {"epochs": 40, "repeats": 5},
    "paper": {"epochs": 40, "repeats": 3},
}
CYCLICAL = ("cycles", "samples_per_cycle", "exploration")
"""Of these options, those of cyclical methods alone."""
SURE = "sure"
"""Share of letters below half a nat, in per cent."""
EVERY = 2
"""Of the grid of 201 entropies, which points are kept for the curve."""


def preset(scale: str) -> Preset:
    """mnist-uncertainty, each variant under its method's name."""
    known = presets.named("mnist-uncertainty")
    common = {k: v for k, v in LENGTHS[scale].items() if k not in CYCLICAL}
    variants = [
        dataclasses.replace(v, name=v.sampler, options=_short(v) if scale == "smoke" else v.options)
        for v in known.variants
    ]
    return dataclasses.replace(known, options={**known.options, **common}, variants=variants)


def _short(variant: Variant) -> dict[str, Any]:
    """Options of an arm whose few epochs would not hold as many samples as it keeps."""
    if variant.sampler in ("sgld", "sghmc"):
        return {**variant.options, "schedule_settings": ("samples=1",)}
    if variant.sampler in ("snapshot-sgdm", "csgld", "csghmc"):
        return {**variant.options, **{k: LENGTHS["smoke"][k] for k in CYCLICAL}}
    return dict(variant.options)


def tables(scale: str, found: Sequence[Found]) -> Tables:
    """Over-confident shares of letters, and the distribution functions of their entropy, mean over repeats."""
    (run,) = found
    detected, curves = run.table("ood"), run.table("entropy_cdf")
    letters = detected[(detected["companion"] == COMPANION) & (detected["score"] == "entropy")]
    names = {run.arm(m).name: m for m in METHODS}
    cells = []
    for row in letters.to_dict("records"):
        method = names[row["arm"]]
        origin = run.origin(method, row["repeat"])
        for column, value in ((SURE, 100 * row["share_below_half_nat"]), ("entropy", row["mean_outside"])):
            cells.append(cell("mnist", method, column, row["repeat"], value, **origin))
    own = curves[curves["companion"] == COMPANION]
    mean = own.groupby(["arm", "entropy"], sort=False)["cdf"].mean().reset_index()
    points = [
        {"method": names[arm], "entropy": e, "cdf": share}
        for arm, of_arm in mean.groupby("arm", sort=False)
        for e, share in zip(of_arm["entropy"].to_list()[::EVERY], of_arm["cdf"].to_list()[::EVERY], strict=True)
    ]
    return {"cells": cells, "curve": points}


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> Sequence[Drawing]:
    """The paper's figure."""
    if "curve" not in tables:
        return []
    curve = tables["curve"]
    return [
        Drawing(
            name="fig4",
            title="Entropy of predictions on letters",
            caption="Share of the letters whose predictive entropy is at most x: a curve that stays low is less "
            "over-confident. Mean over the repeats.",
            alt="Empirical distribution functions of predictive entropy on notMNIST for seven methods",
            draw=lambda theme: _draw(curve, theme),
        )
    ]


def _draw(curve: pd.DataFrame, theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.6))
    axis = figure.subplots()
    handles = []
    for method, label in METHODS.items():
        mine = curve[curve["method"] == method]
        if not len(mine):
            continue
        family, rank = FAMILIES.get(method, ("other", OTHERS.get(method, 0)))
        handles += axis.plot(
            mine["entropy"], mine["cdf"], label=label, color=theme.families[family][rank], linestyle=LINES[rank]
        )
    axis.set(xlabel="Predictive entropy (nats)", ylabel="Share of letters at or below", ylim=(0, 1.02), xlim=(0, None))
    legend(figure, handles, columns=4)
    return figure


def _claim(better: str, worse: str) -> Claim:
    return Claim(
        name=f"{better}-surer-less-than-{worse}",
        text=f"{METHODS[better]} is sure of fewer letters than {METHODS[worse]}.",
        part="mnist",
        left=Of(row=better, column=SURE),
        right=Of(row=worse, column=SURE),
        direction="less",
        rule="welch",
    )


EXPERIMENTS = (
    Experiment(
        name="fig4", title="predictive entropy on notMNIST", paper="csgmcmc", where="Fig. 4", order=9,
        parts=(
            Part(
                name="mnist", label="MNIST → notMNIST", data=lambda scale: ("mnist", "notmnist"),
                sampled=lambda scale: [Sampled(preset=preset(scale), evaluations=(Evaluated(measures=("ood",)),))],
                tables=tables,
            ),
        ),
        rows=lambda scale: [Heading(name, label) for name, label in METHODS.items()],
        columns=lambda scale: (
            Heading(SURE, "Letters below half a nat", "%", 1), Heading("entropy", "Mean entropy", "nats", 3),
        ),
        claims=tuple(
            _claim(*pair)
            for pair in (
                *((ours, other) for ours in ("csgld", "csghmc") for other in ("sgld", "sghmc", "snapshot-sgdm", "sgd", "sgdm")),
                ("sgld", "sgd"), ("sghmc", "sgdm"), ("snapshot-sgdm", "sgdm"),
            )
        ),
        settings=lambda scale: (
            Setting(name="network", value="MLP 784-400-400-10", origin="ours"),
            Setting(name="epochs", value=str(LENGTHS[scale]["epochs"]), origin="ours"),
            Setting(name="M, samples a cycle", value="4, 3" if scale != "smoke" else "2, 2", origin="ours"),
            Setting(name="step sizes, batch, λ", value="docs/tasks.md, docs/presets.md", origin="ours"),
            Setting(name="T", value="1", origin="ours"),
            Setting(name="repeats", value=str(LENGTHS[scale]["repeats"]), origin="ours"),
        ),
        differences=lambda scale: (
            "The paper says three fully connected layers and gives no other setting of this experiment: all of them are ours.",
            "Letters are the 10,000 of the notMNIST sample, not the whole set.",
            "The paper shows curves and no numbers; the share below half a nat is where they differ most.",
        ),
        figures=figures,
        hours={"smoke": 0.01, "cpu": 0.3, "gpu": 0.3, "paper": 0.2},
    ),
)  # fmt: skip
