"""Entropy-MCMC on a sharp and a flat mode: its laws, and the published effect at a large and at a small step size.

`python -m raychains.report.figures.landscape OUT.svg` (or .png) runs the simulations and writes the figure.
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from raychains.errors import UserError
from raychains.evaluation.base import Array
from raychains.experiments.landscape import METHODS, SETUPS, Paths, Setup, diagonal_density, flat_share, simulate
from raychains.report.figures.layout import COUNT
from raychains.report.style import WIDTH, Drawing, Theme, render

NAMES = {"sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC"}
LIMIT = 2.6
"""The landscape is shown on [−2.6, 2.6]²."""
BURN_IN = 20_000


@dataclass(frozen=True)
class Runs:
    """The simulations that the figure shows."""

    law: Paths
    large: dict[str, Paths]
    small: dict[str, Paths]


def run(*, seeds: int = 200, law_seeds: int = 1000) -> Runs:
    """All three settings; the law of both variables needs more seeds than the shares."""
    torch.set_num_threads(1)
    by = {
        name: {m: simulate(SETUPS[name], m, seeds=seeds, every=40) for m in METHODS}
        for name in ("large step", "small step")
    }
    law = simulate(SETUPS["law"], "emcmc", seeds=law_seeds, every=500, first=BURN_IN)
    return Runs(law, by["large step"], by["small step"])


def caption(runs: Runs) -> str:
    """What the three settings show, with the measured shares."""
    law, large, small = SETUPS["law"], SETUPS["large step"], SETUPS["small step"]

    def shares(setup: Setup, paths: dict[str, Paths]) -> str:
        return ", ".join(f"{NAMES[m]} {flat_share(setup, p.theta)[-1]:.2f}" for m, p in paths.items())

    seeds, law_seeds = runs.large["sgd"].theta.shape[1], runs.law.theta.shape[1]
    return (
        f"(i) σ = {law.sharp:g} and {law.flat:g}, lr {law.lr:g}, η {law.eta:g}, {law_seeds:,} seeds: θ keeps the original "
        f"posterior, with share {flat_share(law, runs.law.theta).mean():.2f} in the flat mode (exact "
        f"{law.task.flat_share:.2f}); only θₐ follows the smoothed one, with variances σ² + η. "
        f"(ii) σ = {large.sharp:g} and {large.flat:g}, lr {large.lr:g}, η {large.eta:g}, {large.steps:,} steps from the "
        f"ridge (red cross), {seeds} seeds; shares at the end: {shares(large, runs.large)}. This is a step-size effect: lr times the "
        f"largest curvature in the sharp mode is {large.instability('emcmc'):.2f} for Entropy-MCMC (limit 2) and "
        f"{large.instability('sgld'):.2f} for SGLD. (iii) The same at lr {small.lr:g}, where it is "
        f"{small.instability('emcmc'):.2f}: {shares(small, runs.small)}; no advantage is left."
    )


def drawing(runs: Runs) -> Drawing:
    """The figure, with its caption inside."""
    return Drawing(
        name="two-modes",
        title="A sharp and a flat mode",
        caption=caption(runs),
        alt="Ends of chains of SGD, SGLD and Entropy-MCMC on a landscape with a sharp and a flat mode; histograms of "
        "θ and θₐ against their exact laws; share in the flat mode against steps at two step sizes",
        draw=lambda theme: _draw(runs, theme),
        data=rows(runs),
    )


def rows(runs: Runs) -> list[dict[str, Any]]:
    """The share in the flat mode after each step, and where each chain of the large step ends."""
    found: list[dict[str, Any]] = []
    for name, paths in (("large step", runs.large), ("small step", runs.small)):
        for method, path in paths.items():
            shares = zip(path.steps, flat_share(SETUPS[name], path.theta), strict=True)
            found += [{"setting": name, "method": method, "step": int(k), "flat_share": float(p)} for k, p in shares]
    for method, path in runs.large.items():
        ends = [("theta", path.theta[-1]), *([("anchor", path.anchor[-1])] if path.anchor is not None else [])]
        for variable, points in ends:
            found += [
                {
                    "setting": "large step",
                    "method": method,
                    "variable": variable,
                    "theta_1": float(x),
                    "theta_2": float(y),
                }
                for x, y in points
            ]
    return found


def _draw(runs: Runs, theme: Theme) -> Figure:
    figure = Figure(figsize=(WIDTH, 7.1))
    axes = figure.subplots(2, 3)
    for axis, method in zip(axes[0], METHODS, strict=True):
        _ends(axis, method, runs.large[method], theme)
    axes[0][0].set_ylabel("θ₂")
    _law(axes[1][0], runs.law, theme)
    _shares(axes[1][1], SETUPS["large step"], runs.large, "(ii) large step", theme)
    _shares(axes[1][2], SETUPS["small step"], runs.small, "(iii) small step", theme)
    axes[1][1].set_ylabel("Share in the flat mode")
    axes[1][2].legend(loc="center right")
    figure.supxlabel(textwrap.fill(caption(runs), 128), fontsize=8, color=theme.ink, x=0.01, ha="left")
    return figure


def _colours(theme: Theme) -> dict[str, str]:
    return {"sgd": theme.muted, "sgld": theme.families["decreasing"][0], "emcmc": theme.families["cyclical"][0]}


def _ends(axis: Axes, method: str, paths: Paths, theme: Theme) -> None:
    """Where the chains of setting (ii) end, on the energy."""
    setup = SETUPS["large step"]
    x = np.linspace(-LIMIT, LIMIT, 131)
    grid = torch.from_numpy(np.stack(np.meshgrid(x, x), axis=-1))
    energy = setup.task.energy(grid).numpy()
    colours: Any = LinearSegmentedColormap.from_list("energy", [theme.grid, theme.paper])
    axis.contourf(x, x, energy, levels=np.linspace(1.8, 14, 9), cmap=colours).set_rasterized(True)
    axis.plot(*paths.theta[-1].T, ".", color=_colours(theme)[method], markersize=4, label="θ")
    if paths.anchor is not None:
        axis.plot(*paths.anchor[-1].T, "+", color=theme.families["decreasing"][1], markersize=4, label="θₐ")
        axis.legend(loc="upper left", handletextpad=0.2, handlelength=1)
    axis.plot(*RIDGE_POINT, "x", color=theme.alarm, markersize=6, markeredgewidth=1.5)
    axis.grid(False)
    axis.set_aspect("equal")
    axis.set(title=f"(ii) {NAMES[method]}", xlabel="θ₁", xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT))


RIDGE_POINT = SETUPS["large step"].start or (0.0, 0.0)
"""The start, a red cross in the upper panels."""


def _law(axis: Axes, paths: Paths, theme: Theme) -> None:
    """Histograms along the diagonal with the exact densities."""
    setup, x = SETUPS["law"], np.linspace(-4.2, 4.2, 300)
    drawn: list[tuple[str, Array | None, float, str]] = [
        ("θ", paths.theta, 0.0, _colours(theme)["emcmc"]),
        ("θₐ", paths.anchor, setup.eta, theme.families["decreasing"][1]),
    ]
    for name, points, extra, colour in drawn:
        assert points is not None
        along = points.sum(-1).ravel() / np.sqrt(2)
        axis.hist(along, bins=60, range=(-4.2, 4.2), density=True, color=colour, alpha=0.35, label=name)
        axis.plot(x, diagonal_density(setup, x, extra), color=colour, linewidth=1.3, label=f"{name} exact")
    axis.set(title="(i) laws of θ and θₐ", xlabel="(θ₁ + θ₂)/√2", ylabel="Density", ylim=(0, 0.85))
    axis.legend(loc="upper left", ncols=2, columnspacing=0.8, handlelength=1.2)


def _shares(axis: Axes, setup: Setup, paths: dict[str, Paths], title: str, theme: Theme) -> None:
    """Share of the seeds in the flat mode after each step, ± one standard error."""
    for method, path in paths.items():
        share = flat_share(setup, path.theta)
        error = np.sqrt(np.maximum(share * (1 - share), 0) / path.theta.shape[1])
        colour = _colours(theme)[method]
        style = {"sgd": ":", "sgld": "--", "emcmc": "-"}[method]
        axis.plot(path.steps, share, style, color=colour, label=NAMES[method])
        axis.fill_between(path.steps, share - error, share + error, color=colour, alpha=0.18, linewidth=0)
    axis.set(title=f"{title}, lr {setup.lr:g}", xlabel="Steps", ylim=(-0.04, 1.04))
    axis.xaxis.set_major_formatter(COUNT)
    if setup is SETUPS["small step"]:  # where the curves leave room
        axis.legend(loc="upper right")


def main(arguments: list[str]) -> None:
    """Write the figure to the one path that is given.

    Raises:
        UserError: not one path, or one that ends neither in .svg nor in .png.
    """
    if len(arguments) != 1 or Path(arguments[0]).suffix not in (".svg", ".png"):
        raise UserError(f"OUT must be one path ending in .svg or .png, got {' '.join(arguments) or 'nothing'!r}")
    out = Path(arguments[0])
    images = render(drawing(run()))
    out.write_bytes(images.svg if out.suffix == ".svg" else images.png)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
