"""How fast each arm learns per gradient: training loss and single samples' test metrics against gradient evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from raychains import samplers, schedules
from raychains.evaluation.base import Array
from raychains.planning import Arm, gradient_evaluations
from raychains.report import results
from raychains.report.figures.layout import legend, log_axis, panels
from raychains.report.looks import Look
from raychains.report.material import Material
from raychains.report.style import LINES, MARKERS, Drawing, Theme
from raychains.spec import ChainSpec, Part
from raychains.store import RunStore

HUES = (
    ("cyclical", 0),
    ("decreasing", 0),
    ("other", 0),
    ("other", 1),
    ("decreasing", 1),
    ("other", 2),
    ("cyclical", 1),
)
"""Arms of several samplers stand in one panel here, so that schedules have no hues of their own."""
TICKS = ((1000, (1.0,)), (10, (1.0, 2.0, 5.0)), (0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
"""Of a logarithmic axis, by the least ratio of its ends."""
SHOWN = {"nll": ("NLL (nats)", 1.0), "error": ("error (%)", 100.0)}


@dataclass(frozen=True)
class Curve:
    """One arm's mean over chains and repeats, after the same numbers of gradients."""

    arm: Arm
    what: str
    """The panel: ``training nll``, ``test error``, …"""
    gradients: Array
    """Gradient evaluations of single examples, of one chain."""
    mean: Array
    sd: Array
    """Over chains and repeats; nan with one."""


def drawing(material: Material) -> Drawing | None:
    """None for densities, and for comparisons whose samplers all spend one gradient a step, unless samples were evaluated."""
    arms = material.comparison.arms
    if material.by_blocks or len({arm.sampler for arm in arms}) < 2:
        return None
    costly = any(a.sampler.startswith("entropy-") or samplers.KINDS[a.sampler].gradients_per_step > 1 for a in arms)
    single = [c for split in dict.fromkeys((material.comparison.split, "train")) for c in _of_samples(material, split)]
    if not single and not costly:
        return None
    exact = any(curve.what == "training nll" for curve in single)
    curves = [*([] if exact else _of_progress(material)), *single]
    if not curves:
        return None
    text = (
        "After as many gradient evaluations, each of one training example, by one chain; the inner steps of Entropy-SG(L)D "
        "count as what they cost. "
    )
    text += "" if exact else "Training NLL: mean minibatch loss since the record before. "
    text += (
        f"{'All' if exact else 'The other'} panels: each kept sample by itself, a point per sample. "
        if single
        else "raychains evaluate RUN --views samples adds the test metrics of every kept sample. "
    )
    return Drawing(
        name="gradients",
        title="Progress by gradient evaluations",
        caption=text + "Lines are means over chains and repeats, bands ± one standard deviation over them.",
        alt="Training loss and test metrics of single samples against gradient evaluations for every arm",
        draw=lambda theme: _draw(material, curves, theme),
        data=[row for curve in curves for row in _rows(curve)],
    )


def _of_progress(material: Material) -> Iterator[Curve]:
    """The training loss that the chains recorded; once where arms share their chains."""
    seen: set[str] = set()
    for arm in material.comparison.arms:
        specs = [spec for group in arm.chains for spec in group]
        if specs[0].digest in seen:
            continue
        seen.add(specs[0].digest)
        points = [
            (_gradients(spec, r["step"]), r["loss"])
            for spec in specs
            for r in material.chain(spec.digest).progress()
            if r.get("loss") is not None
        ]
        if points:
            yield _curve(arm, "training nll", pd.DataFrame(points, columns=["x", "y"]))


def _of_samples(material: Material, split: str) -> Iterator[Curve]:
    """Metrics of every sample by itself, from the run's own views or those of its evaluation on ``train``."""
    own = split == material.comparison.split
    store = material.store
    views = material.views if own else results.read(RunStore(store.root, f"{store.name}-{split}"), "views")
    if not len(views):
        return
    views = views[(views["kind"] == "samples") & (views["weighting"] == "equal")]
    for arm in material.comparison.arms:
        mine = views[views["arm"] == arm.name]
        if not len(mine):
            continue
        x = [_of_view(arm, group, name) for group, name in zip(mine["group"], mine["view"], strict=True)]
        for metric in SHOWN:
            if metric in mine.columns:
                points = pd.DataFrame({"x": x, "y": mine[metric].to_numpy(dtype=float)})
                yield _curve(arm, f"{'training' if split == 'train' else split} {metric}", points)


