"""Learning curves: the training loss of every chain of one repeat, with the borders of the cycles."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from raychains import schedules
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.layout import entry, legend, log_axis, panels
from raychains.plotting.style import MUTED, Drawing, records

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
        draw=lambda: _draw(run, curves),
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


def _draw(run: RunData, curves: list[Curve]) -> Figure:
    families = list(dict.fromkeys(a.schedule for a in run.comparison.arms))
    samplers = {arm.name: i for i, panel in enumerate(run.arm_styles.panels) for arm in panel.arms}
    figure, axes = panels(len(families), len(run.arm_styles.panels), 2.2, sharex=True, sharey=True)
    borders: set[tuple[int, int, float]] = set()
    for spec, arm, x, y in curves:
        row, column = families.index(arm.schedule), samplers[arm.name]
        colour = run.arm_styles[arm].colour
        axes[row][column].plot(x, y, color=colour, linewidth=0.9, alpha=0.75, marker="." if len(x) == 1 else "")
        count = schedules.build(spec.schedule).cycle_count
        borders |= {(row, column, k * -(-spec.steps // count) / spec.steps_per_epoch) for k in range(1, count)}
    for row, column, epoch in sorted(borders):
        axes[row][column].axvline(epoch, color=MUTED, linestyle=":", linewidth=0.9, zorder=1)
    losses = np.concatenate([y[np.isfinite(y) & (y != 0)] for *_, y in curves])
    positive = len(losses) > 0 and losses.min() > 0  # a density's NLL may be negative
    for family, row_of in zip(families, axes, strict=True):
        for axis, panel in zip(row_of, run.arm_styles.panels, strict=True):
            if positive:
                axis.set_yscale("log")
                log_axis(axis.yaxis, subs=(1.0,) if losses.max() > 100 * losses.min() else (1.0, 2.0, 5.0))
            axis.margins(x=0.01)
            axis.set_title(f"{panel.title}, {family} step size")
        row_of[0].set_ylabel("Training NLL (nats)")
    for axis in axes[-1]:
        axis.set_xlabel("Epoch")
    legend(figure, [entry(s.label, color=s.colour) for s in run.arm_styles.among(arm for _, arm, _, _ in curves)])
    return figure
