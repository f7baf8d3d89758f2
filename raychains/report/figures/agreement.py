"""How alike the arms' predictives are, as two small maps."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from raychains.evaluation.base import Array
from raychains.planning import Arm
from raychains.report import results
from raychains.report.material import Material
from raychains.report.style import WIDTH, Drawing, Theme

MEASURES = {"agreement": "Same top class (%)", "total_variation": "Total variation (%)"}


def drawing(material: Material) -> Drawing | None:
    """None unless two arms' predictives were compared."""
    table = results.read_rows(
        material.store,
        "agreement",
        texts=("between", "first", "second"),
        numbers=("first_group", "second_group", *MEASURES),
    )
    if table is None:
        return None
    arms = [arm for arm in material.comparison.arms if arm.name in set(table["first"])]
    if len(arms) < 2:
        return None
    maps = {measure: _matrix(table, arms, measure) for measure in MEASURES}
    repeats = bool((table["between"] == "repeats").any())
    diagonal = "between an arm's repeats" if repeats else "empty: every arm was run once"
    return Drawing(
        name="agreement",
        title="Likeness of the predictives",
        caption=(
            "Left: share of the inputs with the same most probable class; right: mean total variation of the two "
            f"predictives. Mean over groups of repeats. The diagonal is {diagonal}."
        ),
        alt="Agreement and total variation of the predictives of each two arms",
        draw=lambda theme: _draw(arms, maps, theme),
        data=[
            {"first": a.name, "second": b.name, **{m: float(maps[m][i, j]) for m in MEASURES}}
            for i, a in enumerate(arms)
            for j, b in enumerate(arms)
        ],
    )


def _matrix(table: pd.DataFrame, arms: list[Arm], measure: str) -> Array:
    """Means over groups, [arms, arms]; on the diagonal those between repeats, nan where there are none."""
    between = table.groupby(["between", "first", "second"])[measure].mean()
    out = np.full((len(arms), len(arms)), np.nan)
    for i, a in enumerate(arms):
        for j, b in enumerate(arms):
            out[i, j] = between.get(("repeats" if i == j else "arms", a.name, b.name), np.nan)
    return out


def _draw(arms: list[Arm], maps: dict[str, Array], theme: Theme) -> Figure:
    n = len(arms)
    figure = Figure(figsize=(WIDTH, 1.0 + 0.36 * max(n, 3)))
    axes = figure.subplots(1, 2, sharey=True)
    colours = LinearSegmentedColormap.from_list("heat", theme.heat[:4]).with_extremes(bad=theme.paper)
    for axis, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        values = 100 * maps[measure]
        found = values[np.isfinite(values)]
        high = float(found.max()) if len(found) else 1.0
        # The least likely pair is shaded too: only where nothing was compared there is paper.
        low = high - max(1.0, 1.3 * (high - float(found.min()) if len(found) else 0.0))
        axis.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
        _numbers(axis, values, (low, high), colours, theme)
        axis.set_title(label)
        axis.set_xticks(range(n), [str(k + 1) for k in range(n)])
        axis.set_yticks(
            range(n), [f"{textwrap.shorten(a.label, 28, placeholder='…')}  {k + 1}" for k, a in enumerate(arms)]
        )
        axis.set_xlabel("Arm")
        axis.grid(False)
        axis.tick_params(length=0)
    return figure


def _numbers(axis: Axes, values: Array, span: tuple[float, float], colours: Colormap, theme: Theme) -> None:
    low, high = span
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            shade = to_rgb(colours((value - low) / (high - low)))
            axis.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=_readable(shade, theme))


def _readable(shade: tuple[float, float, float], theme: Theme) -> str:
    """Ink or paper, whichever stands out more on a shade."""

    def light(rgb: tuple[float, float, float]) -> float:
        return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]

    return max((theme.ink, theme.paper), key=lambda c: abs(light(to_rgb(c)) - light(shade)))
