"""Step size against training time (cSG-MCMC's Figure 1): dashed without noise, solid while sampling."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from raychains import schedules
from raychains.core.spec import Part
from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting import charts
from raychains.plotting.arm_styles import Panel
from raychains.plotting.charts import DOT, Axis, Chart, Line, Mark, Style
from raychains.plotting.style import MUTED, Drawing, records

POINTS = 3000
"""Most points of a drawn curve."""
EXPLORING: Style = {"linestyle": (0, (3, 1.5)), "linewidth": 1.1}
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


def drawing(run: RunData) -> Drawing:
    """One panel per sampler, one curve per schedule."""
    dense = any(len(trace(a.chains[0][0].schedule).kept_step) > MARKS for a in run.comparison.arms)
    kept = "Draws are kept throughout the sampling stage" if dense else "Upright strokes are the kept draws"
    return Drawing(
        name="schedules",
        title="Step sizes and stages",
        caption=(
            "Step size on the mean-loss scale (lr of torch.optim.SGD; the papers' step is lr/N). Dashed: "
            f"exploration or burn-in without noise; solid: sampling. {kept}."
        ),
        alt=f"Step size against {run.comparison.unit} for every schedule of the run, with its stages",
        draw=_chart(run),
        data=[row for panel in run.arm_styles.panels for arm in _schedules(panel) for row in _points(arm)],
    )


def _points(arm: Arm) -> list[dict[str, Any]]:
    """One schedule's curve, as it is drawn."""
    spec = arm.chains[0][0]
    curve = trace(spec.schedule)
    points = {
        "arm": arm.name,
        "step": curve.step,
        "epoch": curve.step / spec.steps_per_epoch,
        "lr": curve.lr,
        "sampling": curve.sampling,
        "cycle": curve.cycle,
        "kept": np.isin(curve.step, curve.kept_step),
    }
    return records(points)


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


def _schedules(panel: Panel) -> list[Arm]:
    """Each schedule of the panel once: arms that differ in their number of chains share it."""
    found: dict[Part, Arm] = {}
    for arm in panel.arms:
        found.setdefault(arm.chains[0][0].schedule, arm)
    return list(found.values())


def _chart(run: RunData) -> Chart:
    def named(arm: Arm) -> str:
        return f"{arm.schedule}, {arm.length:,} {run.comparison.unit}"

    panels = run.arm_styles.panels
    # Several schedules of one panel that are called alike, as of an ablation of β, have the names of their arms.
    alike = {name for panel in panels for name, n in Counter(map(named, _schedules(panel))).items() if n > 1}
    shown, stages = (
        [],
        [("without noise", {"color": MUTED, **EXPLORING}), ("sampling", {"color": MUTED, "linewidth": 2})],
    )
    arms = dict[str, Style]()
    for panel in panels:
        marks: list[Mark] = []
        for arm in _schedules(panel):
            spec, colour = arm.chains[0][0], {"color": run.arm_styles[arm].colour}
            curve = trace(spec.schedule)
            x = curve.step / spec.steps_per_epoch
            for c in np.unique(curve.cycle):
                hot = (curve.cycle == c) & curve.sampling
                cold = (curve.cycle == c) & ~curve.sampling
                cold[np.flatnonzero(hot)[:1]] = True  # both stages meet there
                marks.append(Line(x=x[cold], y=curve.lr[cold], style={**colour, **EXPLORING, "alpha": 0.8}))
                marks.append(Line(x=x[hot], y=curve.lr[hot], style={**colour, "linewidth": 2}))
            if len(curve.kept_step) <= MARKS:
                stages = [*stages[:2], ("kept draw", {**DOT, "marker": "|", "markersize": 8})]
                stroke = {**DOT, **colour, "marker": "|", "markersize": 8, "markeredgewidth": 0.9, "clip_on": False}
                marks.append(Line(x=curve.kept_step / spec.steps_per_epoch, y=curve.kept_lr, style=stroke))
            arms.setdefault(
                run.arm_styles[arm].label if named(arm) in alike else named(arm), {**colour, "linewidth": 2}
            )
        x_axis, y = Axis(label=run.unit.capitalize(), text="{:,.0f}".format), Axis(label="Step size lr", low=0)
        shown.append(charts.Panel(marks=marks, x=x_axis, y=y, title=panel.title))
    return Chart(panels=shown, columns=len(shown), height=2.7, legend=[*arms.items(), *stages])
