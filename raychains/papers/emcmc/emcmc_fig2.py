"""The landscape with a sharp and a flat mode (§6.1, Fig. 2): the published effect, and the same at a smaller step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy import stats

from raychains import papers as rp
from raychains.evaluation.evaluation import Array
from raychains.plotting.charts import Axis, Bars, Chart, Contours, Line, Mark, Panel, Style
from raychains.plotting.layout import plain
from raychains.plotting.style import ALARM, HUES, MUTED, Drawing
from raychains.samplers import SGD, SGLD, Sampler
from raychains.samplers.emcmc import ANCHOR, EntropyMCMC
from raychains.tasks.two_modes import RIDGE, TwoModes

# Chains

THETA = "theta"
NAMES = rp.labels("sgd sgld emcmc")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One landscape and how it is sampled, at T = 1 and N = 1."""

    sharp: float
    flat: float
    lr: float
    eta: float
    steps: int
    smoke_steps: int = 400
    start: tuple[float, float] | None
    label: str

    @property
    def task(self) -> TwoModes:
        return TwoModes(sharp=self.sharp, flat=self.flat, start=self.start)

    def instability(self, method: str) -> float:
        """Return lr times the largest curvature in the sharp mode (for Entropy-MCMC that of the pair); unstable above
        2."""
        h, k = 1 / self.sharp**2, 1 / self.eta if method == "emcmc" else 0.0
        return self.lr * float(np.linalg.eigvalsh([[h + k, -k], [-k, k]]).max())


LARGE = Setup(sharp=0.1, flat=0.5, lr=0.01, eta=0.016, steps=2_000, start=RIDGE, label="lr 0.01")
SMALL = dataclasses.replace(LARGE, lr=0.002, label="lr 0.002")
LAW = "law"
STARTS = {"from-sharp": "sharp", "from-flat": "flat"}
"""Parts whose chains begin in the middle of a mode (App. D.1), and in which."""
SETUPS: Mapping[str, Setup] = {
    "large-step": LARGE,
    "small-step": SMALL,
    "from-sharp": dataclasses.replace(LARGE, start=(-1.0, -1.0), label="lr 0.01, from the sharp mode"),
    "from-flat": dataclasses.replace(LARGE, start=(1.0, 1.0), label="lr 0.01, from the flat mode"),
    LAW: Setup(
        sharp=0.3, flat=0.6, lr=0.004, eta=0.2, steps=30_000, smoke_steps=600, start=None, label="σ 0.3 and 0.6, mixed"
    ),
}
"""By part: the published effect, the same at a fifth of the step size, from other starts; and the law of each
variable."""


@dataclass(frozen=True)
class Paths:
    """The states of chains at the recorded steps."""

    steps: Array
    """[records]"""
    theta: Array
    """[records, seeds, 2]"""
    anchor: Array | None
    """θₐ, as ``theta``; None for methods without it."""


def simulate(setup: Setup, method: str, *, seeds: int, every: int = 1, seed: int = 0, first: int = 0) -> Paths:
    """Run chains of one method as ``seeds`` lanes of one public sampler; record every so many steps after ``first``."""
    task = setup.task
    model = task.build_model(seed=seed, lanes=seeds)
    sampler = _sampler(setup, method, model, seed + 1)
    generator = torch.Generator()
    kept: dict[str, list[Array]] = {THETA: [], ANCHOR: []}
    recorded = [k for k in range(first + 1, setup.steps + 1) if k % every == 0]
    for k in range(1, setup.steps + 1):
        task.backward(model, None, generator)
        sampler.step()
        if k > first and k % every == 0:
            for name, tensors in sampler.draws():
                kept[name].append(tensors[0].detach().numpy().copy())
    anchor = np.stack(kept[ANCHOR]) if kept[ANCHOR] else None
    return Paths(np.array(recorded), np.stack(kept[THETA]), anchor)


def _sampler(setup: Setup, method: str, model: torch.nn.Module, seed: int) -> Sampler:
    params = model.parameters()
    if method == "sgd":
        return SGD(params, lr=setup.lr)
    if method == "sgld":
        return SGLD(params, lr=setup.lr, num_data=1, seed=seed)
    return EntropyMCMC(params, lr=setup.lr, eta=setup.eta, num_data=1, seed=seed)


