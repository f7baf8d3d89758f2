"""The landscape with a sharp and a flat mode (§6.1, Fig. 2): the published effect, and what becomes of it at a smaller step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from raychains.experiments.landscape import METHODS, SETUPS, Paths, Setup, diagonal_density, flat_share, simulate
from raychains.published.claims import Claim, Of
from raychains.published.experiment import Experiment, Part, Setting, Tables
from raychains.published.found import cell
from raychains.published.tables import Heading
from raychains.published.work import Work
from raychains.report.figures.layout import COUNT, handle, legend, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line
from raychains.tasks.two_modes import RIDGE

NAMES = {"sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC"}
LOOKS = {
    "sgd": Look("other", 2, "SGD"), "sgld": Look("decreasing", 0, "SGLD"), "emcmc": Look("cyclical", 0, "Entropy-MCMC"),
}  # fmt: skip
THETA, ANCHOR = "theta", "anchor"
PARTS = {"large-step": ("large step", "lr 0.01"), "small-step": ("small step", "lr 0.002")}
"""Name -> (setting of `SETUPS`, label)."""
STARTS = {"from-sharp": ("sharp", (-1.0, -1.0)), "from-flat": ("flat", (1.0, 1.0))}
"""Name -> (which mode it begins in the middle of, and where that is): App. D.1."""
LAW = "law"
SEEDS = {"smoke": 40, "cpu": 1000, "gpu": 1000, "paper": 1000}
SMOKE_STEPS = {"large-step": 400, "small-step": 400, "from-sharp": 400, "from-flat": 400, LAW: 600}
EVERY = 40
"""Steps between points of the curves."""
SHOWN = 200
"""Chains whose ends are drawn."""
LAW_EVERY = 500
EDGES = np.linspace(-4.2, 4.2, 61)
"""Of the histograms along the diagonal."""
LIMIT = 2.6
TOLERANCE = 0.05


def setup(part: str, scale: str) -> Setup:
    """A part's landscape and settings; shorter at scale smoke."""
    named = {LAW: LAW, **{name: one for name, (one, _) in PARTS.items()}}
    made = SETUPS[named.get(part, "large step")]
    if part in STARTS:
        made = dataclasses.replace(made, start=STARTS[part][1])
    return dataclasses.replace(made, steps=SMOKE_STEPS[part]) if scale == "smoke" else made


def stepped(work: Work) -> Tables:
    """Where every chain ends at one step size; the share in the flat mode after each step; some ends and one path."""
    setting, seeds = setup(work.part, work.scale), SEEDS[work.scale]
    cells, curves, points = [], [], []
    for number, method in enumerate(METHODS):
        work.tell(work.part, number, len(METHODS))

        def ends(method: str = method) -> list[dict[str, Any]]:
            return _ends(setting, simulate(setting, method, seeds=seeds, every=EVERY))

        rows = work.piece(method, ends)
        for row in rows:
            if row["what"] == "end":
                cells.append(cell(work.part, method, row["variable"], row["at"], _flat(setting, row), samples=1))
            if row["what"] == "share":
                named = {"part": work.part, "row": method, "variable": row["variable"], "step": row["at"]}
                curves.append({**named, "share": row["x"]})
            if row["what"] == "path" or (row["what"] == "end" and row["at"] < SHOWN):
                named = {"part": work.part, "row": method, "variable": row["variable"], "what": row["what"]}
                points.append({**named, "at": row["at"], "x": row["x"], "y": row["y"]})
    return {"cells": cells, "curve": curves, "points": points}


def _flat(setting: Setup, row: Mapping[str, Any]) -> float:
    return float(flat_share(setting, np.array([row["x"], row["y"]])))


def _ends(setting: Setup, paths: Paths) -> list[dict[str, Any]]:
    """The last points of all chains, the first chain's path, and the mean share over chains at every recorded step."""
    made = []
    for variable, found in ((THETA, paths.theta), (ANCHOR, paths.anchor)):
        if found is None:
            continue
        for what, points in (("end", found[-1]), ("path", found[:, 0])):
            made += [
                {"variable": variable, "what": what, "at": i, "x": float(x), "y": float(y)}
                for i, (x, y) in enumerate(points)
            ]
        made += [
            {"variable": variable, "what": "share", "at": int(k), "x": float(p), "y": 0.0}
            for k, p in zip(paths.steps, flat_share(setting, found).mean(-1), strict=True)
        ]
    return made


