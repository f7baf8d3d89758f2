"""Flatness around samples: diagonal Fisher, loss along random directions, planes through three samples.

Entropy-MCMC §6.3; Li et al. 2018 (directions); Garipov et al. 2018 (planes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from raychains.core.errors import UserError, require
from raychains.evaluation.evaluation import Array, Metric
from raychains.evaluation.loss_landscape import PARAMETERS, TRACE, ranks_of
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.draws import theta_first
from raychains.measures.measure import Context, Measure, Row, Tables, networks_only
from raychains.measures.network_samples import (
    Drawn,
    drawn,
    first_groups,
    maker,
    networks,
    pairwise,
    parameters,
    reader,
    thinned,
)
from raychains.planning import Arm
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import Axis, Chart, Contours, Line, Mark, Note, Panel, Style
from raychains.plotting.style import LINES, MUTED, Drawing

FISHER_EXAMPLES = 1000
"""Training examples of a Fisher at most, chosen by a seed: the first of a shuffled epoch."""
SAMPLES = 3
"""Samples of each arm and variable, evenly spread over its chains and their cycles; the last of each cycle."""
SEEDS = 3
"""Random directions from each of them."""
STEPS = 21
"""Points along a direction, t from −1 to 1 in units of the filters' own norms."""
GRID = 15
"""Points along each axis of a plane."""
TRAINING = 20_000
"""Up to this many training examples the loss along a direction is measured on them, too."""
LEVELS = 12
"""Bands of a plane's contours."""
SHOWN = 1e-10
"""Eigenvalues below this share of the largest are not drawn."""
STEEP = 30
"""Ratio of the largest to the smallest loss above which its axis is logarithmic."""


def tables(context: Context) -> Tables:
    """``fisher``, ``directions`` and, where an arm has three samples, ``plane`` and ``plane_samples``."""
    chosen = [(arm, group, ends) for arm, group in first_groups(context) if (ends := _ends(context, arm, group))]
    found = {"fisher": _fisher(context, chosen), "directions": _directions(context, chosen)}
    found |= _planes(context, [(arm, group) for arm, group, _ in chosen])
    return {name: rows for name, rows in found.items() if rows}


def _ends(context: Context, arm: int, group: int) -> list[Drawn]:
    """Return some of the samples that end a cycle, of each variable; some of all samples where few cycles end."""
    found = []
    for _, group_of_one in itertools.groupby(drawn(context, arm, group), key=lambda one: one.meta.variable):
        mine = list(group_of_one)
        last = list({(one.chain, one.meta.cycle): one for one in mine}.values())
        found += thinned(last if len(last) >= SAMPLES else mine, SAMPLES)
    return found


def _about(context: Context, arm: int, group: int) -> Row:
    return {"arm": context.arm_name(arm), "group": group}


def _fisher(context: Context, chosen: Sequence[tuple[int, int, list[Drawn]]]) -> list[Row]:
    samples = [(arm, group, one) for arm, group, ends in chosen for one in ends]
    examples = min(FISHER_EXAMPLES, context.task.num_data)
    make = maker(context)
    found = context.measure(context.split, [make((1.0, one), fisher=examples) for _, _, one in samples])
    rows: list[Row] = []
    for (arm, group, one), spectrum in zip(samples, found, strict=True):
        about = {**_about(context, arm, group), **one.about()}
        sizes = {"trace": spectrum[TRACE], "parameters": int(spectrum[PARAMETERS]), "examples": examples}
        rows += [{**about, "rank": rank, "eigenvalue": value, **sizes} for rank, value in ranks_of(spectrum)]
    return rows


def _directions(context: Context, chosen: Sequence[tuple[int, int, list[Drawn]]]) -> list[Row]:
    rows: list[Row] = []
    points = []
    make = maker(context)
    for (arm, group, ends), seed in itertools.product(chosen, range(SEEDS)):
        for one, t in itertools.product(ends, np.linspace(-1, 1, STEPS).tolist()):
            rows.append({**_about(context, arm, group), **one.about(), "seed": seed, "t": t})
            points.append(make((1.0, one), directions=((t, seed),) if t else ()))
    train = "train" in context.task.splits() and context.task.num_data <= TRAINING
    splits = dict.fromkeys([context.split, *(["train"] if train else [])])
    return [
        {**row, "split": split, **metrics}
        for split in splits
        for row, metrics in zip(rows, context.measure(split, points), strict=True)
    ]


