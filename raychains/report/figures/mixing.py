"""Whether chains mix: split R-hat and bulk effective sample size of every quantity, beside the usual thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from raychains.report.figures.dots import DASHED, dots, grid, handle, wanted
from raychains.report.figures.layout import COUNT, legend, log_axis
from raychains.report.material import Material
from raychains.report.results import read_rows
from raychains.report.style import Drawing, Theme

R_HAT, ESS = 1.01, 400
"""Vehtari et al. 2021: below and above, chains of four agree well enough to trust their means and quantiles."""
LEAST = 1e-3
"""R-hat − 1 is drawn no smaller than this."""
TEXTS = ("arm", "variable", "quantity", "unit", "notice")
NUMBERS = ("repeat", "chains", "draws", "bulk_ess", "tail_ess", "r_hat")


def drawing(material: Material) -> Drawing | None:
    """None before chains are diagnosed, and where too few draws leave nothing to tell."""
    table = read_rows(material.store, "diagnostics", texts=TEXTS, numbers=NUMBERS)
    if table is None:
        return None
    rows = [r for r in table.to_dict("records") if np.isfinite(r["bulk_ess"]) or np.isfinite(r["r_hat"])]
    if not rows:
        return None
    silent = [a.label for a in material.comparison.arms if not any(r["arm"] == a.name for r in rows)]
    cyclical = any(r["unit"] == "cycle" for r in rows) or any("cycles" in r["notice"] for r in rows)
    caption = (
        "One dot per quantity and repeat: coordinates or projections of θ, the log density or what networks predict. Left: "
        f"split R-hat (rank-normalised), dashed: {R_HAT}; dots at the left edge are at or below {1 + LEAST:g}. Right: bulk "
        f"effective sample size of all chains together, dashed: {ESS}."
    )
    if cyclical:
        caption += (
            " Under a cyclical step size a chain's draws are no stationary chain; open dots take every cycle of every chain "
            "as a chain of its own."
        )
    if silent:
        caption += f" Too few draws for numbers: {', '.join(silent)}."
    return Drawing(
        name="mixing",
        title="Agreement of chains and effective sample sizes",
        caption=caption,
        alt="Split R-hat and bulk effective sample size of each quantity in every arm, with thresholds",
        draw=lambda theme: _draw(material, rows, theme),
        data=[{k: r[k] for k in (*TEXTS, *NUMBERS)} for r in rows],
    )


def _draw(material: Material, rows: list[dict[str, Any]], theme: Theme) -> Figure:
    arms = material.comparison.arms
    figure, (left, right) = grid(arms, 2)
    for line, arm in enumerate(arms):
        colour = theme.colour(material.looks[arm])
        for unit in ("chain", "cycle"):
            mine = [r for r in rows if r["arm"] == arm.name and r["unit"] == unit]
            style: dict[str, Any] = {"color": colour}
            if unit == "cycle":
                style |= {"markerfacecolor": "none", "markeredgewidth": 1, "alpha": 0.9}
            dots(left, line, np.maximum(np.array([r["r_hat"] for r in mine]) - 1, LEAST), **style)
            dots(right, line, np.array([r["bulk_ess"] for r in mine]), **style)
    left.set_xscale("log")
    left.xaxis.set_major_locator(LogLocator(base=10))
    left.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{1 + v:g}"))
    left.xaxis.set_minor_locator(NullLocator())
    left.set_xlim(left=LEAST * 0.8, right=max(left.get_xlim()[1], 0.05))
    wanted(left, R_HAT - 1, theme)
    left.set_xlabel("Split R-hat   ← better")
    right.set_xscale("log")
    log_axis(right.xaxis, subs=(1.0,))
    right.xaxis.set_major_formatter(COUNT)
    low, high = right.get_xlim()
    right.set_xlim(min(low, ESS / 2), max(high, ESS * 2))
    wanted(right, ESS, theme)
    right.set_xlabel("Bulk effective sample size   → better")
    entries = [handle("chains as they ran", color=theme.muted, marker="o", linestyle="", markersize=4.5)]
    if any(r["unit"] == "cycle" for r in rows):
        look: dict[str, Any] = {"markerfacecolor": "none", "linestyle": "", "markersize": 4.5}
        entries.append(handle("every cycle as a chain", color=theme.muted, marker="o", **look))
    entries.append(handle("threshold", color=theme.ink, linestyle=DASHED, linewidth=0.9))
    legend(figure, entries, columns=3)
    return figure