def flat_share(setup: Setup, points: Array) -> Array:
    """Return the responsibility of the flat mode for points [..., 2]."""
    return np.asarray(setup.task.responsibility(torch.from_numpy(np.array(points))).squeeze(-1).numpy())


def diagonal_density(setup: Setup, x: Array, extra: float = 0.0) -> Array:
    """Return the exact density of (θ₁+θ₂)/√2 under the mixture with variances σ² + ``extra``, which is η for θₐ."""
    share = setup.task.flat_share
    modes = ((1 - share, -np.sqrt(2), setup.sharp), (share, np.sqrt(2), setup.flat))
    return np.sum([weight * stats.norm.pdf(x, centre, np.sqrt(sd**2 + extra)) for weight, centre, sd in modes], axis=0)


# The experiment

STYLES = rp.styles(NAMES, "sgd other 2, sgld decreasing 0, emcmc cyclical 0")
SEEDS = {"smoke": 40, "cpu": 1000, "gpu": 1000, "paper": 1000}
EVERY = 40
"""Steps between points of the curves."""
SHOWN = 200
"""Chains whose ends are drawn."""
LAW_EVERY = 500
EDGES = np.linspace(-4.2, 4.2, 61)
"""Edges of the histograms along the diagonal."""
LIMIT = 2.6
LANDSCAPES = {("sgd", THETA): "SGD", ("sgld", THETA): "SGLD"}
LANDSCAPES |= {("emcmc", THETA): "Entropy-MCMC, θ", ("emcmc", ANCHOR): "Entropy-MCMC, θₐ"}
TOLERANCE = 0.05


def setup(part: str, scale: str) -> Setup:
    """Return a part's landscape and settings; shorter at scale smoke."""
    made = SETUPS[part]
    return dataclasses.replace(made, steps=made.smoke_steps) if scale == "smoke" else made


def stepped(work: rp.Computation) -> rp.Tables:
    """Return where every chain ends at one step size; the share in the flat mode after each step; some ends and one
    path."""
    setting, seeds = setup(work.part, work.scale), SEEDS[work.scale]
    cells, curves, points = [], [], []
    for number, method in enumerate(NAMES):
        work.tell(work.part, number, len(NAMES))
        for row in work.piece(method, partial(_ends, setting, method, seeds)):
            what, at, named = row["what"], row["at"], {"part": work.part, "row": method, "variable": row["variable"]}
            if what == "end":
                flat = float(flat_share(setting, np.array([row["x"], row["y"]])))
                cells.append(rp.cell(work.part, method, row["variable"], at, flat, samples=1))
            if what == "share":
                curves.append({**named, "step": at, "share": row["x"]})
            if what == "path" or (what == "end" and at < SHOWN):
                points.append({**named, "what": what, "at": at, "x": row["x"], "y": row["y"]})
    return {"cells": cells, "curve": curves, "points": points}


def _ends(setting: Setup, method: str, seeds: int) -> list[dict[str, Any]]:
    """Return the last points of all chains, the first chain's path, and the mean share over chains at every recorded
    step."""
    made, paths = [], simulate(setting, method, seeds=seeds, every=EVERY)
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


def law(work: rp.Computation) -> rp.Tables:
    """Return the laws of both variables, far from the limit of stability: shares by chain, and histograms."""
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
            rp.cell(LAW, "emcmc", variable, int(str(seed)), float(value), samples=int(n))
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
    """Return the paper's four panels at its effect's step size, then shares against steps and the laws."""
    points = tables.get("points")
    if points is None or "large-step" not in set(points["part"]):
        return list(SHARES(scale, tables))
    caption = (
        f"Dots: where {min(SHOWN, SEEDS[scale])} chains end; line: the first one's path; cross: the start, on the "
        "ridge. Dark: low energy. The sharp mode is below on the left."
    )
    others, title = "As above, with another start (cross).", "The same from the middle of the {} mode"
    shown = [("landscape", "large-step", "A sharp and a flat mode, lr 0.01", caption, "on a landscape of two modes")]
    shown += [(n, n, title.format(m), others, f"that begin in the {m} mode") for n, m in STARTS.items()]
    made = []
    for name, part, title, caption, where in shown:
        if part in set(points["part"]):
            alt = f"Ends of chains of SGD, SGLD and both variables of Entropy-MCMC {where}"
            draw = partial(_landscape, points[points["part"] == part], SETUPS[part].start)
            made.append(Drawing(name=name, title=title, caption=caption, alt=alt, draw=draw))
    return [*made, *SHARES(scale, tables)]


