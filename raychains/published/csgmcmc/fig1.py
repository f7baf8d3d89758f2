"""The cyclical and the decreasing step size (Fig. 1)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from raychains.published.experiment import Experiment, Part, Setting, Tables
from raychains.published.found import cell
from raychains.published.tables import Heading
from raychains.published.work import Work
from raychains.report.figures.layout import COUNT, legend
from raychains.report.style import WIDTH, Drawing, Theme
from raychains.schedules import Cyclical, Decreasing, Schedule

STEPS, CYCLES, EXPLORATION, LR = 2000, 4, 0.75, 0.1
SCHEDULES: Mapping[str, Schedule] = {
    "cyclical": Cyclical(steps=STEPS, lr=LR, cycles=CYCLES, exploration=EXPLORATION),
    "decreasing": Decreasing.between(steps=STEPS, lr=LR, final_lr=LR / 10, gamma=0.55),
}
LABELS = {"cyclical": "cyclical cosine", "decreasing": "decreasing"}
THINNING = 10
"""Steps between points of the drawn curves."""


def computed(work: Work) -> Tables:
    """Both schedules step by step, thinned; their mean step size and how often they restart."""
    cells, points = [], []
    for name, schedule in SCHEDULES.items():
        settings = [schedule.at(k) for k in range(1, STEPS + 1)]
        steps = [s.lr for s in settings]
        cells.append(cell(work.part, name, "mean", 0, sum(steps) / STEPS))
        restarts = sum(after > before for before, after in itertools.pairwise(steps))
        cells.append(cell(work.part, name, "restarts", 0, restarts))
        points += [
            {"schedule": name, "step": k, "lr": s.lr, "stage": s.stage}
            for k, s in enumerate(settings, start=1)
            if k % THINNING == 1
        ]
    return {"cells": cells, "curve": points}


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> Sequence[Drawing]:
    """The paper's figure: step size against iterations, exploration apart from sampling."""
    if "curve" not in tables:
        return []
    curve = tables["curve"]
    return [
        Drawing(
            name="fig1",
            title="Step sizes",
            caption="Step size against iterations. Dashed: exploration without noise; solid: sampling.",
            alt="A cosine step size that restarts four times, beside one that only falls",
            draw=lambda theme: _draw(curve, theme),
        )
    ]


def _draw(curve: pd.DataFrame, theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.9))
    axis = figure.subplots()
    handles = []
    for name in SCHEDULES:
        mine = curve[curve["schedule"] == name]
        colour = theme.families[name][0]
        cycle = (mine["lr"].diff() > 0).cumsum()
        for _, one in mine.groupby(cycle):
            for stage, style in (("exploration", (0, (5, 1.6))), ("sampling", "-")):
                part = one[one["stage"] == stage]
                axis.plot(part["step"], part["lr"], color=colour, linestyle=style)
        handles += axis.plot([], [], color=colour, label=LABELS[name])
    axis.set(xlabel="Iteration", ylabel="Step size")
    axis.xaxis.set_major_formatter(COUNT)
    legend(figure, handles)
    return figure


EXPERIMENTS = (
    Experiment(
        name="fig1", title="the cyclical step size", paper="csgmcmc", where="Fig. 1", order=1,
        parts=(Part(name="schedules", label="", computed=computed),),
        rows=lambda scale: [Heading(name, label) for name, label in LABELS.items()],
        columns=lambda scale: (Heading("mean", "Mean step size"), Heading("restarts", "Restarts", decimals=0)),
        settings=lambda scale: (
            Setting(name="step size", value="Eq. 1", origin="published"),
            Setting(name="K, M, β, first step", value=f"{STEPS:,}, {CYCLES}, {EXPLORATION:g}, {LR:g}", origin="ours"),
            Setting(name="decreasing", value="a (b + k)^-0.55, to a tenth", origin="ours"),
        ),
        differences=lambda scale: ("The paper's figure is a sketch without numbers: K, M and β are ours.",),
        figures=figures,
        hours={"smoke": 0.001, "cpu": 0.001, "gpu": 0.001, "paper": 0.001},
    ),
)  # fmt: skip
