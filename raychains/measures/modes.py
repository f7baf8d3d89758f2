"""The share of the draws that each mode of a mixture holds, with the mode's exact mass: a part of `diagnostics`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raychains.evaluation.evaluation import Array
from raychains.evaluation.exact import Modes, ModeShare
from raychains.inference.run_data import RunData
from raychains.measures import draws, panels
from raychains.measures.measure import Context, Row
from raychains.plotting import layout
from raychains.plotting.charts import DASHED, DOT, SHADE, Axis, Bars, Chart, Line, Mark, Panel, Rule
from raychains.plotting.style import Drawing

AT_ONCE = 2_000
"""Draws whose responsibilities are computed at a time."""
COLUMNS = 2
NAMED = 8
"""Modes up to which each is named; of more every fifth."""


def rows(context: Context) -> list[Row]:
    """Return rows of ``modes``: arm, group, repeat, mode, number (from 0), draws, share, exact (nan at T ≠ 1).

    None of a task that has no modes. A draw counts for a mode with its responsibility, see `ModeShare`.
    """
    known = context.task.reference() if context.task.low_dimensional else None
    if known is None or known.modes is None:
        return []
    modes, root, found = known.modes, context.store.root, []
    for a, g in context.groups:
        chains = context.comparison.arms[a].chains[g]
        exact = draws.target_of(context.task, chains[0]).exact
        weights = modes.weights if exact is not None else np.full(len(modes.names), np.nan)
        sums = sum(_sums(draws.read(root, spec).values, modes) for _, spec in draws.finished(root, chains))
        for lane, (count, *held) in enumerate(np.asarray(sums)):
            about = {"arm": context.arm_name(a), "group": g, "repeat": g * chains[0].lanes + lane}
            for k, name in enumerate(modes.names):
                shares = {"draws": int(count), "share": float(held[k] / count), "exact": float(weights[k])}
                found.append({**about, "mode": name, "number": k, **shares})
    return found


def _sums(values: Array, modes: Modes) -> Array:
    """Return the number of draws [draws, lanes, dim] and the sum of each mode's responsibilities, [lanes, 1 +
    modes]."""
    share = ModeShare(centres=modes.centres, scales=modes.scales, weights=modes.weights, mode=0)
    parts = [share.predict({"theta": values[i : i + AT_ONCE]}, 0) for i in range(0, len(values), AT_ONCE)]
    return np.sum(parts, axis=0)


@panels.drawn_from("modes", "arm mode", "repeat number draws share exact")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw the modes' shares; None of a target without modes, and before chains are diagnosed."""
    tempered = not np.isfinite(table["exact"]).all()
    return Drawing(
        name="modes",
        title="Masses of the modes",
        caption=(
            "Share of the draws that each mode holds: a dot per repeat, all chains of the arm together, the bar their "
            f"mean. Dashed: the mode's exact mass{', known at temperature 1 only' if tempered else ''}. No gradient "
            "sees it: the Stein discrepancy is blind to these shares."
        ),
        alt="Share of the draws in each mode for every arm and repeat, with the exact masses",
        draw=_chart(run, table),
        data=table.to_dict("records"),
    )


def _chart(run: RunData, table: pd.DataFrame) -> Chart:
    shown = []
    for arm in panels.present(run, table):
        mine, marks = table[table["arm"] == arm.name], list[Mark]()
        names = mine.drop_duplicates("number").sort_values("number")
        style, size = {"color": run.arm_styles[arm].colour}, 2.8 if len(names) > NAMED else 4.5
        for number, exact in zip(names["number"], names["exact"], strict=True):
            shares = mine[mine["number"] == number]["share"].to_numpy()
            at = number + layout.apart(len(shares), 0.22)
            dots = {**DOT, **style, "markersize": size, "markeredgewidth": 0}
            marks += [
                Bars(x=[number], height=[shares.mean()], width=0.72, style={**style, "alpha": 0.35}),
                Line(x=at, y=shares, style=dots),
            ]
            if np.isfinite(exact):
                marks.append(Rule(at=exact, ends=(number - 0.45, number + 0.45)))
        named = names.iloc[:: 1 if len(names) <= NAMED else 5]
        x = Axis(label="Mode", ticks=dict(zip(named["number"], named["mode"], strict=True)), grid=False)
        y = Axis(label="Share of draws", low=0)
        shown.append(Panel(marks=marks, x=x, y=y, title=arm.label))
    legend = [("a repeat", {**DOT, "markersize": 4}), ("mean", SHADE), ("exact mass", DASHED)]
    return Chart(panels=shown, columns=COLUMNS, height=1.9, share_x=True, share_y=True, legend=legend)