def _planes(context: Context, groups: Sequence[tuple[int, int]]) -> dict[str, list[Row]]:
    rows: list[Row] = []
    corners: list[Row] = []
    points = []
    make, network_of = maker(context), networks(context)
    for arm, group in groups:
        three = _three(drawn(context, arm, group))
        if three is None:
            continue
        try:
            read = reader(context.store.root, three, parameters(network_of(three[0])))
            plane = Plane(pairwise(read, 3).distance)
        except UserError:  # three on one line span no plane
            continue
        about = _about(context, arm, group)
        corners += [
            {**about, **one.about(), "x": x, "y": y} for one, (x, y) in zip(three, plane.corners.tolist(), strict=True)
        ]
        for x, y in itertools.product(*(axis.tolist() for axis in plane.grid(GRID))):
            rows.append({**about, "x": x, "y": y})
            points.append(make(*zip(plane.coefficients(x, y), three, strict=True)))
    found = context.measure(context.split, points) if points else []
    return {
        "plane": [{**row, **metrics} for row, metrics in zip(rows, found, strict=True)],
        "plane_samples": corners,
    }


def _three(samples: Sequence[Drawn]) -> list[Drawn] | None:
    """Return three samples to lay a plane through: of three cycles of one chain, else of three chains, else any."""
    mine = [one for one in samples if one.meta.variable == samples[0].meta.variable]
    cycles = {one.meta.cycle: one for one in mine if one.chain == mine[0].chain}
    chains = {one.chain: one for one in mine}
    for found in (cycles, chains):
        if len(found) >= 3:
            return thinned(list(found.values()), 3)
    return thinned(mine, 3) if len(mine) >= 3 else None


class Plane:
    """The plane through three samples, with coordinates in the unit of θ (Garipov et al. 2018, App. A.1).

    û = (θ₂ − θ₁)/‖θ₂ − θ₁‖, v̂ the part of θ₃ − θ₁ orthogonal to it, of norm 1; (x, y) is θ₁ + x·û + y·v̂. All of it
    follows from the three distances, so that no sample has to be read.

    Args:
        distance: ‖θ_i − θ_j‖ between the three, [3, 3].

    Raises:
        UserError: they lie on one line.
    """

    def __init__(self, distance: Array) -> None:
        d12, d13, d23 = distance[0, 1], distance[0, 2], distance[1, 2]
        along = (d12**2 + d13**2 - d23**2) / (2 * d12) if d12 > 0 else 0.0
        above = d13**2 - along**2
        require(d12 > 0 and above > 1e-12 * d13**2, "samples", "three on one line", "span a plane")
        self.corners = np.array([[0.0, 0.0], [d12, 0.0], [along, np.sqrt(above)]])
        """Coordinates of the three samples in the plane, [3, 2]."""

    def grid(self, points: int) -> tuple[Array, Array]:
        """Return coordinates of the columns and rows of a grid that reaches a quarter of the samples' extent beyond
        them."""
        low, high = self.corners.min(0), self.corners.max(0)
        room = 0.25 * (high - low)
        x, y = (np.linspace(a, b, points) for a, b in zip(low - room, high + room, strict=True))
        return x, y

    def coefficients(self, x: float, y: float) -> tuple[float, float, float]:
        """Return c with Σ_i c_i·θ_i at (x, y) and Σ_i c_i = 1."""
        (_, _), (width, _), (along, above) = self.corners
        third = y / above
        second = (x - third * along) / width
        return float(1 - second - third), float(second), float(third)


# Figures