def law(work: Work) -> Tables:
    """What both variables are distributed as, far from the limit of stability: shares by chain, and histograms."""
    setting, seeds = setup(LAW, work.scale), SEEDS[work.scale]
    burn_in, every = (0, 20) if work.scale == "smoke" else (setting.steps * 2 // 3, LAW_EVERY)

    def draws() -> list[dict[str, Any]]:
        paths = simulate(setting, "emcmc", seeds=seeds, every=every, first=burn_in)
        assert paths.anchor is not None
        return [
            {"variable": v, "seed": s, "x": float(p[0]), "y": float(p[1])}
            for v, found in ((THETA, paths.theta), (ANCHOR, paths.anchor))
            for record in found
            for s, p in enumerate(record)
        ]

    table = pd.DataFrame(work.piece("draws", draws))
    table["flat"] = flat_share(setting, table[["x", "y"]].to_numpy())
    cells, histogram = [], []
    for variable in (THETA, ANCHOR):
        mine = table[table["variable"] == variable]
        by = mine.groupby("seed")["flat"]
        cells += [
            cell(LAW, "emcmc", variable, int(str(seed)), float(value), samples=int(n))
            for (seed, value), n in zip(by.mean().items(), by.size(), strict=True)
        ]
        along = (mine["x"] + mine["y"]).to_numpy() / np.sqrt(2)
        heights = np.histogram(along, EDGES)[0] / (len(along) * np.diff(EDGES))
        histogram += [
            {"variable": variable, "centre": float(c), "density": float(h)}
            for c, h in zip((EDGES[1:] + EDGES[:-1]) / 2, heights, strict=True)
        ]
    return {"cells": cells, "histogram": histogram}


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """The paper's four panels at its effect's step size, then shares against steps and the laws."""
    made = []
    if "points" in tables and "large-step" in set(tables["points"]["part"]):
        points = tables["points"]
        made.append(
            Drawing(
                name="landscape",
                title="A sharp and a flat mode, lr 0.01",
                caption=f"Dots: where {min(SHOWN, SEEDS[scale])} chains end; line: the first one's path; cross: the start, on the ridge. Dark: low energy. "
                "The sharp mode is below on the left.",
                alt="Ends of chains of SGD, SGLD and both variables of Entropy-MCMC on a landscape of two modes",
                draw=lambda theme: _landscape(points[points["part"] == "large-step"], RIDGE, theme),
            )
        )
        made += [
            Drawing(
                name=name, title=f"The same from the middle of the {mode} mode",
                caption="As above, with another start (cross).",
                alt=f"Ends of chains of SGD, SGLD and both variables of Entropy-MCMC that begin in the {mode} mode",
                draw=lambda theme, name=name, start=start: _landscape(points[points["part"] == name], start, theme),  # type: ignore[misc]
            )
            for name, (mode, start) in STARTS.items()
            if name in set(points["part"])
        ]  # fmt: skip
    if "curve" in tables and "histogram" in tables:
        curve, histogram = tables["curve"], tables["histogram"]
        made.append(
            Drawing(
                name="shares",
                title="Shares in the flat mode, and laws",
                caption="Left and middle: share of the chains in the flat mode, all from the ridge. At a fifth of the step size "
                "nothing is left of the effect. Right: histograms of θ and θₐ along the diagonal where σ is 0.3 and 0.6 and both "
                "have mixed, with the exact densities: θ has the original posterior, only θₐ the smoothed one.",
                alt="Share in the flat mode against steps at two step sizes; histograms of θ and θₐ with exact densities",
                draw=lambda theme: _shares(curve, histogram, theme),
            )
        )
    return made


def _landscape(points: pd.DataFrame, start: tuple[float, float], theme: Theme) -> Figure:
    figure, ((*axes,),) = panels(1, 4, 2.2, sharey=True)
    task, x = SETUPS["large step"].task, np.linspace(-LIMIT, LIMIT, 101)
    energy = task.energy(torch.from_numpy(np.stack(np.meshgrid(x, x), axis=-1))).numpy()
    shades: Any = LinearSegmentedColormap.from_list("energy", [theme.grid, theme.paper])
    shown = [("sgd", THETA), ("sgld", THETA), ("emcmc", THETA), ("emcmc", ANCHOR)]
    for axis, (method, variable) in zip(axes, shown, strict=True):
        axis.contourf(x, x, energy, levels=np.linspace(1.8, 14, 9), cmap=shades).set_rasterized(True)
        mine = points[(points["row"] == method) & (points["variable"] == variable)]
        colour = theme.colour(LOOKS[method])
        path, ends = mine[mine["what"] == "path"], mine[mine["what"] == "end"]
        axis.plot([start[0], *path["x"]], [start[1], *path["y"]], color=colour, linewidth=0.6, alpha=0.6)
        axis.plot(ends["x"], ends["y"], ".", color=colour, markersize=3)
        axis.plot(*start, "x", color=theme.alarm, markersize=6, markeredgewidth=1.5)
        both = method == "emcmc"
        axis.set(title=f"{NAMES[method]}{', θ' if both and variable == THETA else ', θₐ' if both else ''}", xlabel="θ₁")
        axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT))
        axis.set_aspect("equal")
        axis.grid(False)
    axes[0].set_ylabel("θ₂")
    return figure


