"""Progress of each arm by gradient evaluations: training loss and single samples' test metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from raychains import samplers
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Arm, gradient_evaluations
from raychains.planning.budget import steps_made
from raychains.plotting.charts import Axis, Chart, Line, Panel, Style
from raychains.plotting.style import LINES, MARKERS, Drawing, hue, records
from raychains.report.figures.schedule_figure import trace
from raychains.store import RunStore

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


def drawing(run: RunData) -> Drawing | None:
    """None for densities, and for comparisons whose samplers all spend one gradient a step, unless samples were
    evaluated."""
    arms = run.comparison.arms
    if run.by_blocks or len({arm.sampler for arm in arms}) < 2:
        return None
    parts = [arm.chains[0][0].sampler for arm in arms]
    costly = any(part.kind.startswith("entropy-") or samplers.gradients_per_step(part) > 1 for part in parts)
    single = [*chain(*(_of_samples(run, split) for split in dict.fromkeys((run.comparison.split, "train"))))]
    exact = any(curve.what == "training nll" for curve in single)
    curves = [*([] if exact else _of_progress(run)), *single] if single or costly else []
    if not curves:
        return None
    return Drawing(
        name="gradients",
        title="Progress by gradient evaluations",
        caption=_caption(run, exact=exact, single=bool(single)),
        alt="Training loss and test metrics of single samples against gradient evaluations for every arm",
        draw=_chart(run, curves),
        data=[row for curve in curves for row in _rows(curve)],
    )


def _caption(run: RunData, *, exact: bool, single: bool) -> str:
    """Return the caption; ``exact`` if the training NLL is that of samples, ``single`` if samples were evaluated."""
    parts = [arm.chains[0][0].sampler for arm in run.comparison.arms]
    of_theta = ", of Entropy-MCMC those of θ" if any(len(samplers.variables(part)) > 1 for part in parts) else ""
    text = (
        "After as many gradient evaluations, each of one training example, by one chain; the inner steps of "
        "Entropy-SG(L)D count as what they cost. "
    )
    text += "" if exact else "Training NLL: mean minibatch loss since the record before. "
    text += (
        f"{'All' if exact else 'The other'} panels: each kept sample by itself{of_theta}, a point per sample. "
        if single
        else "raychains evaluate RUN --views samples adds the test metrics of every kept sample. "
    )
    repeats = " and repeats" if run.repeated else ""
    return text + f"Lines are means over chains{repeats}, bands ± one standard deviation over them."


def _of_progress(run: RunData) -> Iterator[Curve]:
    """The training loss that the chains recorded; once where arms share their chains."""
    arms: dict[str, Arm] = {}
    for arm in run.comparison.arms:
        arms.setdefault(arm.chains[0][0].digest, arm)
    for arm in arms.values():
        specs = [spec for group in arm.chains for spec in group]
        points = [(_gradients(spec, step), loss) for spec in specs for step, loss in run.losses(spec)]
        if points:
            yield _curve(arm, "training nll", pd.DataFrame(points, columns=["x", "y"]))


def _of_samples(run: RunData, split: str) -> Iterator[Curve]:
    """Metrics of every sample by itself, from the run's own views or those of its evaluation on ``train``."""
    own = split == run.comparison.split
    store = run.store
    views = run.views if own else results.read(RunStore(store.root, f"{store.name}-{split}"), "views")
    if not len(views):
        return
    views = views[(views["kind"] == "samples") & (views["weighting"] == "equal")]
    for arm in run.comparison.arms:
        first = next(iter(samplers.variables(arm.chains[0][0].sampler)))
        mine = views[(views["arm"] == arm.name) & views["view"].str.endswith(f":{first}")]
        if not len(mine):
            continue
        x = [_of_view(run, arm, group, name) for group, name in zip(mine["group"], mine["view"], strict=True)]
        for metric in SHOWN:
            if metric in mine.columns:
                points = pd.DataFrame({"x": x, "y": mine[metric].to_numpy(dtype=float)})
                yield _curve(arm, f"{'training' if split == 'train' else split} {metric}", points)


def _of_view(run: RunData, arm: Arm, group: int, name: str) -> float:
    """Gradient evaluations that a sample's chain had spent, from its view's name ``sample:position:index:variable``."""
    _, position, index, variable = name.split(":")
    spec = arm.chains[group][int(position)]
    if spec.early_stop is not None:
        return _gradients(spec, steps_made(spec, run.chain(spec.digest).records()))
    nth = int(index) // samplers.variables(spec.sampler)[variable]
    return _gradients(spec, trace(spec.schedule).kept_step[nth])


def _gradients(spec: ChainSpec, step: int) -> float:
    return step / spec.steps * gradient_evaluations(spec) / spec.lanes


def _curve(arm: Arm, what: str, points: pd.DataFrame) -> Curve:
    by = points.groupby("x")["y"]
    mean, sd = by.mean(), by.std(ddof=1)
    return Curve(arm, what, mean.index.to_numpy(), mean.to_numpy(), sd.to_numpy())


def _rows(curve: Curve) -> list[dict[str, Any]]:
    kind, _, metric = curve.what.rpartition(" ")
    about = {"arm": curve.arm.name, "of": kind, "metric": metric}
    return records({**about, "gradients": curve.gradients, "mean": curve.mean, "sd": curve.sd})


def _chart(run: RunData, curves: list[Curve]) -> Chart:
    of = list(dict.fromkeys(c.what for c in curves))
    of.sort(key=lambda what: (what.endswith("error"), not what.startswith("training")))
    arms = [a for a in run.comparison.arms if any(c.arm is a for c in curves)]
    shown = []
    for what in of:
        kind, _, metric = what.rpartition(" ")
        name, scale = SHOWN[metric]
        mine = [c for c in curves if c.what == what]
        negative = any((c.mean < 0).any() for c in mine)  # as a density's NLL may be
        y = Axis(label=f"{kind.capitalize()} {name}", scale="linear" if negative else "log")
        x = Axis(label="Gradient evaluations of a chain", text=lambda v: f"{v / 1000:,.0f} k" if v else "0")
        marks = [_line(c, arms.index(c.arm), scale, negative) for c in mine]
        shown.append(Panel(marks=marks, x=x, y=y))
    return Chart(panels=shown, columns=len(shown) if len(shown) <= 3 else 2, height=2.6, share_x=True)


def _line(curve: Curve, rank: int, scale: float, negative: bool) -> Line:
    every, mean, band = max(1, len(curve.mean) // 10), curve.mean * scale, None
    if np.isfinite(curve.sd).any():
        low, high = ((curve.mean + sign * curve.sd) * scale for sign in (-1, 1))
        band = (low if negative else np.maximum(low, mean / 10), high)  # a logarithmic axis ends above nothing
    style: Style = {"color": hue(rank), "linestyle": LINES[rank % len(LINES)], "marker": MARKERS[rank % len(MARKERS)]}
    marked = {**style, "markersize": 3.5, "markevery": (rank % every, every)}
    return Line(x=curve.gradients, y=mean, style=marked, band=band, label=curve.arm.label)
