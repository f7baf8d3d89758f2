"""Learning curves: the training loss of every chain of one repeat, with the borders of the cycles."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from raychains import schedules
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.charts import DOTTED, Axis, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import Drawing, records

Curve = tuple[ChainSpec, Arm, Array, Array]


def drawing(run: RunData) -> Drawing | None:
    """None for densities, whose potential is no training loss, and before any chain reported."""
    curves = _curves(run)
    if not curves:
        return None
    return Drawing(
        name="learning",
        title="Learning curves",
        caption=(
            "Mean minibatch loss of each epoch on the training data, one line per chain of the first "
            "repeat. Dotted lines are the borders of the cycles, where the step size restarts. A chain "
            "that several arms share is drawn in the colour of the arm with the most chains."
        ),
        alt="Training loss against epoch for every chain, by sampler and schedule",
        draw=_chart(run, curves),
        data=[
            row
            for spec, arm, x, y in curves
            for row in records({"chain": spec.digest, "arm": arm.name, "epoch": x, "loss": y})
        ],
    )


def _curves(run: RunData) -> list[Curve]:
    """The chains of the first group of repeats that reported losses, each once."""
    found: dict[str, Curve] = {}
    for arm in sorted(run.comparison.arms, key=lambda a: -len(a.chains[0])):
        for spec in arm.chains[0]:
            if spec.digest not in found and (records := run.losses(spec)):
                steps, losses = np.array(records, dtype=float).T
                found[spec.digest] = spec, arm, steps / spec.steps_per_epoch, losses
    return list(found.values())


def _chart(run: RunData, curves: list[Curve]) -> Chart:
    losses = np.concatenate([y[np.isfinite(y) & (y != 0)] for *_, y in curves])
    scale = "log" if len(losses) and losses.min() > 0 else "linear"  # a density's NLL may be negative
    shown = []
    for family, panel in product(dict.fromkeys(a.schedule for a in run.comparison.arms), run.arm_styles.panels):
        marks, borders = list[Mark](), set[float]()
        for spec, arm, x, y in curves:
            if arm.schedule == family and arm in panel.arms:
                style = run.arm_styles[arm]
                thin = {"color": style.colour, "linewidth": 0.9, "alpha": 0.75}
                marks.append(Line(x=x, y=y, style=thin))
                count = schedules.build(spec.schedule).cycle_count
                borders |= {k * -(-spec.steps // count) / spec.steps_per_epoch for k in range(1, count)}
        marks += [Rule(at=epoch, upright=True, style=DOTTED) for epoch in sorted(borders)]
        y_axis = Axis(label="Training NLL (nats)", scale=scale)
        shown.append(Panel(marks=marks, x=Axis(label="Epoch"), y=y_axis, title=f"{panel.title}, {family} step size"))
    legend = [(style.label, {"color": style.colour}) for style in run.arm_styles.among(arm for _, arm, _, _ in curves)]
    of: Any = {"share_x": True, "share_y": True, "legend": legend, "legend_columns": 2}
    return Chart(panels=shown, columns=len(run.arm_styles.panels), height=2.2, **of)
