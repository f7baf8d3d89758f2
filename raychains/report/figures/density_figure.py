"""Density of a low-dimensional chain's kept draws, and the exact target (cSG-MCMC's Figures 2 and 5)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from raychains.core.sample import THETA
from raychains.evaluation.evaluation import Array
from raychains.inference.run_data import RunData
from raychains.planning import Arm
from raychains.plotting.style import HEAT, MUTED, WIDTH, Drawing
from raychains.report.reference_values import MODES, is_mixture
from raychains.tasks.mixture import AXIS, RADIUS, VARIANCE

LIMIT = 5.2
"""Panels of the mixture show [−5.2, 5.2]²; the little that lies outside counts for the density but is not seen."""
BINS_PER_AXIS = 104
OUTSIDE, MARGIN = 0.005, 0.1
"""Panels of other targets leave this share of the draws out at either end of an axis, before they are widened by the
margin."""


class Window(NamedTuple):
    """The ends of both axes of the panels."""

    x: tuple[float, float] = (-LIMIT, LIMIT)
    y: tuple[float, float] = (-LIMIT, LIMIT)

    def edges(self, axis: int) -> Array:
        """The grid's edges along an axis, [bins + 1]."""
        return np.linspace(*self[axis], BINS_PER_AXIS + 1)

    def middles(self, axis: int) -> Array:
        """The middles of the grid's cells along an axis, [bins]."""
        edges = self.edges(axis)
        return (edges[1:] + edges[:-1]) / 2

    @property
    def cell(self) -> float:
        """The area of a cell."""
        return float(np.prod([(high - low) / BINS_PER_AXIS for low, high in self]))


SQUARE = Window()


def drawing(run: RunData) -> Drawing | None:
    """None unless draws are points of the plane."""
    if not run.by_blocks:
        return None
    arms = run.comparison.arms
    target = is_mixture(run.comparison)
    drawn = {arm.name: p for arm in arms if (p := points(run, arm)) is not None}
    if not drawn:
        return None
    window = SQUARE if target else around(np.concatenate(list(drawn.values())))
    histograms = {name: _density(p, window) for name, p in drawn.items()}
    shown = [Panel(a.label, _modes(run, a), histograms[a.name]) for a in arms if a.name in histograms]
    chain = run.comparison.arms[0].chains[0][0]
    first = chain.repeat * chain.lanes
    exact = (
        ", beside the exact target. The scale ends at the target's highest density, which chains that stay "
        "in a few modes exceed. Circles have the radius within which a draw counts for a mode"
    )
    return Drawing(
        name="density",
        title="Density of the kept draws",
        caption=f"All kept draws of repeat {first} of every arm, on one colour scale{exact if target else ''}.",
        alt="Two-dimensional histograms of the draws of each arm" + (", and the exact target" if target else ""),
        draw=lambda: draw(shown, target=target, window=window),
        data=[row for name, density in histograms.items() for row in cells(name, density, window)],
    )


def around(draws: Array) -> Window:
    """The window that holds nearly all of the draws [n, 2]."""
    ends = np.quantile(draws, [OUTSIDE, 1 - OUTSIDE], axis=0).T
    wide = np.maximum(ends[:, 1] - ends[:, 0], 1e-6 * (1 + np.abs(ends).max())) * MARGIN
    return Window(*((low - more, high + more) for (low, high), more in zip(ends.tolist(), wide.tolist(), strict=True)))


def cells(arm: str, density: Array, window: Window = SQUARE) -> list[dict[str, Any]]:
    """The grid's cells that hold draws: their middles and their density."""
    x, y = window.middles(0), window.middles(1)
    return [
        {"arm": arm, "theta_1": x[i], "theta_2": y[j], "density": density[i, j]} for i, j in np.argwhere(density > 0)
    ]


def gridded(rows: pd.DataFrame) -> Array:
    """The density [x, y] that `cells` gave as rows."""
    density = np.zeros((BINS_PER_AXIS, BINS_PER_AXIS))
    at = [np.rint((rows[n] + LIMIT) * BINS_PER_AXIS / (2 * LIMIT) - 0.5).astype(int) for n in ("theta_1", "theta_2")]
    density[at[0], at[1]] = rows["density"]
    return density


def histogram(run: RunData, arm: Arm) -> Array | None:
    """Density of an arm's first lane on the mixture's grid, [x, y]; None without draws in two dimensions."""
    found = points(run, arm)
    return None if found is None else _density(found, SQUARE)


def _density(draws: Array, window: Window) -> Array:
    counts = np.histogram2d(draws[:, 0], draws[:, 1], bins=(window.edges(0), window.edges(1)))[0]
    return counts / (len(draws) * window.cell)