def _of_view(arm: Arm, group: int, name: str) -> float:
    """Gradient evaluations that a sample's chain had spent, from its view's name ``sample:position:index:variable``."""
    _, position, index, variable = name.split(":")
    spec = arm.chains[group][int(position)]
    nth = int(index) // samplers.variables(spec.sampler)[variable]
    return _gradients(spec, _kept(spec.schedule)[nth])


@lru_cache(maxsize=64)
def _kept(schedule: Part) -> list[int]:
    made = schedules.build(schedule)
    return [k for k in range(1, made.steps + 1) if made.at(k).keep]


def _gradients(spec: ChainSpec, step: int) -> float:
    return step / spec.steps * gradient_evaluations(spec) / spec.lanes


def _curve(arm: Arm, what: str, points: pd.DataFrame) -> Curve:
    by = points.groupby("x")["y"]
    mean, sd = by.mean(), by.std(ddof=1)
    return Curve(arm, what, mean.index.to_numpy(), mean.to_numpy(), sd.to_numpy())


def _rows(curve: Curve) -> list[Mapping[str, Any]]:
    kind, _, metric = curve.what.rpartition(" ")
    return [
        {"arm": curve.arm.name, "of": kind, "metric": metric, "gradients": float(x), "mean": float(y), "sd": float(s)}
        for x, y, s in zip(curve.gradients, curve.mean, curve.sd, strict=True)
    ]


def _draw(material: Material, curves: list[Curve], theme: Theme) -> Figure:
    shown = list(dict.fromkeys(c.what for c in curves))
    shown.sort(key=lambda what: (what.endswith("error"), not what.startswith("training")))
    columns = len(shown) if len(shown) <= 3 else 2
    figure, axes = panels(-(-len(shown) // columns), columns, 2.6, sharex=True)
    places = {what: axes[i // columns][i % columns] for i, what in enumerate(shown)}
    arms = [a for a in material.comparison.arms if any(c.arm is a for c in curves)]
    for curve in curves:
        _plot(places[curve.what], curve, arms.index(curve.arm), theme)
    for i, axis in enumerate(axis for row in axes for axis in row):
        if i >= len(shown):
            axis.set_axis_off()
            continue
        kind, _, metric = shown[i].rpartition(" ")
        axis.set_yscale("log", nonpositive="clip")
        low, high = axis.get_ylim()
        log_axis(axis.yaxis, subs=next(ticks for above, ticks in TICKS if high / low >= above))
        axis.set_ylabel(f"{kind.capitalize()} {SHOWN[metric][0]}")
        axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
        if i + columns >= len(shown):
            axis.set_xlabel("Gradient evaluations of a chain")
            axis.tick_params(labelbottom=True)
    legend(figure, [Line2D([], [], label=a.label, **_style(i, theme)) for i, a in enumerate(arms)], columns=3)
    return figure


def _plot(axis: Any, curve: Curve, rank: int, theme: Theme) -> None:
    scale = SHOWN[curve.what.rpartition(" ")[2]][1]
    style = _style(rank, theme)
    every = max(1, len(curve.mean) // 10)
    axis.plot(curve.gradients, curve.mean * scale, markevery=(rank % every, every), **style)
    if np.isfinite(curve.sd).any():
        low, high = ((curve.mean + sign * curve.sd) * scale for sign in (-1, 1))
        low = np.maximum(low, curve.mean * scale / 10)  # a logarithmic axis ends above nothing
        axis.fill_between(curve.gradients, low, high, color=style["color"], alpha=0.13, linewidth=0)


def _style(rank: int, theme: Theme) -> dict[str, Any]:
    family, place = HUES[rank % len(HUES)]
    return {
        "color": theme.colour(Look(family, place, "")), "linestyle": LINES[rank % len(LINES)],
        "marker": MARKERS[rank % len(MARKERS)], "markersize": 3.5,
    }  # fmt: skip


def _thousands(value: float, _: object) -> str:
    return f"{value / 1000:,.0f} k" if value else "0"
