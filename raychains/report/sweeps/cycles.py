"""The error against the number of cycles M, one line per sampler: cSG-MCMC's Fig. 3c, on the validation split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.evaluation.base import Array, Metric
from raychains.methods.names import METHODS
from raychains.report.figures.layout import legend
from raychains.report.figures.styles import MARKERS
from raychains.report.style import LINES, WIDTH, Drawing, Theme
from raychains.report.sweeps.material import Option, Point, Sweep, said

HUES = (("cyclical", 0), ("decreasing", 0), ("other", 0), ("other", 1), ("decreasing", 1), ("cyclical", 1))


class Line:
    """One setting of all other swept options, at every M whose chains are whole.

    Args:
        points: of that setting, one per M.
        name: for the legend.
        best: whether it is its sampler's best one.
    """

    def __init__(self, points: Sequence[Point], sampler: str, name: str, best: bool) -> None:
        self.points = sorted(points, key=lambda p: float(p.values["cycles"]))
        self.sampler, self.name, self.best = sampler, name, best

    def of(self, metric: Metric) -> tuple[Array, Array, Array]:
        """M, means and standard errors (nan with one repeat)."""
        m = np.array([float(p.values["cycles"]) for p in self.points])
        means, errors = (np.array([v[metric.name] for v in of]) for of in self._values())
        return m, means, errors

    def _values(self) -> tuple[list[Mapping[str, float]], list[Mapping[str, float]]]:
        return [p.mean for p in self.points], [p.error for p in self.points]


def drawing(sweep: Sweep) -> Drawing | None:
    """None unless M was swept beside nothing, or in a grid: some setting of the others has whole chains at two M."""
    found = lines(sweep)
    if not any(line.best and len(line.points) > 1 for line in found):
        return None
    metric = _metric(sweep)
    names = " and ".join(dict.fromkeys(METHODS[n].label if n in METHODS else n for n in _samplers(sweep)))
    rest = [o for o in sweep.options if o.name not in ("cycles", "sampler")]
    where = f" at each sampler's best {_listed(rest)}" if rest else ""
    where += "; pale: at the others that were swept" if not all(line.best for line in found) else ""
    return Drawing(
        name="cycles",
        title="Error against the number of cycles",
        caption=(
            f"{metric.label} on the split val of the ensemble of all cycles' samples against the number of cycles M, at equal "
            f"gradient evaluations{where}. Mean over the repeats{', bars ± one standard error' if sweep.repeated else ''}; "
            "whole chains only. As cSG-MCMC's Fig. 3c, which has it on the test split."
        ),
        alt=f"{metric.label} against the number of cycles for {names}",
        draw=lambda theme: _draw(found, metric, theme),
        data=[
            {"sampler": line.sampler, "setting": line.name, "best": line.best, "cycles": m, "mean": mean, "se": se}
            for line in found
            for m, mean, se in zip(*line.of(metric), strict=True)
        ],
    )


def lines(sweep: Sweep) -> list[Line]:
    """Per sampler the setting of its best point, then the others with whole chains at two M or more."""
    if not any(o.name == "cycles" and o.numeric and len(o.values) > 1 for o in sweep.options):
        return []
    others = [o for o in sweep.options if o.name != "cycles"]
    plain = [o for o in others if o.name != "sampler"]
    out: list[Line] = []
    for sampler in _samplers(sweep):
        mine = [
            p for p in sweep.ranked if p.complete and math.isfinite(sweep.badness(p)) and _sampler(sweep, p) == sampler
        ]
        settings = dict.fromkeys(tuple(p.values[o.name] for o in others) for p in mine)
        for i, setting in enumerate(settings):
            points = [p for p in mine if tuple(p.values[o.name] for o in others) == setting]
            label = METHODS[sampler].label if sampler in METHODS else sampler
            name = f"{label} ({said(points[0], plain)})" if plain else label
            if i == 0 or len(points) > 1:
                out.append(Line(points, sampler, name, best=i == 0))
    return out


def _samplers(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys(_sampler(sweep, p) for p in sweep.points))


def _sampler(sweep: Sweep, point: Point) -> str:
    if "sampler" in point.values:
        return str(point.values["sampler"])
    if "sampler" not in sweep.results.columns:
        return "all"
    return str(sweep.results.loc[sweep.results["point"] == point.number, "sampler"].iloc[0])


def _metric(sweep: Sweep) -> Metric:
    return next((m for m in sweep.metrics if m.name in ("error", "rmse")), sweep.metric)


def _listed(options: Sequence[Option]) -> str:
    return " and ".join(o.short for o in options)


def _draw(found: list[Line], metric: Metric, theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.6))
    axis = figure.subplots()
    handles: list[Line2D] = []
    samplers = list(dict.fromkeys(line.sampler for line in found))
    for line in found:
        rank = samplers.index(line.sampler)
        family, place = HUES[rank % len(HUES)]
        colours = theme.families[family]
        style: dict[str, Any] = {
            "color": colours[place % len(colours)], "marker": MARKERS[rank % len(MARKERS)], "linestyle": LINES[rank % len(LINES)],
        }  # fmt: skip
        m, mean, error = line.of(metric)
        if not line.best:
            axis.plot(m, mean * metric.scale, **{**style, "marker": ""}, linewidth=0.9, alpha=0.35, zorder=1.5)
            continue
        bars = np.where(np.isfinite(error), error, 0.0) * metric.scale
        axis.errorbar(m, mean * metric.scale, yerr=bars if bars.any() else None, capsize=3, markersize=6, **style)
        handles.append(Line2D([], [], label=line.name, markersize=6, **style))
    if not all(line.best for line in found):
        handles.append(Line2D([], [], color=theme.muted, linewidth=0.9, alpha=0.6, label="other settings of the sweep"))
    every = sorted({float(p.values["cycles"]) for line in found for p in line.points})
    if every[-1] / every[0] >= 6:
        axis.set_xscale("log", base=2)
    axis.set_xticks(every if len(every) <= 12 else every[:: -(-len(every) // 12)])
    axis.set_xticklabels([f"{v:g}" for v in axis.get_xticks()])
    axis.minorticks_off()
    axis.set(xlabel="Number of cycles M", ylabel=f"{metric.label}, validation")
    legend(figure, handles, columns=3)
    return figure