def points(run: RunData, arm: Arm) -> Array | None:
    """The draws of an arm's first lane, [n, 2]; None without draws in two dimensions."""
    found = []
    for spec in run.chains(arm):
        chain = run.chain(spec.digest)
        for record in chain.records():
            if record.meta.variable != THETA:
                continue
            tensors, _ = chain.sample(record.file)
            draws = next(iter(tensors.values())).numpy()
            if draws.ndim != 3 or draws.shape[2] != 2:
                return None
            found.append(draws[:, 0])
    return np.concatenate(found) if found else None


def exact_density() -> Array:
    """The mixture's density at the grid's cells, [x, y]: a product of two equal factors."""
    middle = SQUARE.middles(0)
    kernel = np.exp(-((middle[:, None] - np.asarray(AXIS)) ** 2) / (2 * VARIANCE))
    factor = kernel.sum(axis=1) / (len(AXIS) * np.sqrt(2 * np.pi * VARIANCE))
    return np.outer(factor, factor)


class Panel(NamedTuple):
    """One density, with what stands over it on the left and on the right."""

    left: str
    right: str
    density: Array


def draw(panels: Sequence[Panel], *, target: bool, window: Window = SQUARE) -> Figure:
    """Densities on one colour scale; beside the mixture's own, with its modes' circles, where that is the
    ``target``."""
    exact = [Panel("Exact target", f"{MODES} modes, variance {VARIANCE}", exact_density())] if target else []
    norm = PowerNorm(0.6, vmin=0, vmax=float(max(p.density.max() for p in exact or panels)), clip=True)
    colours = LinearSegmentedColormap.from_list("density", HEAT)
    figure, axes = _axes(len(panels), target)
    image: Any = None
    for axis, panel in zip(axes, [*exact, *panels], strict=True):
        image = _panel(axis, panel, colours, norm, window)
        axis.set(xlabel="θ₁", ylabel="θ₂")
    for axis in axes[len(exact) :]:
        axis.label_outer()
        if target:
            _rings(axis)
    extend: Any = "max" if target else "neither"
    bar = figure.colorbar(image, ax=axes, extend=extend, shrink=0.9, aspect=28, pad=0.02)
    bar.locator = MaxNLocator(5)
    bar.update_ticks()
    bar.set_label("Density")
    bar.outline.set_visible(False)
    return figure


def _axes(arms: int, target: bool) -> tuple[Figure, list[Axes]]:
    """Axes of the target, which stands large on the left of three or more arms, and of the arms."""
    if not target or arms <= 2:
        n = arms + target
        columns = min(n, 3)
        rows = -(-n // columns)
        figure = Figure(figsize=(WIDTH, rows * (7.4 / max(columns, 2) + 0.9)))
        grid = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for spare in grid[n:]:
            spare.set_axis_off()
        return figure, grid[:n]
    rows = -(-arms // 2)
    names: list[Any] = []
    for r in range(rows):
        pair = [str(i) if i < arms else "." for i in (2 * r, 2 * r + 1)]
        names.append(["target" if r < 2 else "."] * 2 + pair)
    figure = Figure(figsize=(WIDTH, rows * 2.15 + 0.3))
    made = figure.subplot_mosaic(names, sharex=True, sharey=True)
    return figure, [made["target"], *(made[str(i)] for i in range(arms))]


def _panel(axis: Axes, panel: Panel, colours: Any, norm: Any, window: Window) -> Any:
    axis.grid(False)
    if window is SQUARE:
        axis.set(xticks=AXIS, yticks=AXIS)
    axis.set_title("\n".join(textwrap.wrap(panel.left, 24)) + ("\n" if panel.right else ""), fontsize=8.5)
    axis.text(0, 1.03, panel.right, transform=axis.transAxes, fontsize=8, color=MUTED)
    style: Any = {"origin": "lower", "cmap": colours, "norm": norm, "interpolation": "nearest"}
    aspect: Any = "equal" if window is SQUARE else "auto"
    return axis.imshow(panel.density.T, extent=(*window.x, *window.y), aspect=aspect, **style)


def _modes(run: RunData, arm: Arm) -> str:
    """The number of modes that the drawn repeat covered."""
    mine = run.of(run.results, arm)
    if not len(mine) or "modes" not in mine or mine["repeat"].min() > 0:
        return ""
    n = int(mine.sort_values("repeat")["modes"].iloc[0])
    return f"{n} of {MODES} modes"


def _rings(axis: Axes) -> None:
    rings = [Circle((x, y), RADIUS) for x in AXIS for y in AXIS]
    style: Any = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.5, "alpha": 0.7}
    axis.add_collection(PatchCollection(rings, **style))