def _shares(curve: pd.DataFrame, histogram: pd.DataFrame, theme: Theme) -> Figure:
    figure, ((left, middle, right),) = panels(1, 3, 2.8)
    for axis, (part, (_, label)) in zip((left, middle), PARTS.items(), strict=True):
        for method, look in LOOKS.items():
            mine = curve[(curve["part"] == part) & (curve["row"] == method) & (curve["variable"] == THETA)]
            axis.plot(mine["step"], mine["share"], color=theme.colour(look), linestyle=line(look))
        axis.set(title=label, xlabel="Steps", ylim=(-0.04, 1.04))
        axis.xaxis.set_major_formatter(COUNT)
    left.set_ylabel("Share in the flat mode")
    _laws(right, histogram, theme)
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=3)
    return figure


def _laws(axis: Axes, histogram: pd.DataFrame, theme: Theme) -> None:
    setting, x = SETUPS[LAW], np.linspace(EDGES[0], EDGES[-1], 300)
    for variable, extra, label, family in ((THETA, 0.0, "θ", "cyclical"), (ANCHOR, setting.eta, "θₐ", "decreasing")):
        mine, colour = histogram[histogram["variable"] == variable], theme.families[family][0]
        axis.bar(mine["centre"], mine["density"], width=EDGES[1] - EDGES[0], color=colour, alpha=0.35, label=label)
        axis.plot(
            x, diagonal_density(setting, x, extra), color=colour, linewidth=1.2, linestyle="-" if not extra else "--"
        )
    axis.set(title="Laws", xlabel="(θ₁ + θ₂)/√2", ylabel="Density")
    axis.legend(loc="upper left")


def _claim(name: str, text: str, part: str, left: str, right: Of | float, direction: Any, **more: Any) -> Claim:
    row, _, column = left.partition(" ")
    return Claim(
        name=name, text=text, part=part, left=Of(row=row, column=column or THETA), right=right, direction=direction,
        rule="welch" if isinstance(right, Of) else "one-sample", must_decide=True, scales=("cpu", "gpu", "paper"), **more,
    )  # fmt: skip