def _landscape(points: pd.DataFrame, start: Any) -> Figure:
    x = np.linspace(-LIMIT, LIMIT, 101)
    energy = -LARGE.task.log_density(torch.from_numpy(np.stack(np.meshgrid(x, x), axis=-1))).numpy()
    dark = (MUTED + "40", MUTED + "00")
    shades = Contours(x=x, y=x, z=energy, levels=np.linspace(1.8, 14, 9), colours=dark)
    cross: Style = {"color": ALARM, "linestyle": "", "marker": "x", "markersize": 6, "markeredgewidth": 1.5}
    first, second = (Axis(label=label, low=-LIMIT, high=LIMIT) for label in ("θ₁", "θ₂"))
    shown = []
    for (method, variable), title in LANDSCAPES.items():
        mine = points[(points["row"] == method) & (points["variable"] == variable)]
        colour, path, ends = STYLES[method].colour, mine[mine["what"] == "path"], mine[mine["what"] == "end"]
        line: Style = {"color": colour, "linewidth": 0.6, "alpha": 0.6}
        marks: list[Mark] = [
            shades,
            Line(x=[start[0], *path["x"]], y=[start[1], *path["y"]], style=line),
            Line(x=ends["x"], y=ends["y"], style={"color": colour, "linestyle": "", "marker": ".", "markersize": 3}),
            Line(x=start[:1], y=start[1:], style=cross),
        ]
        shown.append(Panel(marks=marks, x=first, y=second, title=title, equal="box"))
    return Chart(panels=shown, columns=4, height=2.2, share_y=True)()


def _shares(curve: pd.DataFrame, histogram: pd.DataFrame) -> Figure:
    shown, theta = [], curve[curve["variable"] == THETA]
    x, y = Axis(label="Steps", text=plain), Axis(label="Share in the flat mode", low=-0.04, high=1.04)
    for part in ("large-step", "small-step"):
        lines = [s.line(mine["step"], mine["share"]) for s, mine in rp.styled(theta[theta["part"] == part], STYLES)]
        shown.append(Panel(marks=lines, x=x, y=y, title=SETUPS[part].label))
    setting, at = SETUPS[LAW], np.linspace(EDGES[0], EDGES[-1], 300)
    marks: list[Mark] = []
    for variable, extra, label, colour in ((THETA, 0.0, "θ", HUES[0]), (ANCHOR, setting.eta, "θₐ", HUES[1])):
        mine, width, look = (
            histogram[histogram["variable"] == variable],
            EDGES[1] - EDGES[0],
            {"color": colour, "alpha": 0.35},
        )
        marks.append(Bars(x=mine["centre"], height=mine["density"], width=width, style=look, label=label))
        style = {"color": colour, "linewidth": 1.2, "linestyle": "--" if extra else "-"}
        marks.append(Line(x=at, y=diagonal_density(setting, at, extra), style=style))
    shown.append(Panel(marks=marks, x=Axis(label="(θ₁ + θ₂)/√2"), y=Axis(label="Density"), title="Laws"))
    return Chart(panels=shown, columns=3, height=2.8, legend_columns=5)()


SHARES = rp.figure(
    "curve histogram",
    _shares,
    name="shares",
    title="Shares in the flat mode, and laws",
    caption="Left and middle: share of the chains in the flat mode, all from the ridge. At a fifth of the step size "
    "the effect is not seen here. Right: histograms of θ and θₐ along the diagonal where σ is 0.3 and 0.6 "
    "and both have mixed, with the exact densities: θ has the original posterior, only θₐ the smoothed one.",
    alt="Share in the flat mode against steps at two step sizes; histograms of θ and θₐ with exact densities",
)