@panels.drawn_from("fisher", "arm variable", f"group rank eigenvalue trace examples {panels.SAMPLE}")
def fisher(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw the spectra of the diagonal Fishers; None unless they were estimated."""
    if not (arms := panels.present(run, table)):
        return None
    sample = ["arm", "variable", *panels.SAMPLE.split()]
    traces = table.drop_duplicates(sample).groupby(["arm", "variable"])["trace"].mean()
    alone = table["variable"].nunique() == 1
    sums = "; ".join(
        f"{arm.label} {'' if alone else panels.variable(v) + ' '}{traces[arm.name, v]:.3g}"
        for arm in arms
        for v in theta_first(table[table["arm"] == arm.name]["variable"])
    )
    return Drawing(
        name="fisher",
        title="Spectrum of the diagonal Fisher information",
        caption=(
            "Diagonal entries of the empirical Fisher, the mean of squared derivatives of log p(y | x, θ), sorted, on "
            f"{int(table['examples'].max()):,} training examples. Thin: each sample; thick: geometric mean. Less is "
            f"flatter. Sum of all entries, mean over samples: {sums}."
        ),
        alt="Sorted entries of the diagonal Fisher information against their rank, on logarithmic axes, for every arm",
        draw=_spectra(table, arms),
        data=table.to_dict("records"),
    )


def _spectra(table: pd.DataFrame, arms: list[Arm]) -> Chart:
    styles, lines = in_one_panel(arms), []
    shown = table[table["eigenvalue"] > SHOWN * table["eigenvalue"].max()]
    for arm in arms:
        mine = shown[shown["arm"] == arm.name]
        for k, name in enumerate(theta_first(mine["variable"])):
            style, some = styles[arm.name].style(linestyle=LINES[k % len(LINES)]), mine[mine["variable"] == name]
            thin, thick = {"linewidth": 0.6, "alpha": 0.4}, {"linewidth": 1.8, "markevery": 0.12}
            for _, one in some.groupby(panels.SAMPLE.split()):
                lines.append(Line(x=one["rank"], y=one["eigenvalue"], style={**style, **thin}))
            logs = np.log(some["eigenvalue"]).groupby(some["rank"])
            # Where no sample's is too small to be shown.
            mean = np.exp(logs.mean()[logs.size() == logs.size().max()])
            marked = {**style, "marker": styles[arm.name].marker, "markersize": 4, **thick}
            lines.append(Line(x=mean.index, y=mean, style=marked))
    x, y = (Axis(label=text, scale="log") for text in ("Rank of the parameter", "Eigenvalue (squared nats)"))
    return Chart(panels=[Panel(marks=lines, x=x, y=y)], height=3.1, legend=_legend(table, arms), legend_columns=2)


@panels.drawn_from("directions", "arm variable split", f"group seed t {panels.SAMPLE}")
def directions(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw metrics along random directions; None unless losses along random directions were measured."""
    metrics, arms = panels.measured(run, table), panels.present(run, table)
    if not metrics or not arms:
        return None
    names = " and ".join(m.label for m in metrics)
    return Drawing(
        name="directions",
        title="Along random directions",
        caption=(
            f"{names} of θ + t·d along {table['seed'].nunique()} random directions d from each of an arm's samples, "
            "every filter of d as long as that of θ (Li et al. 2018). Line: mean; band: from the least to the largest. "
            "A wide valley says flat."
        ),
        alt=f"{names} against the distance along random directions, for every arm",
        draw=_valleys(table, metrics, arms),
        data=table.to_dict("records"),
    )


def _valleys(table: pd.DataFrame, metrics: list[Metric], arms: list[Arm]) -> Chart:
    styles, shown = in_one_panel(arms), []
    ticks = {-1.0: "−1", -0.5: "−0.5", 0.0: "0", 0.5: "0.5", 1.0: "1"}
    for (split, of_split), metric in itertools.product(table.groupby("split", sort=False), metrics):
        lines = []
        for arm in arms:
            mine = of_split[of_split["arm"] == arm.name]
            for k, name in enumerate(theta_first(mine["variable"])):
                by = mine[mine["variable"] == name].groupby("t")[metric.name]
                mean, low, high = (metric.scale * values for values in (by.mean(), by.min(), by.max()))
                style = styles[arm.name].style(size=3, linestyle=LINES[k % len(LINES)], markevery=5)
                lines.append(Line(x=mean.index, y=mean, style=style, band=(low, high)))
        least, most = of_split[metric.name].min(), of_split[metric.name].max()
        y = Axis(label=metric.label, scale="log" if least > 0 and most > STEEP * least else "linear")
        x = Axis(label="t, in units of the filters' norms", ticks=ticks)
        shown.append(Panel(marks=lines, x=x, y=y, title=str(split)))
    legend = _legend(table, arms)
    return Chart(panels=shown, columns=len(metrics), height=2.4, share_x=True, legend=legend, legend_columns=2)


@panels.drawn_from("plane", "arm", "group x y")
def plane(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw planes through three samples; None unless they were measured."""
    corners = panels.table(run, "plane_samples", "arm", f"group x y {panels.SAMPLE}")
    if corners is None:
        return None
    metrics = panels.measured(run, table, most=1)
    arms = [arm for arm in panels.present(run, table) if arm.name in set(corners["arm"])]
    if not metrics or not arms:
        return None
    (metric,) = metrics
    return Drawing(
        name="plane",
        title="On the plane through three samples",
        caption=(
            f"{metric.label} on {run.comparison.split} of the networks in the plane that three samples of an arm "
            "span (Garipov et al. 2018); axes are distances from the first, in the unit of the weights. White circles: "
            "the samples, by chain and number. Beyond the colour bar's end values are not told apart."
        ),
        alt=f"Contours of {metric.label} on a plane through three samples of each arm",
        draw=_planes_of(table, corners, metric, arms),
        data=[*table.to_dict("records"), *corners.assign(sample=True).to_dict("records")],
    )


def _planes_of(table: pd.DataFrame, corners: pd.DataFrame, metric: Metric, arms: list[Arm]) -> Chart:
    values = metric.scale * table[metric.name]
    low, high = float(values.min()), float(np.quantile(values, 0.95))
    levels = MaxNLocator(LEVELS).tick_values(low, high if high > low else low + 1)
    circle: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 6, "color": "#fefefe"}
    circle["markeredgecolor"] = "#202020"
    shown = []
    for i, arm in enumerate(arms):
        grid = table[table["arm"] == arm.name].pivot_table(index="y", columns="x", values=metric.name)
        own = corners[corners["arm"] == arm.name]
        heights = Contours(x=grid.columns, y=grid.index, z=metric.scale * grid.to_numpy(), levels=levels)
        marks: list[Mark] = [heights, Line(x=own["x"], y=own["y"], style=circle)]
        for at in own.itertuples():
            marks.append(Note(x=at.x, y=at.y, text=f"{int(at.chain) + 1}.{int(at.index) + 1}", boxed=True))
        x, y = Axis(label="Towards the second", ticks=4, margin=0), Axis(ticks=4, margin=0)
        y = y if i else replace(y, label="At right angles")
        shown.append(Panel(marks=marks, x=x, y=y, title=arm.label, equal="box"))
    return Chart(panels=shown, columns=panels.COLUMNS, height=3.0 if len(arms) > 2 else 3.8, bar=metric.label)


def _legend(table: pd.DataFrame, arms: list[Arm]) -> list[tuple[str, Style]]:
    """Return entries for the arms, and for θ and θₐ where both are there."""
    names = theta_first(table["variable"])
    variables = [
        (panels.variable(n), {"color": MUTED, "linestyle": LINES[k]}) for k, n in enumerate(names[: len(LINES)])
    ]
    return [
        *((style.label, style.style(size=5)) for style in in_one_panel(arms).values()),
        *variables * (len(names) > 1),
    ]


MEASURE = Measure(
    name="flatness",
    section="Flatness",
    about="diagonal-Fisher spectrum, error and loss along random directions and on planes through three samples",
    tables=tables,
    why_not=networks_only,
    figures={"fisher": fisher, "directions": directions, "plane": plane},
)
