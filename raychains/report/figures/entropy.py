"""How unsure the predictives are of other sets' inputs: distribution functions of their entropy (cSG-MCMC Fig. 4)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains.analyses.ood import INSIDE
from raychains.evaluation.metrics import SURE
from raychains.report import results
from raychains.report.figures.layout import legend, panels
from raychains.report.figures.styles import Style, styles
from raychains.report.material import Material
from raychains.report.style import Drawing, Theme

COLUMNS = 3
MARKERS_PER_CURVE = 8


def drawing(material: Material) -> Drawing | None:
    """None unless other sets' inputs were evaluated."""
    table = results.read_rows(
        material.store, "entropy_cdf", texts=("arm", "companion"), numbers=("group", "entropy", "cdf")
    )
    if table is None:
        return None
    mean = table.groupby(["companion", "arm", "entropy"], sort=False)["cdf"].mean().reset_index()
    companions = [name for name in dict.fromkeys(mean["companion"]) if name != INSIDE]
    if not companions:
        return None
    return Drawing(
        name="entropy",
        title="Predictive entropy of other sets' inputs",
        caption=(
            "Share of the inputs whose predictive entropy is at most x: of another set's inputs a curve that stays low is "
            "less over-confident, of the run's own inputs one that rises early is surer. The dotted line marks "
            f"{SURE:g} nats. Mean over the repeats."
        ),
        alt="Distribution functions of predictive entropy of every arm, a panel for every set of inputs",
        draw=lambda theme: _draw(material, mean, companions, theme),
        data=mean.to_dict("records"),
    )


def _draw(material: Material, table: pd.DataFrame, companions: list[str], theme: Theme) -> Figure:
    titles = {INSIDE: f"own inputs ({material.comparison.split})"}
    shown = [name for name in (INSIDE, *companions) if name in set(table["companion"])]
    columns = min(COLUMNS, len(shown))
    figure, axes = panels(-(-len(shown) // columns), columns, 3.0, sharex=True, sharey=True)
    flat = [axis for row in axes for axis in row]
    found = {n: style for n, style in styles(material.comparison.arms, theme).items() if n in set(table["arm"])}
    for axis, companion in zip(flat, shown, strict=False):
        axis.axvline(SURE, color=theme.muted, linestyle=":", linewidth=1, zorder=1)
        for i, (name, style) in enumerate(found.items()):
            _curve(axis, table[(table["arm"] == name) & (table["companion"] == companion)], style, i)
        axis.set_title(titles.get(companion, companion))
        axis.set(xlim=(0, table["entropy"].max()), ylim=(0, 1.02))
        axis.set_xlabel("Predictive entropy (nats)")
        axis.tick_params(labelbottom=True)
    for axis in flat[len(shown) :]:
        axis.set_axis_off()
    for row in axes:
        row[0].set_ylabel("Share of inputs at or below")
    legend(figure, [style.handle() for style in found.values()], columns=3)
    return figure


def _curve(axis: Axes, curve: pd.DataFrame, style: Style, shift: int) -> None:
    x, y = curve["entropy"].to_numpy(), curve["cdf"].to_numpy()
    # Markers of different arms stand at different places, so that curves which coincide are seen.
    every = max(1, len(x) // MARKERS_PER_CURVE)
    marks: dict[str, Any] = {"marker": style.marker, "markersize": 4.5, "markevery": ((shift * 5) % every, every)}
    axis.plot(x, y, color=style.colour, linestyle=style.line, linewidth=1.3, zorder=3, **marks)
