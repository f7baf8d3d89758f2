"""Fig. 3b: test error on the line between two samples: a hill between neighbouring cycles, none inside a decreasing chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of
from raychains.published.csgmcmc import cifar
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line

ROWS = {"csgld": "cSGLD, neighbouring cycles", "csgld-inside": "cSGLD, inside a cycle", "sgld": "SGLD"}
KINDS = {
    "csgld": ("csgld", "neighbouring cycles"),
    "csgld-inside": ("csgld", "inside a cycle"),
    "sgld": ("sgld", "inside a cycle"),
}
"""The preset's variant, and what the ends of its lines are to each other."""
LOOKS = {
    "csgld": Look("cyclical", 0, ROWS["csgld"]), "csgld-inside": Look("cyclical", 2, ROWS["csgld-inside"]),
    "sgld": Look("decreasing", 1, ROWS["sgld"]),
}  # fmt: skip
COLUMNS = {"hill": "Hill", "ends": "Error of the samples"}
CHAINS = {"smoke": 2, "cpu": 3, "gpu": 3, "paper": 3}
"""Independent chains, which stand for repeats."""


def preset(dataset: str, scale: str) -> Preset:
    """cSGLD's chains are Table 2's; SGLD's differ from them in the samples that they keep."""
    n = CHAINS[scale]
    variants = [
        cifar.variant("csgld", "csgld", scale, chains=n),
        cifar.variant("sgld", "sgld", scale, chains=n, **cifar.apart(scale)),
    ]
    return cifar.preset("fig3b", "test error between two samples", dataset, scale, variants, repeats=1)


def part(dataset: str, **more: Any) -> Part:
    """The figure on one data set."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        lines = run.table("interpolation")
        cells, paths = [], []
        for row, (variant, kind) in KINDS.items():
            mine = lines[(lines["arm"] == run.arm(variant).name) & (lines["kind"] == kind)]
            digests = run.digests(variant, 0).split()
            paths += [
                {
                    "part": dataset, "row": row, "chain": int(p["chain_from"]), "pair": int(p["pair"]),
                    "from": int(p["index_from"]), "to": int(p["index_to"]), "t": p["t"], "error": 100 * p["error"],
                    "nll": p["nll"],
                    "digest": digests[int(p["chain_from"])],
                }
                for p in mine.to_dict("records")
            ]  # fmt: skip
            for chain, digest in enumerate(digests):
                of = [p for p in paths if p["row"] == row and p["chain"] == chain]
                pairs = [_sorted(of, pair) for pair in sorted({p["pair"] for p in of})]
                for column, values in (
                    ("hill", [hill(p) for p in pairs]),
                    ("ends", [(p[0] + p[-1]) / 2 for p in pairs]),
                ):
                    value = float(np.mean(values)) if values else float("nan")
                    cells.append(cell(dataset, row, column, chain, value, digests=digest, samples=2 * len(pairs)))
        return {"cells": cells, "paths": paths}

    return Part(
        name=dataset, label=cifar.LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [
            Sampled(preset=preset(dataset, scale), evaluations=(Evaluated(measures=("interpolation",)),))
        ],
        tables=tables, **more,
    )  # fmt: skip


def _sorted(points: Sequence[Mapping[str, Any]], pair: int) -> np.ndarray[Any, Any]:
    """A line's errors in their order."""
    return np.array([p["error"] for p in sorted(points, key=lambda p: p["t"]) if p["pair"] == pair])


