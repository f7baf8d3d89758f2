"""A map of the samples whose distances are those of their weights, as nearly as a plane can show them (Fig. 3a)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.planning import Arm
from raychains.report import results
from raychains.report.figures.arms import ABOUT, first_groups, present, variable
from raychains.report.figures.layout import legend
from raychains.report.figures.styles import MARKERS, styles
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme

MOST_LABELS = 12
"""Cycles of a chain that are numbered in the map."""
PLAIN = 0.2
"""Stress above which the map says little (Kruskal 1964)."""


def drawing(material: Material) -> Drawing | None:
    """None unless the samples' diversity was measured."""
    numbers = ("group", "map", "x", "y", "stress", *ABOUT)
    table = results.read_rows(material.store, "embedding", texts=("arm", "variable"), numbers=numbers)
    counts = results.read_rows(
        material.store, "clusters", texts=("arm",), numbers=("group", "samples", "clusters", "silhouette")
    )
    if table is None or counts is None:
        return None
    table = table[table["group"] == table["group"].min()]  # groups of repeats have maps of their own
    clusters = first_groups(counts).set_index("arm")
    arms = [arm for arm in present(material, table) if arm.name in clusters.index]
    if not arms:
        return None
    stress = float(table["stress"].max())
    doubt = ", so that it says little" if stress > PLAIN else ""
    return Drawing(
        name="embedding",
        title="Samples in weight space",
        caption=(
            f"Every sample, placed so that distances in the map are those of all parameters as nearly as a plane can "
            f"show them (metric multidimensional scaling, stress {stress:.2f}{doubt}); axes have no other meaning. "
            "Numbers are cycles. Clusters are counted on the distances themselves by their silhouette: one where none "
            "of 2 to 6 exceeds 0.5." + _shared(table) + _maps(table)
        ),
        alt="A map of the samples of every arm: " + "; ".join(f"{a.label} forms {_count(clusters, a)}" for a in arms),
        draw=lambda theme: _draw(material, arms, table, clusters, theme),
        data=table.to_dict("records"),
    )


def _shared(table: pd.DataFrame) -> str:
    twice = table.duplicated(["map", "x", "y"]).any()
    return " Samples that arms share are drawn for the first of them." if twice else ""


def _maps(table: pd.DataFrame) -> str:
    return " Arms of different networks have maps of their own." if table["map"].nunique() > 1 else ""


def _count(clusters: pd.DataFrame, arm: Arm) -> str:
    n = int(clusters.loc[arm.name, "clusters"])
    return f"{n} cluster{'s' * (n != 1)}"


def _draw(material: Material, arms: list[Arm], table: pd.DataFrame, clusters: pd.DataFrame, theme: Theme) -> Figure:
    # Arms of one sampler on one map share a panel; a map's other samples stand pale behind them.
    map_of = dict(zip(table["arm"], table["map"], strict=True))
    shown = [
        (number, panel.title, [a for a in panel.arms if a in arms and map_of[a.name] == number])
        for number in sorted(set(table["map"]))
        for panel in material.looks.panels
    ]
    shown = [panel for panel in shown if panel[2]]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    one_map = table["map"].nunique() == 1
    figure = Figure(figsize=(WIDTH, rows * (4.0 if columns == 1 else 6.6 / columns) + 0.6))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=one_map, sharey=one_map)
    axes = [axis for row in grid for axis in row]
    style = styles(arms, theme)
    first = table[~table.duplicated(["map", "x", "y"])]
    for axis, (number, name, group) in zip(axes, shown, strict=False):
        others = first[(first["map"] == number) & ~first["arm"].isin([a.name for a in group])]
        axis.plot(others["x"], others["y"], "o", color=theme.grid, markersize=3, zorder=1)
        names = [a.name for a in group]
        own = table[table["arm"].isin(names)]
        own = own[~own.duplicated(["x", "y"])]
        for arm in group:
            _samples(axis, own[own["arm"] == arm.name], style[arm.name].colour, theme)
        axis.set_title(name)
        axis.set_xlabel("First axis (unit of the weights)")
        axis.set_aspect("equal", adjustable="datalim")
        axis.margins(0.08)
    axes[0].set_ylabel("Second axis (unit of the weights)")
    for spare in axes[len(shown) :]:
        spare.set_axis_off()
    handles = [
        Line2D([], [], color=style[a.name].colour, marker="o", linestyle="", markersize=6,
               label=f"{a.label}: {_count(clusters, a)}")
        for a in arms
    ]  # fmt: skip
    legend(figure, [*handles, *_kinds(first, theme)], columns=2)
    return figure


def _samples(axis: Axes, mine: pd.DataFrame, colour: str, theme: Theme) -> None:
    for (chain, name), some in mine.groupby(["chain", "variable"]):
        filled = name == "theta"
        axis.plot(
            some["x"], some["y"], linestyle="", marker=MARKERS[int(chain) % len(MARKERS)], markersize=6.5,
            markerfacecolor=colour if filled else "none", markeredgecolor=theme.paper if filled else colour,
            markeredgewidth=0.6 if filled else 1.1, zorder=2,
        )  # fmt: skip
    theta = mine[mine["variable"] == max(mine["variable"], default="")]  # theta where there is one
    for _, chain_of in theta.groupby("chain"):
        cycles = chain_of.groupby("cycle")[["x", "y"]].last()
        if 1 < len(cycles) <= MOST_LABELS:
            for cycle, (x, y) in zip(cycles.index, cycles.to_numpy().tolist(), strict=True):
                axis.annotate(
                    str(int(cycle) + 1), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8.5, color=theme.ink,
                )  # fmt: skip


def _kinds(table: pd.DataFrame, theme: Theme) -> list[Line2D]:
    """Entries for chains' markers and for θₐ, where there is anything to tell apart."""
    chains = sorted(set(table["chain"].astype(int)))
    found = [
        Line2D([], [], color=theme.muted, marker=MARKERS[c % len(MARKERS)], linestyle="", markersize=6, label=f"chain {c + 1}")
        for c in chains[: len(MARKERS)]
        if len(chains) > 1
    ]  # fmt: skip
    others = sorted(set(table["variable"]) - {"theta"})
    hollow = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markersize": 6}
    return found + [Line2D([], [], color=theme.muted, label=f"{variable(v)} (hollow)", **hollow) for v in others]  # type: ignore[arg-type]
