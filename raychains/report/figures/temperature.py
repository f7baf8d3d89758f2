"""The temperature that chains really have, beside the one that they were set to."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raychains.report.figures.dots import APART, DASHED, dots, grid, handle
from raychains.report.figures.layout import legend, log_axis
from raychains.report.material import Material
from raychains.report.results import read_rows
from raychains.report.style import Drawing, Theme

CONFIGURATIONAL, KINETIC = "configurational", "kinetic"
FEW = 15
"""Repeats up to which each one's error stands out."""


def drawing(material: Material) -> Drawing | None:
    """None before chains are diagnosed, and without an estimate."""
    table = read_rows(
        material.store, "temperatures", texts=("arm", "kind"), numbers=("repeat", "set", "estimate", "error", "draws")
    )
    if table is None:
        return None
    there = table[np.isfinite(table["estimate"])]
    if not len(there):
        return None
    return Drawing(
        name="temperatures",
        title="Temperatures",
        caption=(
            "Configurational, ⟨(θ − c)·∇U(θ)⟩/d: T when draws follow exp(−U/T), a dot per repeat. Kinetic, ⟨p·∇K(p)⟩/d from "
            "the momenta at progress records: T when momenta follow exp(−K/T), a dot per group of chains. Bars: ± one standard "
            "error where there are draws enough. Dashed: the temperature that was set. Above it the step size or the gradients' "
            "noise heats; a configurational one far below it says that chains have not spread yet."
        ),
        alt="Configurational and kinetic temperatures of every arm, with the temperature that was set",
        draw=lambda theme: _draw(material, there, theme),
        data=there.to_dict("records"),
    )


def _draw(material: Material, table: pd.DataFrame, theme: Theme) -> Figure:
    arms = material.comparison.arms
    kinds = [k for k in (CONFIGURATIONAL, KINETIC) if (table["kind"] == k).any()]
    figure, axes = grid(arms, len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        _panel(axis, material, table[table["kind"] == kind], theme)
        axis.set_xlabel(f"{kind.capitalize()} temperature")
    legend(
        figure,
        [
            handle("estimate ± standard error", color=theme.muted, marker="o", markersize=4.5, linewidth=1),
            handle("set temperature", color=theme.ink, linestyle=DASHED, linewidth=1),
        ],
    )
    return figure


def _panel(axis: Axes, material: Material, table: pd.DataFrame, theme: Theme) -> None:
    for line, arm in enumerate(material.comparison.arms):
        mine = table[table["arm"] == arm.name].sort_values("repeat")
        if not len(mine):
            continue
        apart = np.linspace(-APART, APART, len(mine)) if len(mine) > 1 else np.zeros(1)
        errors = np.nan_to_num(mine["error"].to_numpy())
        colour, many = theme.colour(material.looks[arm]), len(mine) > FEW
        dots(axis, line, mine["estimate"].to_numpy(), color=colour)
        axis.hlines(
            line + apart, mine["estimate"] - errors, mine["estimate"] + errors,
            color=colour, linewidth=0.6 if many else 1.2, alpha=0.35 if many else 0.85,
        )  # fmt: skip
        axis.vlines(mine["set"].iloc[0], line - 0.45, line + 0.45, color=theme.ink, linestyle=DASHED, linewidth=1)
    if table["estimate"].min() > 0 and table["estimate"].max() > 20 * table["estimate"].min():
        axis.set_xscale("log")
        log_axis(axis.xaxis, subs=(1.0,))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.margins(x=0.05)
