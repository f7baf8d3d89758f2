"""How flat the loss is around samples: the diagonal Fisher's spectrum, random directions, planes through three samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from raychains.evaluation.base import Metric
from raychains.planning import Arm
from raychains.report import results
from raychains.report.figures.arms import ABOUT, heat, maps, measured, powers, present, title, variable
from raychains.report.figures.layout import PLAIN, legend, panels
from raychains.report.figures.styles import styles
from raychains.report.material import Material
from raychains.report.style import LINES, WIDTH, Drawing, Theme

LEVELS = 12
"""Bands of a plane's contours."""
SHOWN = 1e-10
"""Eigenvalues below this share of the largest are not drawn."""
STEEP = 30
"""Ratio of the largest to the smallest loss above which its axis is logarithmic."""


def spectrum(material: Material) -> Drawing | None:
    """None unless Fishers were estimated."""
    table = results.read_rows(
        material.store, "fisher", texts=("arm", "variable"),
        numbers=("group", "rank", "eigenvalue", "trace", "examples", *ABOUT),
    )  # fmt: skip
    if table is None or not (arms := present(material, table)):
        return None
    traces = table.drop_duplicates(["arm", "variable", *ABOUT]).groupby(["arm", "variable"])["trace"].mean()
    told = "; ".join(
        f"{arm.label} {'' if only else variable(v) + ' '}{traces[arm.name, v]:.3g}"
        for arm in arms
        for only in [table["variable"].nunique() == 1]
        for v in _variables(table[table["arm"] == arm.name])
    )
    return Drawing(
        name="fisher",
        title="Spectrum of the diagonal Fisher information",
        caption=(
            "Diagonal entries of the empirical Fisher, the mean of squared derivatives of log p(y | x, θ), sorted, on "
            f"{int(table['examples'].max()):,} training examples. Thin: each sample; thick: geometric mean. Less is "
            f"flatter. Sum of all entries, mean over samples: {told}."
        ),
        alt="Sorted entries of the diagonal Fisher information against their rank, on logarithmic axes, for every arm",
        draw=lambda theme: _spectrum(table, arms, theme),
        data=table.to_dict("records"),
    )


def _spectrum(table: pd.DataFrame, arms: list[Arm], theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.6))
    axis = figure.subplots()
    style = styles(arms, theme)
    shown = table[table["eigenvalue"] > SHOWN * table["eigenvalue"].max()]
    for arm in arms:
        mine = shown[shown["arm"] == arm.name]
        for k, name in enumerate(_variables(mine)):
            look: dict[str, Any] = {"color": style[arm.name].colour, "linestyle": LINES[k % len(LINES)]}
            some = mine[mine["variable"] == name]
            for _, one in some.groupby(list(ABOUT)):
                axis.plot(one["rank"], one["eigenvalue"], linewidth=0.6, alpha=0.4, **look)
            logs = np.log(some["eigenvalue"]).groupby(some["rank"])
            mean = np.exp(logs.mean()[logs.size() == logs.size().max()])  # where no sample's is too small to be shown
            axis.plot(
                mean.index, mean, linewidth=1.8, marker=style[arm.name].marker, markersize=4, markevery=0.12, **look
            )
    axis.set(xscale="log", yscale="log", xlabel="Rank of the parameter", ylabel="Eigenvalue (squared nats)")
    for one in (axis.xaxis, axis.yaxis):
        powers(one)
    legend(figure, [*(style[arm.name].handle() for arm in arms), *_dashes(table, theme)])
    return figure


def directions(material: Material) -> Drawing | None:
    """None unless losses along random directions were measured."""
    table = results.read_rows(
        material.store, "directions", texts=("arm", "variable", "split"), numbers=("group", "seed", "t", *ABOUT)
    )
    if table is None:
        return None
    metrics, arms = measured(material, table), present(material, table)
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
        draw=lambda theme: _directions(table, metrics, arms, theme),
        data=table.to_dict("records"),
    )


