"""Learning curves: the training loss of every chain of one repeat, with the borders of the cycles."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains import schedules
from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report.figures.layout import handle, legend, log_axis, panels
from raychains.report.looks import Look
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme
from raychains.spec import ChainSpec

Curve = tuple[ChainSpec, Arm, Array, Array]


def drawing(material: Material) -> Drawing | None:
    """None for densities, whose potential is nobody's loss, and before any chain reported."""
    curves = _curves(material)
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
        draw=lambda theme: _draw(material, curves, theme),
        data=[
            {"chain": spec.digest, "arm": arm.name, "epoch": float(epoch), "loss": float(loss)}
            for spec, arm, x, y in curves
            for epoch, loss in zip(x, y, strict=True)
        ],
    )


def _curves(material: Material) -> list[Curve]:
    """The chains of the first group of repeats that reported losses, each once."""
    found: dict[str, Curve] = {}
    for arm in sorted(material.comparison.arms, key=lambda a: -len(a.chains[0])):
        for spec in arm.chains[0]:
            if spec.digest in found:
                continue
            records = [
                (r["step"], r["loss"]) for r in material.chain(spec.digest).progress() if r.get("loss") is not None
            ]
            if records:
                steps, losses = np.array(records, dtype=float).T
                found[spec.digest] = spec, arm, steps / spec.steps_per_epoch, losses
    return list(found.values())


def _draw(material: Material, curves: list[Curve], theme: Theme) -> Figure:
    looks = material.looks
    families = list(dict.fromkeys(a.schedule for a in material.comparison.arms))
    samplers = [p.arms[0].sampler for p in looks.panels]
    figure, axes = panels(len(families), len(samplers), 2.2, sharex=True, sharey=True)
    used: dict[Look, None] = {}
    bordered: set[tuple[int, int, int]] = set()
    for spec, arm, x, y in curves:
        row, column = families.index(arm.schedule), samplers.index(arm.sampler)
        look = looks[arm]
        used[look] = None
        axis = axes[row][column]
        axis.plot(x, np.maximum(y, 1e-12), color=theme.colour(look), linewidth=0.9, alpha=0.75)
        if (row, column, spec.steps) not in bordered:
            bordered.add((row, column, spec.steps))
            _borders(axis, spec, theme)
    decades = np.log10(max(y.max() for *_, y in curves) / max(min(y.min() for *_, y in curves), 1e-12))
    for row, family in enumerate(families):
        for column, panel in enumerate(looks.panels):
            axis = axes[row][column]
            axis.set_yscale("log")
            log_axis(axis.yaxis, subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0))
            axis.margins(x=0.01)
            axis.set_title(f"{panel.title}, {family} step size")
            if row == len(families) - 1:
                axis.set_xlabel("Epoch")
            if column == 0:
                axis.set_ylabel("Training NLL (nats)")
    legend(figure, [handle(theme, look) for look in looks.all() if look in used])
    for legend_ in figure.legends:
        for entry in legend_.get_lines():
            entry.set_linestyle("-")
    return figure


def _borders(axis: Axes, spec: ChainSpec, theme: Theme) -> None:
    schedule = schedules.build(spec.schedule)
    if schedule.cycle_count == 1:
        return
    for k in range(1, schedule.cycle_count):
        length = -(-schedule.steps // schedule.cycle_count)
        axis.axvline(k * length / spec.steps_per_epoch, color=theme.muted, linestyle=":", linewidth=0.9, zorder=1)
