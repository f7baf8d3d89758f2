"""Fig. 3a: a map of 12 samples in weight space, which form a cluster per cycle under cyclical steps and one otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.analyses.diversity import matrix
from raychains.analyses.drawn import thinned
from raychains.evaluation.base import Array
from raychains.evaluation.diversity import clusters
from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of, Summary
from raychains.published.csgmcmc import cifar
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Tables, Value
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import legend
from raychains.report.looks import Look
from raychains.report.style import WIDTH, Drawing, Theme, marker

ROWS = {"csgld": "cSGLD", "sgld": "SGLD"}
LOOKS = {"csgld": Look("cyclical", 0, "cSGLD"), "sgld": Look("decreasing", 1, "SGLD")}
COLUMNS = {"clusters": "Clusters", "distance": "Mean distance", "apart": "Distance between cycles / inside"}


def preset(dataset: str, scale: str) -> Preset:
    """One chain of each: Table 1's."""
    variants = [cifar.variant(row, row, scale) for row in ROWS]
    return cifar.preset("fig3a", "12 samples in weight space", dataset, scale, variants)


def part(dataset: str, **more: Any) -> Part:
    """The figure on one data set."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        size = cifar.SIZES[scale]
        cells, points = [], []
        for row in ROWS:
            arm = run.arm(row).name
            for repeat in range(size.repeats):
                about = {"part": dataset, "row": row, "repeat": repeat}
                mine = _few(_of(run.table("embedding"), arm, repeat), 3 * size.cycles)
                distance = _distances(_of(run.table("distances"), arm, repeat), mine)
                digest = run.digests(row, repeat)
                # What is no cycle is as many samples in a row.
                group = mine["cycle"].to_numpy() if row == "csgld" else np.arange(len(mine)) * size.cycles // len(mine)
                for column, value in figures_of(distance, group).items():
                    cells.append(cell(dataset, row, column, repeat, value, digests=digest, samples=len(mine)))
                points += [
                    {**about, "index": int(i), "group": int(g), "x": float(x), "y": float(y), "stress": float(stress)}
                    for i, g, x, y, stress in zip(
                        mine["index"], group, mine["x"], mine["y"], mine["stress"], strict=True
                    )
                ]
        return {"cells": cells, "map": points}

    return Part(
        name=dataset, label=cifar.LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [
            Sampled(preset=preset(dataset, scale), evaluations=(Evaluated(measures=("diversity",)),))
        ],
        tables=tables, **more,
    )  # fmt: skip


def _of(table: pd.DataFrame, arm: str, repeat: int) -> pd.DataFrame:
    return table[(table["arm"] == arm) & (table["group"] == repeat)]


def _few(samples: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many of a chain's samples, evenly spread, in order."""
    ordered = samples.sort_values("sample")
    return ordered.iloc[thinned(range(len(ordered)), most)]


def _distances(pairs: pd.DataFrame, mine: pd.DataFrame) -> Array:
    """Between the chosen samples, [samples, samples]."""
    records: list[dict[str, Any]] = pairs.astype({"i": int, "j": int}).to_dict("records")
    chosen = mine["sample"].to_numpy().astype(int)
    return matrix(records, "distance")[np.ix_(chosen, chosen)]


def figures_of(distance: Array, group: Array) -> dict[str, float]:
    """Number of clusters, mean distance of all pairs, and that between groups over that inside.

    Args:
        distance: ‖θ_i − θ_j‖, [samples, samples].
        group: of each sample, [samples]: its cycle.
    """
    above = np.triu(np.ones(distance.shape, dtype=bool), 1)
    same = np.equal.outer(group, group)
    return {
        "clusters": float(clusters(distance).count),
        "distance": float(distance[above].mean()),
        "apart": float(distance[above & ~same].mean() / distance[above & same].mean()),
    }


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """The first repeat's map of every part that was run."""
    points = tables.get("map")
    if points is None or not len(points):
        return []
    points = points[points["repeat"] == points["repeat"].min()]
    stress = float(points["stress"].max())
    return [
        Drawing(
            name="map", title="Samples in weight space",
            caption=(
                "Samples of one chain of each method, placed so that distances in the map are those of all parameters as nearly "
                f"as a plane can show them (metric multidimensional scaling, stress {stress:.2f}). Numbers are cycles. Every "
                "repeat has a map of its own; the first one's is shown."
            ),
            alt="A map of the samples of cSGLD and SGLD in weight space",
            draw=lambda theme: _draw(points, theme),
        )
    ]  # fmt: skip


