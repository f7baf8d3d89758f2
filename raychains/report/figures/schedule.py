"""Step size against training time (cSG-MCMC's Figure 1): dashed without noise, solid while sampling."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains import schedules
from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report.figures.layout import COUNT, legend, panels
from raychains.report.looks import Look, Panel
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme
from raychains.spec import Part

POINTS = 3000
"""Most points of a drawn curve."""
MARKS = 200
"""Most kept draws that are marked one by one."""


class Trace(NamedTuple):
    """A schedule step by step, thinned for drawing."""

    step: Array
    lr: Array
    sampling: Array
    cycle: Array
    kept_step: Array
    kept_lr: Array


def drawing(material: Material) -> Drawing:
    """One panel per sampler, one curve per schedule."""
    dense = any(len(trace(a.chains[0][0].schedule).kept_step) > MARKS for a in material.comparison.arms)
    kept = "Draws are kept throughout the sampling stage" if dense else "Upright strokes are the kept draws"
    return Drawing(
        name="schedules",
        title="Step sizes and stages",
        caption=(
            "Step size on the mean-loss scale (lr of torch.optim.SGD; the papers' step is lr/N). Dashed: "
            f"exploration or burn-in without noise; solid: sampling. {kept}."
        ),
        alt=f"Step size against {material.comparison.unit} for every schedule of the run, with its stages",
        draw=lambda theme: _draw(material, theme),
        data=[row for panel in material.looks.panels for _, arm in _schedules(material, panel) for row in _points(arm)],
    )


def _points(arm: Arm) -> list[dict[str, Any]]:
    """One schedule's curve, as it is drawn."""
    spec = arm.chains[0][0]
    curve = trace(spec.schedule)
    kept = set(curve.kept_step.tolist())
    return [
        {
            "arm": arm.name,
            "step": int(step),
            "epoch": step / spec.steps_per_epoch,
            "lr": float(lr),
            "sampling": bool(sampling),
            "cycle": int(cycle),
            "kept": int(step) in kept,
        }
        for step, lr, sampling, cycle in zip(curve.step, curve.lr, curve.sampling, curve.cycle, strict=True)
    ]


@lru_cache(maxsize=64)
def trace(part: Part) -> Trace:
    """The curve of a schedule and the steps after which it keeps a draw."""
    schedule = schedules.build(part)
    settings = [schedule.at(k) for k in range(1, schedule.steps + 1)]
    kept = np.array([k for k, s in enumerate(settings, start=1) if s.keep], dtype=int)
    lr = np.array([s.lr for s in settings])
    sampling = np.array([s.stage == schedules.SAMPLING for s in settings])
    cycle = np.array([s.cycle for s in settings])
    # The steps at which anything changes are always among those drawn.
    change = np.flatnonzero((np.diff(cycle) != 0) | (np.diff(sampling) != 0))
    chosen = np.unique(np.concatenate([np.linspace(0, len(lr) - 1, POINTS).astype(int), change, change + 1]))
    return Trace(chosen + 1, lr[chosen], sampling[chosen], cycle[chosen], kept, lr[kept - 1])


def _schedules(material: Material, panel: Panel) -> list[tuple[Look, Arm]]:
    """Each schedule of the panel once: arms that differ in their number of chains share it."""
    found: dict[Part, tuple[Look, Arm]] = {}
    for arm in panel.arms:
        found.setdefault(arm.chains[0][0].schedule, (material.looks[arm], arm))
    return list(found.values())


def _draw(material: Material, theme: Theme) -> Figure:
    shown = material.looks.panels
    figure, axes = panels(1, len(shown), 2.7)
    handles: dict[str, Line2D] = {}
    dots = False
    for axis, panel in zip(axes[0], shown, strict=True):
        for look, arm in _schedules(material, panel):
            spec, colour = arm.chains[0][0], theme.colour(look)
            curve = trace(spec.schedule)
            x = curve.step / spec.steps_per_epoch
            for c in np.unique(curve.cycle):
                here = curve.cycle == c
                first = np.flatnonzero(here & curve.sampling)[:1]  # both stages meet there
                cold = here & ~curve.sampling
                cold[first] = True
                hot = here & curve.sampling
                axis.plot(x[cold], curve.lr[cold], color=colour, linestyle=(0, (3, 1.5)), linewidth=1.1, alpha=0.8)
                axis.plot(x[hot], curve.lr[hot], color=colour, linewidth=2)
            if len(curve.kept_step) <= MARKS:
                dots = True
                kept = curve.kept_step / spec.steps_per_epoch
                axis.plot(kept, curve.kept_lr, "|", color=colour, markersize=8, markeredgewidth=0.9, clip_on=False)
            label = f"{arm.schedule}, {arm.length:,} {material.comparison.unit}"
            handles.setdefault(label, Line2D([], [], color=colour, linewidth=2, label=label))
        axis.set(title=panel.title, xlabel=material.unit.capitalize(), ylabel="Step size lr")
        axis.set_ylim(bottom=0)
        axis.margins(x=0.01)
        axis.xaxis.set_major_formatter(COUNT)
    stages = [
        Line2D([], [], color=theme.muted, linestyle=(0, (3, 1.5)), linewidth=1.1, label="without noise"),
        Line2D([], [], color=theme.muted, linewidth=2, label="sampling"),
    ]
    if dots:
        stages.append(Line2D([], [], color=theme.muted, marker="|", markersize=8, linestyle="", label="kept draw"))
    legend(figure, [*handles.values(), *stages], columns=3)
    return figure