def _directions(table: pd.DataFrame, metrics: list[Metric], arms: list[Arm], theme: Theme) -> Figure:
    splits = list(dict.fromkeys(table["split"]))
    figure, axes = panels(len(splits), len(metrics), 2.4, sharex=True)
    style = styles(arms, theme)
    for row, split in zip(axes, splits, strict=True):
        for axis, metric in zip(row, metrics, strict=True):
            for arm in arms:
                mine = table[(table["split"] == split) & (table["arm"] == arm.name)]
                for k, name in enumerate(_variables(mine)):
                    by = mine[mine["variable"] == name].groupby("t")[metric.name]
                    mean, low, high = (metric.scale * s for s in (by.mean(), by.min(), by.max()))
                    colour = style[arm.name].colour
                    axis.plot(
                        mean.index, mean, color=colour, linestyle=LINES[k % len(LINES)],
                        marker=style[arm.name].marker, markersize=3, markevery=5,
                    )  # fmt: skip
                    axis.fill_between(mean.index, low, high, color=colour, alpha=0.12, linewidth=0)
            values = table[table["split"] == split][metric.name]
            if values.min() > 0 and values.max() > STEEP * values.min():
                axis.set_yscale("log")
                powers(axis.yaxis)
            axis.set_ylabel(metric.label)
            axis.set_title(f"{split}")
    for axis in axes[-1]:
        axis.set_xlabel("t, in units of the filters' norms")
        axis.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−0.5", "0", "0.5", "1"])
    legend(figure, [*(style[arm.name].handle() for arm in arms), *_dashes(table, theme)])
    return figure


def plane(material: Material) -> Drawing | None:
    """None unless planes through three samples were measured."""
    table = results.read_rows(material.store, "plane", texts=("arm",), numbers=("group", "x", "y"))
    corners = results.read_rows(material.store, "plane_samples", texts=("arm",), numbers=("group", "x", "y", *ABOUT))
    if table is None or corners is None:
        return None
    metrics = measured(material, table, most=1)
    arms = [arm for arm in present(material, table) if arm.name in set(corners["arm"])]
    if not metrics or not arms:
        return None
    (metric,) = metrics
    return Drawing(
        name="plane",
        title="On the plane through three samples",
        caption=(
            f"{metric.label} on {material.comparison.split} of the networks in the plane that three samples of an arm "
            "span (Garipov et al. 2018); axes are distances from the first, in the unit of the weights. White circles: "
            "the samples, by chain and number. Beyond the colour bar's end values are not told apart."
        ),
        alt=f"Contours of {metric.label} on a plane through three samples of each arm",
        draw=lambda theme: _plane(table, corners, metric, arms, theme),
        data=[*table.to_dict("records"), *corners.assign(sample=True).to_dict("records")],
    )


def _plane(table: pd.DataFrame, corners: pd.DataFrame, metric: Metric, arms: list[Arm], theme: Theme) -> Figure:
    figure, axes = maps(arms, 3.0 if len(arms) > 2 else 3.8)
    values = metric.scale * table[metric.name]
    low, high = float(values.min()), float(np.quantile(values, 0.95))
    levels = MaxNLocator(LEVELS).tick_values(low, high if high > low else low + 1)
    shades = None
    for axis, arm in zip(axes, arms, strict=True):
        grid = table[table["arm"] == arm.name].pivot_table(index="y", columns="x", values=metric.name)
        z = metric.scale * grid.to_numpy()
        shades = axis.contourf(grid.columns, grid.index, z, levels=levels, cmap=heat(theme), extend="max")
        axis.contour(grid.columns, grid.index, z, levels=levels, colors=theme.muted, linewidths=0.4)
        _corners(axis, corners[corners["arm"] == arm.name], theme)
        axis.set_title(title(arm), fontsize=8.5)
        axis.set_aspect("equal", anchor="N")
        axis.set_xlabel("Towards the second")
        axis.grid(False)
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(MaxNLocator(4))
    axes[0].set_ylabel("At right angles")
    assert shades is not None
    bar = figure.colorbar(shades, ax=axes, shrink=0.8, pad=0.02, panchor=False, format=PLAIN)
    bar.set_label(metric.label)
    return figure


def _corners(axis: Axes, samples: pd.DataFrame, theme: Theme) -> None:
    axis.plot(samples["x"], samples["y"], "o", markersize=6, color="#ffffff", markeredgecolor="#1f2328")
    for _, one in samples.iterrows():
        axis.annotate(
            f"{int(one['chain']) + 1}.{int(one['index']) + 1}", (one["x"], one["y"]), xytext=(5, 5),
            textcoords="offset points", fontsize=8, color=theme.ink,
            bbox={"facecolor": theme.paper, "edgecolor": "none", "alpha": 0.75, "pad": 1},
        )  # fmt: skip


def _variables(table: pd.DataFrame) -> list[str]:
    return sorted(set(table["variable"]), key=lambda name: (name != "theta", name))


def _dashes(table: pd.DataFrame, theme: Theme) -> list[Line2D]:
    """Entries for θ and θₐ where both are there."""
    names = _variables(table)
    looks: list[Any] = [LINES[k % len(LINES)] for k in range(len(names))]
    return [
        Line2D([], [], color=theme.muted, linestyle=look, label=variable(name))
        for name, look in zip(names, looks, strict=True)
        if len(names) > 1
    ]
