"""Fig. 3b: test error on the line between two samples: a hill between neighbouring cycles, none inside a decreasing
chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.plotting.charts import Axis, Panel

ROWS = {"csgld": "cSGLD, neighbouring cycles", "csgld-inside": "cSGLD, inside a cycle", "sgld": "SGLD"}
KINDS = {
    "csgld": ("csgld", "neighbouring cycles"),
    "csgld-inside": ("csgld", "inside a cycle"),
    "sgld": ("sgld", "inside a cycle"),
}
"""The preset's variant, and the relation between the ends of its lines."""
STYLES = rp.styles(ROWS, "csgld cyclical 0, csgld-inside cyclical 2, sgld decreasing 1")
CHAINS = {"smoke": 2, "cpu": 3, "gpu": 3, "paper": 3}
"""Independent chains, which stand for repeats."""


def preset(dataset: str, scale: str) -> rp.Preset:
    """Return both methods: cSGLD's chains are Table 2's; SGLD's differ from them in the samples that they keep."""
    n = CHAINS[scale]
    variants = [
        cifar.variant("csgld", "csgld", scale, chains=n),
        cifar.variant("sgld", "sgld", scale, chains=n, **cifar.apart(scale)),
    ]
    return cifar.preset("fig3b", "test error between two samples", dataset, scale, variants, repeats=1)


def tables(run: rp.CompletedRun) -> rp.Tables:
    lines = run.table("interpolation")
    cells, paths = [], []
    for row, (variant, kind) in KINDS.items():
        mine = lines[(lines["arm"] == run.arm(variant).name) & (lines["kind"] == kind)]
        digests = run.digests(variant, 0).split()
        for p in mine.to_dict("records"):
            chain = int(p["chain_from"])
            where = {"part": run.part, "row": row, "chain": chain, "pair": int(p["pair"])}
            ends = {"from": int(p["index_from"]), "to": int(p["index_to"]), "t": p["t"]}
            paths.append({**where, **ends, "error": 100 * p["error"], "nll": p["nll"], "digest": digests[chain]})
        for chain, digest in enumerate(digests):
            points = pd.DataFrame([p for p in paths if p["row"] == row and p["chain"] == chain])
            errors = (
                [one.sort_values("t")["error"].to_numpy() for _, one in points.groupby("pair")] if len(points) else []
            )
            sizes = {"hill": [hill(e) for e in errors], "ends": [(e[0] + e[-1]) / 2 for e in errors]}
            for column, values in sizes.items():
                value = float(np.mean(values)) if values else float("nan")
                cells.append(rp.cell(run.part, row, column, chain, value, digests=digest, samples=2 * len(errors)))
    return {"cells": cells, "paths": paths}


def hill(errors: Any) -> float:
    """Return the most that errors [points] at equal spaces rise above the straight line between their ends; at least
    0."""
    e = np.asarray(errors, dtype=float)
    return float((e - np.linspace(e[0], e[-1], len(e))).max())


def _panel(paths: pd.DataFrame) -> Panel:
    """Show the error along every line, and the mean of each kind."""
    pairs = ["chain", "pair"]
    marks = [m for s, of in rp.styled(paths, STYLES) for m in rp.each_and_mean(s, of, pairs, "t", "error")]
    x = Axis(label="t, from θ₁ (0) to θ₂ (1)", ticks={0: "0", 0.5: "0.5", 1: "1"})
    return Panel(marks=marks, x=x, y=Axis(label="Test error (%)"))


CLAIMED = (
    ("higher-hill", "hill", "The error rises more between neighbouring cycles of cSGLD than between samples of SGLD"),
    ("worse-single-samples", "ends", "A single sample of cSGLD has a higher error than one of SGLD"),
)
"""What the paper reads from the figure."""


def settings(scale: str) -> list[rp.Setting]:
    own = () if scale == "smoke" else ("repeats", "decreasing: noise and samples")
    made = [s for s in cifar.settings(scale) if s.name not in own]
    made.append(rp.Setting("chains", f"{CHAINS[scale]} of each, which count as repeats", rp.OURS))
    made.append(rp.Setting("points on a line", "11", rp.OURS))
    if scale == "smoke":
        return made
    made.append(rp.Setting("SGLD: noise", "the last 50 of 200 epochs", rp.PUBLISHED))
    return [*made, rp.Setting("SGLD: samples", "4, 12 epochs apart", rp.OURS)]


STUDY = rp.Study(
    name="fig3b",
    paper="csgmcmc",
    where="Fig. 3b",
    title="test error between two samples",
    needs=("cifar100", "cifar10"),
    hours=(0.0008, 0.16, 2, 4),
    parts=cifar.parts(preset, cifar.OF_FIGURES, tables, measures=("interpolation",)),
    rows=ROWS,
    columns=(rp.Heading("hill", "Hill", "%"), rp.Heading("ends", "Error of the samples", "%")),
    claims=rp.stated(
        f"{name}-{dataset} | {dataset} {column} | csgld > sgld | {text} on {cifar.LABELS[dataset]}."
        for dataset in cifar.OF_FIGURES
        for name, column, text in CLAIMED
    ),
    settings=settings,
    differences=cifar.DIFFERENCES
    + """
cpu gpu paper: The paper draws lines between 4 random samples of SG-MCMC, ours join 4 that are spread over the
    sampling stage, each with the next; of both methods 6 lines, which a seed chose, are measured.
cpu gpu paper: A hill is the most that the error rises above the straight line between the ends; the paper prints no
    numbers.
gpu paper: BatchNorm's statistics are estimated anew at every point; the paper does not say what it did.
cpu gpu: The paper's figure is of CIFAR-100; CIFAR-10 stands in for it.
""",
    figures=rp.figure(
        "paths",
        rp.by_part(cifar.LABELS, _panel, height=3.4),
        name="paths",
        title="Test error between two samples",
        caption="Test error of the single network (1 − t)·θ₁ + t·θ₂. Thin: each pair; thick: their mean. A hill "
        "between the ends says that they lie in different modes.",
        alt="Test error against the position on the line between two samples of cSGLD and of SGLD",
    ),
)