SGD, SGLD = Of(row="sgd", column=THETA), Of(row="sgld", column=THETA)
CLAIMS = (
    _claim("sgd-sharp", "SGD ends in the sharp mode.", "large-step", "sgd", 0.5, "less"),
    _claim("sgld-sharp", "SGLD prefers the sharp mode.", "large-step", "sgld", 0.5, "less"),
    _claim("emcmc-flat", "Entropy-MCMC ends in the flat mode.", "large-step", "emcmc", 0.5, "greater"),
    _claim("anchor-flat", "θₐ is in the flat mode.", "large-step", "emcmc anchor", 0.5, "greater"),
    _claim("above-sgd", "Entropy-MCMC is in the flat mode more often than SGD.", "large-step", "emcmc", SGD, "greater"),
    _claim("above-sgld", "Entropy-MCMC is in the flat mode more often than SGLD.", "large-step", "emcmc", SGLD, "greater"),
    _claim("small-step-flat", "Entropy-MCMC ends in the flat mode at a fifth of the step, too.", "small-step", "emcmc", 0.5, "greater"),
    _claim(
        "small-step-above-sgld", "Entropy-MCMC is in the flat mode more often than SGLD at a fifth of the step, too.",
        "small-step", "emcmc", SGLD, "greater",
    ),
    *(
        _claim(f"flat-{name}", f"Entropy-MCMC ends in the flat mode from the middle of the {mode} mode, too.", name, "emcmc", 0.5, "greater")
        for name, (mode, _) in STARTS.items()
    ),
    _claim(
        "original-posterior", "θ has the original posterior, whose flat mode has the mass 0.8, up to 0.05.", LAW, "emcmc", 0.8,
        "equal", tolerance=TOLERANCE,
    ),
)  # fmt: skip


def settings(scale: str) -> list[Setting]:
    large, small, mixed = (SETUPS[n] for n in ("large step", "small step", "law"))
    return [
        Setting(name="centres", value="(−1, −1) and (1, 1), of equal depth", origin="ours"),
        Setting(name="σ of the sharp and the flat mode", value=f"{large.sharp:g}, {large.flat:g}", origin="ours"),
        Setting(name="start", value="the ridge", origin="published"),
        Setting(name="where the ridge is", value="(−2/3, −2/3)", origin="ours"),
        Setting(name="other starts", value="the middle of the sharp and of the flat mode", origin="ours"),
        Setting(name="lr", value=f"{large.lr:g} and {small.lr:g}, constant", origin="ours"),
        Setting(name="η", value=f"{large.eta:g}", origin="ours"),
        Setting(name="T", value="1", origin="ours"),
        Setting(name="steps", value=f"{setup('large-step', scale).steps:,}", origin="ours"),
        Setting(
            name="laws: σ, lr, η",
            value=f"{mixed.sharp:g} and {mixed.flat:g}, {mixed.lr:g}, {mixed.eta:g}",
            origin="ours",
        ),
        Setting(name="laws: steps", value=f"{setup(LAW, scale).steps:,}", origin="ours"),
        Setting(name="chains", value=f"{SEEDS[scale]:,}", origin="ours"),
    ]


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["40 chains of a few hundred steps: this only shows that everything runs."]
    large, small = SETUPS["large step"], SETUPS["small step"]
    return [
        "The paper prints one path of each method and no settings that are readable in our text: the widths, lr and η are ours, "
        "found where the published picture appears. Here 1,000 chains of each are counted.",
        f"That is near the sharp mode's limit of stability: lr times its largest curvature is {large.instability('emcmc'):.2f} for "
        f"Entropy-MCMC (limit 2) and {large.instability('sgld'):.2f} for SGLD. At a fifth of lr it is "
        f"{small.instability('emcmc'):.2f}, and the effect is gone: it is one of the step size.",
        "In the limit of small steps θ has the original posterior whatever η is; only θₐ is drawn to flat regions.",
    ]


def _rows(scale: str) -> Sequence[Heading]:
    return [Heading(key, label) for key, label in NAMES.items()]


EXPERIMENTS = (
    Experiment(
        name="emcmc-fig2", title="a sharp and a flat mode", paper="emcmc", where="Figs. 2, 7, 8", order=22,
        parts=(
            *(Part(name=name, label=label, computed=stepped) for name, (_, label) in PARTS.items()),
            *(
                Part(name=name, label=f"lr 0.01, from the {mode} mode", computed=stepped)
                for name, (mode, _) in STARTS.items()
            ),
            Part(name=LAW, label="σ 0.3 and 0.6, mixed", computed=law),
        ),
        rows=_rows,
        columns=lambda scale: (
            Heading(THETA, "θ in the flat mode", decimals=3), Heading(ANCHOR, "θₐ in the flat mode", decimals=3),
        ),
        absent="only Entropy-MCMC has θₐ, and the laws are its own",
        claims=CLAIMS,
        settings=settings,
        differences=differences,
        hours={"smoke": 0.001, "cpu": 0.005, "gpu": 0.005, "paper": 0.005},
        figures=figures,
    ),
)  # fmt: skip
