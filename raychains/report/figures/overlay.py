"""Figures of several runs in one: every repeat, entropies of companion sets, maps of the samples."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.plotting.layout import entry, grid, legend
from raychains.plotting.style import INK, MARKERS, MUTED, Drawing, hue
from raychains.report.figures import spread

LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""One per arm of a run."""
NAMES = {"inside": "the runs' own split"}
"""Names of companion sets on the figure, where not their own."""
Found = Sequence[tuple[int, RunData, pd.DataFrame]]
"""Runs by their place, each with a measure's table."""


def _entry(i: int, name: str, **style: Any) -> Line2D:
    return entry(_short(name), **{"color": hue(i), "marker": MARKERS[i % len(MARKERS)], "markersize": 5, **style})


def _short(name: str) -> str:
    """A name that fits into a legend: its end tells stores apart."""
    return name if len(name) <= 48 else "…" + name[-47:]


def repeats(runs: Sequence[RunData], names: Sequence[str]) -> Drawing:
    """Every repeat of every arm of every run, with mean and standard error."""
    metrics = {m.name: m for run in runs for m in run.metrics}

    def draw() -> Figure:
        arms = [
            spread.of_arm(run, arm, hue(i), MARKERS[i % len(MARKERS)])
            for i, run in enumerate(runs)
            for arm in run.comparison.arms
        ]
        figure, axes = spread.draw(list(metrics.values()), arms)
        for axis in axes:
            for y in np.cumsum([len(run.comparison.arms) for run in runs])[:-1]:
                axis.axhline(y - 0.5, color=MUTED, linewidth=0.7)
        entries = [_entry(i, name, linestyle="") for i, name in enumerate(names)]
        bar = entry("mean ± s.e.", color=INK, marker="|", linewidth=1.2, markersize=9)
        legend(figure, [*entries, bar], columns=3)
        return figure

    return Drawing(
        name="spread",
        title="Every repeat of every run",
        caption="One point per repeat; the bar is the mean, its ends ± one standard error.",
        alt="Each metric's value in every repeat of every arm of the runs",
        draw=draw,
        data=[
            {"run": name, "arm": row["arm"], "repeat": row["repeat"], **{m: row[m] for m in metrics if m in row}}
            for run, name in zip(runs, names, strict=True)
            for row in run.results.to_dict("records")
        ],
    )


def _tables(runs: Sequence[RunData], table: str, texts: Sequence[str], numbers: Sequence[str]) -> Found:
    found = [results.read_rows(run.store, table, texts=texts, numbers=numbers) for run in runs]
    return [(i, runs[i], rows) for i, rows in enumerate(found) if rows is not None]


def entropies(runs: Sequence[RunData], names: Sequence[str]) -> Drawing | None:
    """Entropy's distribution on each companion set; None where fewer than two runs were measured on any."""
    found = _tables(runs, "entropy_cdf", ("arm", "companion"), ("entropy", "cdf"))
    if len(found) < 2:
        return None
    return Drawing(
        name="entropies",
        title="Predictive entropy on companion sets",
        caption=(
            "Share of the examples whose predictive entropy is below the value on the axis, mean over the repeats. "
            "Colours are runs, line styles the arms of each in their order. On sets unlike the training data a curve "
            "that stays low is better."
        ),
        alt="Cumulative distribution of the predictive entropy on every companion set, by run and arm",
        draw=lambda: _entropies(found, names),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _entropies(found: Found, names: Sequence[str]) -> Figure:
    companions = list(dict.fromkeys(c for _, _, rows in found for c in rows["companion"]))
    figure, axes = grid(len(companions), 3, 2.7, sharey=True)
    for axis, companion in zip(axes, companions, strict=True):
        for i, run, rows in found:
            for a, arm in enumerate(run.comparison.arms):
                mine = run.of(rows, arm)
                curve = mine[mine["companion"] == companion].groupby("entropy")["cdf"].mean()  # over the repeats
                axis.plot(curve.index, curve, color=hue(i), linestyle=LINES[a % len(LINES)])
        axis.set(title=NAMES.get(companion, companion), xlabel="Predictive entropy (nats)", ylim=(0, 1.02))
        axis.set_xlim(left=0)
    for axis in axes[::3]:
        axis.set_ylabel("Share of examples below")
    legend(figure, [_entry(i, names[i], marker="") for i, _, _ in found], columns=2)
    return figure


def embeddings(runs: Sequence[RunData], names: Sequence[str]) -> Drawing | None:
    """Each run's map of its samples; None where fewer than two runs have one."""
    found = _tables(runs, "embedding", ("arm",), ("group", "x", "y"))
    if len(found) < 2:
        return None
    return Drawing(
        name="embeddings",
        title="Maps of the samples",
        caption=(
            "Multidimensional scaling of the distances between samples in weight space, first group of repeats. Every "
            "panel is a map of its own: directions and positions mean nothing across panels, distances share one scale."
        ),
        alt="Two-dimensional maps of the samples of each run, side by side",
        draw=lambda: _embeddings(_maps(found), names),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _maps(found: Found) -> Found:
    """The maps of each run's first group of repeats: arms of different networks have maps of their own."""
    first = [(i, run, rows[rows["group"] == rows["group"].min()]) for i, run, rows in found]
    parts = [(i, run, rows.groupby("map") if "map" in rows else [(0, rows)]) for i, run, rows in first]
    return [(i, run, part) for i, run, each in parts for _, part in each]


def _embeddings(found: Found, names: Sequence[str]) -> Figure:
    figure, axes = grid(len(found), 3, 8.0 / min(len(found), 3), sharex=True, sharey=True)
    limit = 1.1 * max(float(np.nanmax(np.abs(rows[["x", "y"]].to_numpy(dtype=float)))) for _, _, rows in found)
    axes[0].set(xlim=(-limit, limit), ylim=(-limit, limit))

    def shape(a: int, hue: str) -> dict[str, Any]:
        """Marker of an arm by its number in its run: hollow once all markers are in use."""
        filled = hue if a < len(MARKERS) else "none"
        return {"marker": MARKERS[a % len(MARKERS)], "linestyle": "", "color": hue, "markerfacecolor": filled}

    most = 0
    for k, (axis, (i, run, rows)) in enumerate(zip(axes, found, strict=True)):
        for a, arm in enumerate(run.comparison.arms):
            mine = run.of(rows, arm)
            most = max(most, a + 1 if len(mine) else 0)
            axis.plot(mine["x"], mine["y"], alpha=0.8, **shape(a, hue(i)))
        axis.set_title(textwrap.shorten(_short(names[i]), 40, placeholder="…"))
        axis.set_aspect("equal")
        if k % 3 == 0:
            axis.set_ylabel("MDS axis 2")
        if k >= len(found) - 3:
            axis.set_xlabel("MDS axis 1")
            axis.tick_params(labelbottom=True)
    entries = [entry(f"arm {a + 1} of its run", **shape(a, MUTED)) for a in range(most)]
    legend(figure, entries if most > 1 else [], columns=4)
    return figure


FIGURES: Mapping[str, Callable[[Sequence[RunData], Sequence[str]], Drawing | None]] = {
    "spread": repeats,
    "entropies": entropies,
    "embeddings": embeddings,
}
"""By the figure's name, in the page's order."""