CLAIMS = rp.stated(
    """
sgd-sharp | large-step theta | sgd < 0.5 | SGD ends in the sharp mode.
sgld-sharp | large-step theta | sgld < 0.5 | SGLD prefers the sharp mode.
emcmc-flat | large-step theta | emcmc > 0.5 | Entropy-MCMC ends in the flat mode.
anchor-flat | large-step anchor | emcmc > 0.5 | θₐ is in the flat mode.
above-sgd | large-step theta | emcmc > sgd | Entropy-MCMC is in the flat mode more often than SGD.
above-sgld | large-step theta | emcmc > sgld | Entropy-MCMC is in the flat mode more often than SGLD.
small-step-flat | small-step theta | emcmc > 0.5 | Entropy-MCMC ends in the flat mode at a fifth of the step, too.
small-step-above-sgld | small-step theta | emcmc > sgld | Entropy-MCMC is in the flat mode more often than SGLD at a
    fifth of the step, too.
flat-from-sharp | from-sharp theta | emcmc > 0.5 | Entropy-MCMC ends in the flat mode from the middle of the sharp mode,
    too.
flat-from-flat | from-flat theta | emcmc > 0.5 | Entropy-MCMC ends in the flat mode from the middle of the flat
    mode, too.
original-posterior | law theta | emcmc = 0.8 | θ has the original posterior, whose flat mode has the mass 0.8, up to
    0.05.
""",
    must_decide=True,
    scales=rp.NOT_SMOKE,
    tolerance=TOLERANCE,
)


def settings(scale: str) -> list[rp.Setting]:
    mixed = SETUPS[LAW]
    return [
        rp.Setting("centres", "(−1, −1) and (1, 1), of equal depth", rp.OURS),
        rp.Setting("σ of the sharp and the flat mode", f"{LARGE.sharp:g}, {LARGE.flat:g}", rp.OURS),
        rp.Setting("start", "the ridge", rp.PUBLISHED),
        rp.Setting("where the ridge is", "(−2/3, −2/3)", rp.OURS),
        rp.Setting("other starts", "the middle of the sharp and of the flat mode", rp.OURS),
        rp.Setting("lr", f"{LARGE.lr:g} and {SMALL.lr:g}, constant", rp.OURS),
        rp.Setting("η", f"{LARGE.eta:g}", rp.OURS),
        rp.Setting("T", "1", rp.OURS),
        rp.Setting("steps", f"{setup('large-step', scale).steps:,}", rp.OURS),
        rp.Setting("laws: σ, lr, η", f"{mixed.sharp:g} and {mixed.flat:g}, {mixed.lr:g}, {mixed.eta:g}", rp.OURS),
        rp.Setting("laws: steps", f"{setup(LAW, scale).steps:,}", rp.OURS),
        rp.Setting("chains", f"{SEEDS[scale]:,}", rp.OURS),
    ]


STUDY = rp.Study(
    name="emcmc-fig2",
    paper="emcmc",
    where="Figs. 2, 7, 8",
    title="a sharp and a flat mode",
    hours=(0.001, 0.005, 0.005, 0.005),
    parts=tuple(
        rp.Part(name=name, label=one.label, computed=law if name == LAW else stepped) for name, one in SETUPS.items()
    ),
    rows=NAMES,
    columns=(
        rp.Heading(THETA, "θ in the flat mode", decimals=3),
        rp.Heading(ANCHOR, "θₐ in the flat mode", decimals=3),
    ),
    absent="only Entropy-MCMC has θₐ, and the laws are its own",
    claims=CLAIMS,
    settings=settings,
    differences=f"""
smoke: 40 chains of a few hundred steps: this only shows that everything runs.
cpu gpu paper: The paper prints one path of each method and no settings that are readable in our text: the widths, lr
    and η are ours, found where the published picture appears. Here 1,000 chains of each are counted.
cpu gpu paper: That is near the sharp mode's limit of stability: lr times its largest curvature is
    {LARGE.instability("emcmc"):.2f} for Entropy-MCMC (limit 2) and {LARGE.instability("sgld"):.2f} for SGLD. At a fifth
    of lr it is {SMALL.instability("emcmc"):.2f}, and the effect is not seen on this landscape.
cpu gpu paper: In the limit of small steps θ has the original posterior whatever η is; only θₐ is drawn to flat regions.
""",
    figures=figures,
)
