"""The cyclical and the decreasing step size (Fig. 1)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.plotting.charts import Axis, Chart, Line, Panel
from raychains.plotting.layout import plain
from raychains.plotting.style import FAMILIES, LINES
from raychains.schedules import Cyclical, Decreasing, Schedule

STEPS, CYCLES, EXPLORATION, LR = 2000, 4, 0.75, 0.1
SCHEDULES: Mapping[str, Schedule] = {
    "cyclical": Cyclical(steps=STEPS, lr=LR, cycles=CYCLES, exploration=EXPLORATION),
    "decreasing": Decreasing.between(steps=STEPS, lr=LR, final_lr=LR / 10, gamma=0.55),
}
LABELS = {"cyclical": "cyclical cosine", "decreasing": "decreasing"}
THINNING = 10
"""Steps between points of the drawn curves."""


def computed(work: rp.Computation) -> rp.Tables:
    """Return both schedules step by step, thinned; their mean step size and how often they restart."""
    cells, points = [], []
    for name, schedule in SCHEDULES.items():
        settings = [schedule.at(k) for k in range(1, STEPS + 1)]
        steps = [s.lr for s in settings]
        restarts = sum(after > before for before, after in itertools.pairwise(steps))
        cells.append(rp.cell(work.part, name, "mean", 0, sum(steps) / STEPS))
        cells.append(rp.cell(work.part, name, "restarts", 0, restarts))
        points += [
            {"schedule": name, "step": k, "lr": s.lr, "stage": s.stage}
            for k, s in enumerate(settings, start=1)
            if k % THINNING == 1
        ]
    return {"cells": cells, "curve": points}


def draw(curve: pd.DataFrame) -> Figure:
    """Draw the paper's figure: step size against iterations, exploration apart from sampling."""
    marks = []
    for name, mine in curve.groupby("schedule", sort=False):
        for (_, stage), one in mine.groupby([(mine["lr"].diff() > 0).cumsum(), "stage"]):
            style = {"color": FAMILIES[name][0], "linestyle": "-" if stage == "sampling" else LINES[1]}
            marks.append(Line(x=one["step"], y=one["lr"], style=style))
    legend = [(label, {"color": FAMILIES[name][0]}) for name, label in LABELS.items()]
    panel = Panel(marks=marks, x=Axis(label="Iteration", text=plain), y=Axis(label="Step size"))
    return Chart(panels=[panel], height=2.4, legend=legend)()


STUDY = rp.Study(
    name="fig1",
    paper="csgmcmc",
    where="Fig. 1",
    title="the cyclical step size",
    hours=(0.001, 0.001, 0.001, 0.001),
    parts=(rp.Part(name="schedules", computed=computed),),
    rows=LABELS,
    columns=(rp.Heading("mean", "Mean step size"), rp.Heading("restarts", "Restarts", decimals=0)),
    settings=lambda scale: (
        rp.Setting("step size", "Eq. 1", rp.PUBLISHED),
        rp.Setting("K, M, β, first step", f"{STEPS:,}, {CYCLES}, {EXPLORATION:g}, {LR:g}", rp.OURS),
        rp.Setting("decreasing", "a (b + k)^-0.55, to a tenth", rp.OURS),
    ),
    differences="""
smoke cpu gpu paper: The paper's figure is a sketch without numbers: K, M and β are ours.
""",
    figures=rp.figure(
        "curve",
        draw,
        name="fig1",
        title="Step sizes",
        caption="Step size against iterations. Dashed: exploration without noise; solid: sampling.",
        alt="A cosine step size that restarts three times, beside one that only falls",
    ),
)
