"""Loss around the last samples, and between θ and θₐ (§6.3, Fig. 5; D.2, Figs. 9 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains.published.claims import Claim, Direction, Of
from raychains.published.csgmcmc.paths import hill
from raychains.published.emcmc import basins, chains
from raychains.published.emcmc.basins import LABELS, LOOKS, ROWS, Last, Measured
from raychains.published.emcmc.table1 import rule
from raychains.published.experiment import Experiment, Rows, Setting, Tables
from raychains.published.found import Found
from raychains.published.tables import Heading
from raychains.report.figures.layout import handle, legend, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line

SIZES = {
    "smoke": (1, (0.0, 4.0), 3), "cpu": (3, (0.0, 2.0, 4.0, 6.0, 8.0, 10.0), 11),
    "gpu": (3, (0.0, 4.0, 8.0, 12.0, 16.0, 20.0), 11), "paper": (10, (0.0, 4.0, 8.0, 12.0, 16.0, 20.0), 11),
}  # fmt: skip
"""Random directions, Euclidean distances along them, points between θ and θₐ."""
SAME_MODE = 1.0
"""Per cent by which the error may rise between θ and θₐ in one mode."""


def tables(part: str, scale: str, found: Sequence[Found]) -> Tables:
    """Training NLL and test error along random directions and between the variables, and their means."""
    (run,) = found
    directions, distances, points = SIZES[scale]

    ends = basins.last(run)
    anchors = {one.repeat: one for one in ends if one.row == "emcmc-anchor"}

    def between(bench: Measured, one: Last) -> list[dict[str, Any]]:
        other = anchors[one.repeat]
        return [
            {**one.about(part), "other": other.record.sha256, "t": t, **_both(bench, (1 - t, one), (t, other))}
            for t in np.linspace(0, 1, points).tolist()
        ]

    far = "-".join(f"{d:g}" for d in distances)
    around = basins.of_each(
        run, f"around-{directions}-to-{far}", ends, lambda bench, one: _around(part, bench, one, directions, distances)
    )
    line_ = basins.of_each(run, f"between-{points}", [one for one in ends if one.row == "emcmc-theta"], between)
    cells = basins.cells(
        part, around, {"train": lambda mine: _mean(mine, "train_nll"), "test": lambda mine: _mean(mine, "test_error")}
    )
    risen = basins.cells(part, [{**r, "row": "emcmc"} for r in line_], {"rise": rise})
    return {"cells": [*cells, *risen], "around": around, "between": line_}


def _around(part: str, bench: Measured, one: Last, directions: int, distances: Sequence[float]) -> list[dict[str, Any]]:
    """A direction's entries are standard normal: its length is nearly the root of their number."""
    unit = math.sqrt(bench.parameters)
    here = _both(bench, (1.0, one))
    return [
        {
            **one.about(part), "direction": seed, "distance": far,
            **(_both(bench, (1.0, one), directions=((far / unit, seed),), normalise="none") if far else here),
        }
        for seed in range(directions)
        for far in distances
    ]  # fmt: skip


def _both(bench: Measured, *parts: tuple[float, Last], **settings: Any) -> dict[str, float]:
    """Training and test NLL in nats, test error in per cent."""
    train, test = (bench.at(split, *parts, **settings) for split in ("train", "test"))
    return {"train_nll": train["nll"], "test_nll": test["nll"], "test_error": 100 * test["error"]}


def _mean(rows: Rows, name: str) -> float:
    return float(np.mean([r[name] for r in rows]))


def rise(rows: Rows) -> float:
    """The most that the error between θ and θₐ rises above the straight line between its ends, in per cent; at least 0."""
    return hill([r["test_error"] for r in sorted(rows, key=lambda r: r["t"])])


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """The paper's three panels, a row for each part."""
    if "around" not in tables:
        return []
    around, between = tables["around"], tables["between"]
    return [
        Drawing(
            name="around",
            title="Around the last samples, and between θ and θₐ",
            caption="Left and middle: training NLL and test error at Euclidean distances from the last sample in random directions, "
            "mean over directions and repeats, bands ± one standard deviation over repeats. Right: test error on the line from θ "
            "(0) to θₐ (1); thin: each repeat.",
            alt="Training NLL and test error against distance for SGD, SGLD and both variables of Entropy-MCMC, and test error "
            "between its variables",
            draw=lambda theme: _draw(around, between, theme),
        )
    ]


