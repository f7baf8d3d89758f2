"""Figures of several runs in one: every repeat, entropies of companion sets, maps of the samples."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.plotting.charts import Axis, Chart, Line, Panel, Style
from raychains.plotting.style import MARKERS, MUTED, Drawing, hue
from raychains.report.figures import spread

LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""One per arm of a run."""
NAMES = {"inside": "the runs' own split"}
"""Names of companion sets on the figure, where not their own."""
Found = Sequence[tuple[int, RunData, pd.DataFrame]]
"""Runs by their place, each with a measure's table."""


def _entry(i: int, name: str, **style: Any) -> tuple[str, Style]:
    return _short(name), {"color": hue(i), "marker": MARKERS[i % len(MARKERS)], "markersize": 5, **style}


def _short(name: str) -> str:
    """A name that fits into a legend: its end tells stores apart."""
    return name if len(name) <= 48 else "…" + name[-47:]


def repeats(runs: Sequence[RunData], names: Sequence[str]) -> Drawing:
    """Every repeat of every arm of every run, with mean and standard error."""
    metrics = {m.name: m for run in runs for m in run.metrics}
    arms = [
        spread.of_arm(run, a, hue(i), MARKERS[i % len(MARKERS)])
        for i, run in enumerate(runs)
        for a in run.comparison.arms
    ]
    legend = [_entry(i, name, linestyle="") for i, name in enumerate(names)]
    rules = np.cumsum([len(run.comparison.arms) for run in runs])[:-1] - 0.5
    return Drawing(
        name="spread",
        title="Every repeat of every run",
        caption="One point per repeat; the bar is the mean, its ends ± one standard error.",
        alt="Each metric's value in every repeat of every arm of the runs",
        draw=spread.chart(list(metrics.values()), arms, legend, rules.tolist()),
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
        draw=_entropies(found, names),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _entropies(found: Found, names: Sequence[str]) -> Chart:
    shown = []
    for companion in dict.fromkeys(c for _, _, rows in found for c in rows["companion"]):
        lines = []
        for i, run, rows in found:
            for a, arm in enumerate(run.comparison.arms):
                mine = run.of(rows, arm)
                curve = mine[mine["companion"] == companion].groupby("entropy")["cdf"].mean()  # over the repeats
                style = {"color": hue(i), "linestyle": LINES[a % len(LINES)]}
                lines.append(Line(x=curve.index, y=curve, style=style))
        x = Axis(label="Predictive entropy (nats)", low=0)
        y = Axis(label="Share of examples below", low=0, high=1.02)
        shown.append(Panel(marks=lines, x=x, y=y, title=NAMES.get(companion, companion)))
    legend = [_entry(i, names[i], marker="") for i, _, _ in found]
    return Chart(panels=shown, columns=3, height=2.7, share_y=True, legend=legend, legend_columns=2)


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
        draw=_embeddings(_maps(found), names),
        data=[{"run": names[i], **row} for i, _, rows in found for row in rows.to_dict("records")],
    )


def _maps(found: Found) -> Found:
    """The maps of each run's first group of repeats: arms of different networks have maps of their own."""
    first = [(i, run, rows[rows["group"] == rows["group"].min()]) for i, run, rows in found]
    parts = [(i, run, rows.groupby("map") if "map" in rows else [(0, rows)]) for i, run, rows in first]
    return [(i, run, part) for i, run, each in parts for _, part in each]


def _embeddings(found: Found, names: Sequence[str]) -> Chart:
    limit = 1.1 * max(float(np.nanmax(np.abs(rows[["x", "y"]].to_numpy(dtype=float)))) for _, _, rows in found)
    x, y = (Axis(label=f"MDS axis {n}", low=-limit, high=limit) for n in (1, 2))

    def shape(a: int, hue: str) -> Style:
        """Marker of an arm by its number in its run: hollow once all markers are in use."""
        filled = hue if a < len(MARKERS) else "none"
        return {"marker": MARKERS[a % len(MARKERS)], "linestyle": "", "color": hue, "markerfacecolor": filled}

    shown, most = [], 0
    for i, run, rows in found:
        of_arms = [run.of(rows, arm) for arm in run.comparison.arms]
        most = max(most, *(a + 1 for a, mine in enumerate(of_arms) if len(mine)))
        dots = [Line(x=m["x"], y=m["y"], style={**shape(a, hue(i)), "alpha": 0.8}) for a, m in enumerate(of_arms)]
        title = textwrap.shorten(_short(names[i]), 40, placeholder="…")
        shown.append(Panel(marks=dots, x=x, y=y, title=title, equal="box"))
    legend = [(f"arm {a + 1} of its run", shape(a, MUTED)) for a in range(most)] if most > 1 else []
    of: Any = {"share_x": True, "share_y": True, "legend": legend, "legend_columns": 4}
    return Chart(panels=shown, columns=3, height=8.0 / min(len(found), 3), **of)


FIGURES: Mapping[str, Callable[[Sequence[RunData], Sequence[str]], Drawing | None]] = {
    "spread": repeats,
    "entropies": entropies,
    "embeddings": embeddings,
}
"""By the figure's name, in the page's order."""