def _draw(points: pd.DataFrame, theme: Theme) -> Figure:
    parts = list(dict.fromkeys(points["part"]))
    figure = Figure(figsize=(WIDTH, 0.6 + (4.4 if len(parts) == 1 else 8 / len(parts))))
    ((*axes,),) = figure.subplots(1, len(parts), squeeze=False)
    for axis, name in zip(axes, parts, strict=True):
        for row, look in LOOKS.items():
            mine = points[(points["part"] == name) & (points["row"] == row)]
            axis.plot(mine["x"], mine["y"], linestyle="", marker=marker(look), color=theme.colour(look), markersize=6)
            for g, some in mine.groupby("group") if row == "csgld" else ():
                x, y = some["x"].mean(), some["y"].mean()
                axis.annotate(str(int(g) + 1), (x, y), xytext=(7, 7), textcoords="offset points", color=theme.ink)
        axis.set_title(cifar.LABELS[name])
        axis.set_xlabel("First axis (unit of the weights)")
        axis.set_aspect("equal", adjustable="datalim")
        axis.margins(0.1)
    axes[0].set_ylabel("Second axis (unit of the weights)")
    handles = [
        Line2D([], [], color=theme.colour(look), marker=marker(look), linestyle="", markersize=6, label=look.label)
        for look in LOOKS.values()
    ]
    legend(figure, handles)
    return figure


def claims(dataset: str, scales: tuple[str, ...]) -> list[Claim]:
    """What the paper reads from the figure."""
    where, real = cifar.LABELS[dataset], tuple(s for s in scales if s != "smoke")

    def counts(row: str, n: int) -> Claim:
        return Claim(
            name=f"{row}-{n}-clusters-{dataset}", text=f"12 samples of {ROWS[row]} form {n} cluster{'s' * (n > 1)} on {where}.",
            part=dataset, left=Of(row=row, column="clusters"), right=float(n), direction="equal", tolerance=0.5,
            rule="one-sample", scales=real,
        )  # fmt: skip

    def larger(column: str, text: str) -> Claim:
        return Claim(
            name=f"csgld-larger-{column}-{dataset}", text=f"{text} on {where}.", part=dataset, direction="greater",
            left=Of(row="csgld", column=column), right=Of(row="sgld", column=column), rule="welch", scales=scales,
        )  # fmt: skip

    return [
        counts("csgld", 4), counts("sgld", 1),
        larger("distance", "Samples of cSGLD are further apart than those of SGLD"),
        larger(
            "apart", "Samples of several cycles of cSGLD are further apart, against those of one, than early and late ones of SGLD"
        ),
    ]  # fmt: skip


def differences(scale: str) -> list[str]:
    made = cifar.differences(scale)
    if scale != "smoke":
        made += [
            "The paper does not say which of its samplers the map shows: ours are SGLD and cSGLD. 12 of SGLD's 20 samples, "
            "evenly spread, are taken; three in a row count as a cycle.",
            "The paper counts clusters by eye; ours are counted on the distances by their silhouette, one where none of 2 to "
            "6 exceeds 0.5. A chain that drifts without stopping may pass for two.",
        ]
    if scale in ("cpu", "gpu"):
        made.append("The paper's figure is of CIFAR-100; CIFAR-10 stands in for it with Table 1's chains.")
    return made


EXPERIMENTS = (
    Experiment(
        name="fig3a", title="12 samples in weight space", paper="csgmcmc", where="Fig. 3a", order=3.1,
        parts=(
            part("cifar100", scales=cifar.WHOLE),
            part("cifar10", stands_for="CIFAR-100", scales=cifar.STAND_IN),
        ),
        rows=lambda scale: [Heading(key, label) for key, label in ROWS.items()],
        columns=lambda scale: [Heading(key, label) for key, label in COLUMNS.items()],
        values=tuple(
            Value(
                part="cifar100", row=row, column="clusters", text=str(n), summary=Summary(mean=n, se=float("nan"), n=0),
                source="Zhang et al. 2020, §5.2",
            )
            for row, n in (("csgld", 4), ("sgld", 1))
        ),
        claims=(*claims("cifar100", cifar.WHOLE), *claims("cifar10", cifar.STAND_IN)),
        settings=cifar.settings,
        differences=differences,
        hours=cifar.hours({"smoke": 8, "cpu": 6.5, "gpu": 4, "paper": 6}),
        figures=figures,
    ),
)  # fmt: skip