def _draw(around: pd.DataFrame, between: pd.DataFrame, theme: Theme) -> Figure:
    parts = list(dict.fromkeys(around["part"]))
    figure, axes = panels(len(parts), 3, 2.8)
    for (left, middle, right), name in zip(axes, parts, strict=True):
        for axis, metric, label in (
            (left, "train_nll", "Training NLL (nats)"),
            (middle, "test_error", "Test error (%)"),
        ):
            for row, look in LOOKS.items():
                mine = around[(around["part"] == name) & (around["row"] == row)]
                table = mine.groupby(["repeat", "distance"])[metric].mean().unstack()
                mean, sd = table.mean(), table.std(ddof=1).fillna(0)
                axis.plot(mean.index, mean, color=theme.colour(look), linestyle=line(look))
                axis.fill_between(mean.index, mean - sd, mean + sd, color=theme.colour(look), alpha=0.13, linewidth=0)
            axis.set(xlabel="Distance", ylabel=label, title=LABELS[name] if axis is left else "")
        colour = theme.colour(Look("cyclical", 0, ""))
        mine = between[between["part"] == name]
        for _, one in mine.groupby("repeat"):
            right.plot(one["t"], one["test_error"], color=colour, linewidth=0.6, alpha=0.5)
        mean = mine.groupby("t")["test_error"].mean()
        right.plot(mean.index, mean, color=colour, linewidth=1.8)
        right.set(xlabel="t, from θ (0) to θₐ (1)", ylabel="Test error (%)")
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=4)
    return figure


OF_ANCHOR: Sequence[tuple[str, str, str, Direction]] = (
    ("train", "Training NLL", "larger", "greater"), ("test", "Test error", "lower", "less"),
)  # fmt: skip
"""What D.2 says of θₐ beside θ."""


def _claims(part: str) -> list[Claim]:
    scales = ("smoke", "cpu") if part == "cifar10" else ("cpu", "gpu", "paper")
    where = LABELS[part]
    made = [
        Claim(
            name=f"{column}-below-{other}-{part}", part=part, direction="less", rule=rule(other), scales=scales,
            text=f"{what} around Entropy-MCMC's samples is below that around {ROWS[other]}'s on {where}.",
            left=Of(row="emcmc", column=column), right=Of(row=other, column=column),
        )
        for column, what in (("train", "Training NLL"), ("test", "Test error"))
        for other in ("sgd", "sgld")
    ]  # fmt: skip
    made += [
        Claim(
            name=f"anchor-{word}-{column}-{part}", part=part, direction=direction, rule="paired", scales=scales,
            text=f"{what} around θₐ is {word} than around θ on {where}.",
            left=Of(row="emcmc-anchor", column=column), right=Of(row="emcmc-theta", column=column),
        )
        for column, what, word, direction in OF_ANCHOR
    ]  # fmt: skip
    made.append(
        Claim(
            name=f"same-mode-{part}", part=part, direction="less", rule="one-sample", scales=scales,
            text=f"θ and θₐ lie in one mode: the error rises by less than {SAME_MODE:g} % between them on {where}.",
            left=Of(row="emcmc", column="rise"), right=SAME_MODE,
        )
    )  # fmt: skip
    return made


def settings(scale: str) -> list[Setting]:
    directions, distances, points = SIZES[scale]
    return [
        *chains.settings(scale),
        Setting(name="random directions", value=str(directions), origin="published" if scale == "paper" else "ours"),
        Setting(name="distances", value=", ".join(f"{d:g}" for d in distances), origin="ours"),
        Setting(name="points between θ and θₐ", value=str(points), origin="ours"),
    ]


def differences(scale: str) -> list[str]:
    made = basins.differences(scale)
    if scale != "smoke":
        made.append(
            "How far the paper goes is not readable in our text. Directions are standard normal over all parameters, distances "
            "Euclidean, the same of all methods; the table has the mean along the lines."
        )
    return made


EXPERIMENTS = (
    Experiment(
        name="emcmc-fig5", title="loss around samples, and between θ and θₐ", paper="emcmc", where="Fig. 5", order=25,
        parts=tuple(basins.part(dataset, tables) for dataset in LABELS),
        rows=basins.headings,
        columns=lambda scale: (
            Heading("train", "Training NLL along random lines", "nats", 3), Heading("test", "Test error along them", "%", 2),
            Heading("rise", "Rise of the error between θ and θₐ", "%", 2),
        ),
        absent="only Entropy-MCMC has two variables",
        claims=tuple(c for part in LABELS for c in _claims(part)),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.002, "cpu": 0.14, "gpu": 3, "paper": 6},
        revision=basins.REVISION,
        figures=figures,
    ),
)  # fmt: skip