def hill(errors: Any) -> float:
    """The most that the error at equally spaced points rises above the straight line between its ends; at least 0.

    Args:
        errors: [points], from one sample to the other.
    """
    e = np.asarray(errors, dtype=float)
    return float((e - np.linspace(e[0], e[-1], len(e))).max())


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Error along every line, and the mean of each kind."""
    paths = tables.get("paths")
    if paths is None or not len(paths):
        return []
    return [
        Drawing(
            name="paths", title="Test error between two samples",
            caption=(
                "Test error of the single network (1 − t)·θ₁ + t·θ₂. Thin: each pair; thick: their mean. A hill between the "
                "ends says that they lie in different modes."
            ),
            alt="Test error against the position on the line between two samples of cSGLD and of SGLD",
            draw=lambda theme: _draw(paths, theme),
        )
    ]  # fmt: skip


def _draw(paths: pd.DataFrame, theme: Theme) -> Figure:
    parts = list(dict.fromkeys(paths["part"]))
    figure, ((*axes,),) = panels(1, len(parts), 3.4, sharex=True)
    for axis, name in zip(axes, parts, strict=True):
        for row, look in LOOKS.items():
            mine = paths[(paths["part"] == name) & (paths["row"] == row)]
            for _, pair in mine.groupby(["chain", "pair"]):
                axis.plot(pair["t"], pair["error"], color=theme.colour(look), linewidth=0.7, alpha=0.45)
            mean = mine.groupby("t")["error"].mean()
            axis.plot(mean.index, mean, color=theme.colour(look), linestyle=line(look), linewidth=2)
        axis.set_title(cifar.LABELS[name])
        axis.set_xlabel("t, from θ₁ (0) to θ₂ (1)")
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0].set_ylabel("Test error (%)")
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=3)
    return figure


def claims(dataset: str, scales: tuple[str, ...]) -> list[Claim]:
    """What the paper reads from the figure."""
    where = cifar.LABELS[dataset]

    def above(name: str, left: Of, right: Of, text: str) -> Claim:
        return Claim(
            name=f"{name}-{dataset}", text=f"{text} on {where}.", part=dataset, left=left, right=right, direction="greater",
            rule="welch", scales=scales,
        )  # fmt: skip

    return [
        above(
            "higher-hill", Of(row="csgld", column="hill"), Of(row="sgld", column="hill"),
            "The error rises more between neighbouring cycles of cSGLD than between samples of SGLD",
        ),
        above(
            "worse-single-samples", Of(row="csgld", column="ends"), Of(row="sgld", column="ends"),
            "A single sample of cSGLD has a higher error than one of SGLD",
        ),
    ]  # fmt: skip


def settings(scale: str) -> list[Setting]:
    more = (
        Setting(name="chains", value=f"{CHAINS[scale]} of each, which count as repeats", origin="ours"),
        Setting(name="points on a line", value="11", origin="ours"),
    )
    if scale == "smoke":
        return [*cifar.settings(scale), *more]
    own = ("repeats", "decreasing: noise and samples")
    of_sgld = [
        Setting(name="SGLD: noise", value="the last 50 of 200 epochs", origin="published"),
        Setting(name="SGLD: samples", value="4, 12 epochs apart", origin="ours"),
    ]
    return [*(s for s in cifar.settings(scale) if s.name not in own), *more, *of_sgld]


def differences(scale: str) -> list[str]:
    made = cifar.differences(scale)
    if scale != "smoke":
        made += [
            "The paper draws lines between 4 random samples of SG-MCMC, ours join 4 that are spread over the sampling stage, "
            "each with the next; of both methods 6 lines, which a seed chose, are measured.",
            "A hill is the most that the error rises above the straight line between the ends; the paper prints no numbers.",
        ]
    if scale in ("gpu", "paper"):
        made.append("BatchNorm's statistics are estimated anew at every point; the paper does not say what it did.")
    if scale in ("cpu", "gpu"):
        made.append("The paper's figure is of CIFAR-100; CIFAR-10 stands in for it.")
    return made


EXPERIMENTS = (
    Experiment(
        name="fig3b", title="test error between two samples", paper="csgmcmc", where="Fig. 3b", order=3.2,
        parts=(
            part("cifar100", scales=cifar.WHOLE),
            part("cifar10", stands_for="CIFAR-100", scales=cifar.STAND_IN),
        ),
        rows=lambda scale: [Heading(key, label) for key, label in ROWS.items()],
        columns=lambda scale: [Heading(key, label, unit="%") for key, label in COLUMNS.items()],
        claims=(*claims("cifar100", cifar.WHOLE), *claims("cifar10", cifar.STAND_IN)),
        settings=settings,
        differences=differences,
        hours=cifar.hours({"smoke": 4, "cpu": 8, "gpu": 9, "paper": 9}),
        figures=figures,
    ),
)  # fmt: skip
