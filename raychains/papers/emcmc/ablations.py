"""Entropy-MCMC's settings one at a time (App. A.2, A.3, C): η, T, schedules, variables, BatchNorm, burn-in,
augmentation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.emcmc.emcmc_chains import T
from raychains.plotting.charts import DOT, Axis, Chart, Line, Panel, lines_of
from raychains.plotting.style import HUES

DIGITS, CIFAR = "digits", "cifar10"
SCHEDULES = ("constant", "linear", "exponential", "step", "cyclical")
"""Table 6's."""
GROUPS = ("eta", "temperature", "schedule", "variables", "batchnorm", "burn-in", "update", "augmentation")
SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(epochs=4, repeats=2, options={"thinning": 10}),
    "cpu": rp.Size(epochs=200, repeats=10),
    "gpu": rp.Size(epochs=200, repeats=2, options={"precision": "bf16"}),
    "paper": rp.Size(epochs=200, repeats=3),
}
SHORT_CYCLES = {"cycles": 2, "samples_per_cycle": 1}
"""Further options at scale smoke, which schedules without cycles do not have."""
FEW = "eta-0.01 eta-0.1 temperature-0.0001 schedule-constant schedule-cyclical variables-theta variables-both "
FEW += "batchnorm-shared batchnorm-reestimated burn-in-0.8 update-gibbs augmentation-emcmc-plain "
FEW += "augmentation-sgd-plain augmentation-sgld-plain"
"""The variants of scale smoke: one of each path."""
BEST = 4e-4
"""The published η on CIFAR-10."""
ETAS = (4e-5, 1e-4, BEST, 1e-3, 4e-3)


def preset(scale: str) -> rp.Preset:
    """Return all ablations as one comparison: settings that two of them share are one chain."""
    real, smoke = scale in rp.ON_GPU, scale == "smoke"
    variants = [
        *(
            [rp.Variant(f"eta-{e:g}", f"η = {e:g}", options={"sampler_settings": (f"eta={e:g}",)}) for e in ETAS]
            if real
            else _of("eta")
        ),
        *_of("temperature"),
        *_schedules(2 if smoke else 8),
        *_of("variables"),
        *(_norms() if real else _of("batchnorm")),
        *_of("burn-in"),
        rp.Variant("update-joint", "joint"),
        rp.Variant("update-gibbs", "Gibbs", options={"sampler_settings": ("update=gibbs",)}),
        *_augmented(scale),
    ]
    if smoke:
        few = [v for v in variants if v.name in FEW.split()]
        variants = [v if v.schedule else dataclasses.replace(v, options={**SHORT_CYCLES, **v.options}) for v in few]
    about = "one setting of Entropy-MCMC at a time (Li & Zhang 2024, A.2 and C)"
    task = "cifar10-resnet18" if real else "digits"
    return SIZES[scale].preset("emcmc-ablations", about, task, variants, seed=13)


def _of(group: str) -> list[rp.Variant]:
    """Return the variants of a named ablation, named after it."""
    known = rp.named(f"emcmc-{group}").variants
    return [dataclasses.replace(v, name=f"{group}-{re.sub('^(eta|t|burn-in)-', '', v.name)}") for v in known]


def _schedules(samples: int) -> list[rp.Variant]:
    """Return all with noise throughout and as many draws as the cyclical one, the others' at the end of the run."""
    alike = {"schedule_settings": ("noise_from=0.0", f"samples={samples}")}
    others = [rp.Variant(f"schedule-{s}", s, schedule=s, options=alike) for s in SCHEDULES[:-1]]
    return [*others, rp.Variant("schedule-cyclical", "cyclical")]


def _norms() -> list[rp.Variant]:
    """Return BatchNorm in ResNet-18; FRN is a task of its own there."""
    made = [v for v in rp.named("emcmc-batchnorm").variants if v.name != "frn"]
    return [rp.Variant(f"batchnorm-{v.name}", v.label, options={"batchnorm": v.options["batchnorm"]}) for v in made]


def _augmented(scale: str) -> list[rp.Variant]:
    """Return SGD with its last iterate; SGLD with Entropy-MCMC's batch, T, noise, and as many samples as of θ and
    θₐ."""
    shared: dict[str, Any] = {"batch_size": 128} if scale in rp.ON_GPU else {}
    sgld = {**shared, "exploration": 0.0, "samples_per_cycle": 2 if scale == "smoke" else 4}
    if scale in rp.ON_GPU:
        sgld["temperature"] = T
    own = {"sgd": {**shared, **rp.thinning.ONE_COSINE}, "sgld": sgld, "emcmc": {}}
    return [
        dataclasses.replace(v, name=f"augmentation-{v.sampler}-{v.name}", options={**v.options, **own[v.sampler]})
        for v in rp.named("emcmc-augmentation").variants
    ]


def labels(scale: str) -> dict[str, str]:
    """Return the labels of the rows."""
    methods = rp.labels("sgd sgld emcmc")
    made = {}
    for v in preset(scale).variants:
        group = v.name.partition("-")[0]
        forms = {"augmentation": f"{methods[v.sampler]}, {v.label}", "schedule": f"step size {v.label}"}
        made[v.name] = (forms | {"update": f"{v.label} updates"}).get(group, v.label)
    return made


TITLES = {"eta": "η", "batchnorm": "BatchNorm", "burn-in": "Burn-in"}


def _draw(cells: pd.DataFrame) -> Figure:
    """Draw mean ± standard error of every setting, a panel for each ablation."""
    of = cells[cells["column"] == "error"].groupby("row")["value"]
    mean, error = of.mean(), of.sem().fillna(0)
    texts = next(names for names in (labels("cpu"), labels("gpu")) if set(mean.index) <= names.keys())
    shown = []
    for group in GROUPS:
        names = [name for name in texts if name in mean.index and name.startswith(f"{group}-")]
        if not names:
            continue
        x, se, style = mean[names], error[names], {**DOT, "color": HUES[0]}
        marks = [Line(x=x, y=range(len(names)), style=style, level=(x - se, x + se))]
        lines = lines_of([texts[name] for name in names])
        title = TITLES.get(group, group.capitalize())
        shown.append(Panel(marks=marks, x=Axis(label="Test error (%)", margin=0.06), y=lines, title=title))
    return Chart(panels=shown, columns=2, height=2.3)()


LOWER = "has a lower error than"
BURN_INS = {"0": 0, "0.2": 10, "0.4": 20, "0.6": 30, "0.94": 47}
"""Epochs of 50 by the share of a cycle."""


def claims(part: str) -> tuple[rp.Claim, ...]:
    """Return what the paper says in A.3, Fig. 6 and its Tables 3, 4 and 6 to 9, whose numbers are unreadable in our
    text."""
    where, scales = ("(CIFAR-10).", rp.ON_GPU) if part == CIFAR else ("(digits).", ("cpu",))
    made: list[tuple[str, str, str]] = []
    for s in SCHEDULES[:-1]:
        text = f"The cyclical step size {LOWER} the {s} one"
        made.append((f"cyclical-below-{s}", f"schedule-cyclical < schedule-{s}", text))
    for v, label in (("theta", "θ"), ("anchor", "θₐ")):
        text = f"Predicting with both {LOWER} predicting with {label} alone"
        made.append((f"both-below-{v}", f"variables-both < variables-{v} paired", text))
    for t in (1.0, 0.1):
        made.append((f"cold-below-{t:g}", f"temperature-0.0001 < temperature-{t:g}", f"T = 1e-4 {LOWER} T = {t:g}"))
    for b, n in BURN_INS.items():
        text = f"A burn-in of 40 of 50 epochs {LOWER} one of {n}"
        made.append((f"burn-in-below-{b}", f"burn-in-0.8 < burn-in-{b}", text))
    text = f"BatchNorm with one more forward pass {LOWER} θ's statistics"
    made.append(("reestimated-below-shared", "batchnorm-reestimated < batchnorm-shared paired", text))
    text = f"Updating both variables together {LOWER} Gibbs updates"
    made.append(("joint-below-gibbs", "update-joint < update-gibbs", text))
    for e in [e for e in ETAS if e != BEST and part == CIFAR]:
        made.append((f"eta-below-{e:g}", f"eta-{BEST:g} < eta-{e:g}", f"η = {BEST:g} {LOWER} η = {e:g}"))
    for how in ("augmented", "plain"):
        for other in ("sgd", "sgld"):
            sides = f"augmentation-emcmc-{how} < augmentation-{other}-{how}"
            made.append((f"emcmc-below-{other}-{how}", sides, f"Entropy-MCMC {LOWER} {other.upper()}, {how}"))
    table = (f"{n}-{part}".replace(".", "-") + f" | {part} error | {sides} | {text} {where}" for n, sides, text in made)
    return rp.stated(table, scales=scales)


def settings(scale: str) -> list[rp.Setting]:
    real, smoke, size = scale in rp.ON_GPU, scale == "smoke", SIZES[scale]
    whose = rp.PUBLISHED if real else rp.OURS
    own = [v.name.removeprefix("eta-") for v in _of("eta")]
    etas = ", ".join([f"{e:g}" for e in ETAS] if real else own)
    samplers = "the last iterate of one cosine; cycles with noise throughout, as many samples as of θ and θₐ"
    schedules = "linear and exponential to a hundredth, steps of a tenth at 1/2 and 3/4; noise throughout"
    return [
        rp.Setting("network", "ResNet-18" if real else "MLP; a small CNN for the statistics", whose),
        rp.Setting("epochs", str(size.epochs), rp.OURS),
        rp.Setting("M", "2" if smoke else "4", rp.OURS if smoke else rp.PUBLISHED),
        rp.Setting("initial step size, batch", "0.5, 128" if real else "0.3, 50", whose),
        rp.Setting("η, T otherwise", "4e-4, 1e-4" if real else "0.01, 1", whose),
        rp.Setting("T", "1 to 1e-5", rp.PUBLISHED),
        rp.Setting("SGD, SGLD", samplers, rp.OURS),
        rp.Setting("η", etas, rp.OURS),
        rp.Setting("burn-in", "0, 10, 20, 30, 40, 47 of 50 epochs", rp.PUBLISHED),
        rp.Setting("schedules", schedules, rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
    ]


STUDY = rp.Study(
    name="emcmc-ablations",
    paper="emcmc",
    where="App. A.2, C; Tables 3, 4, 6–9, Fig. 6",
    title="one setting of Entropy-MCMC at a time",
    needs=("cifar10",),
    hours=(0.01, 0.16, 16, 48),
    parts=(
        rp.Part(name=CIFAR, label="CIFAR-10", data=(CIFAR,), sampled=rp.comparison(preset), scales=rp.ON_GPU),
        rp.Part(
            name=DIGITS,
            label="digits",
            sampled=rp.comparison(preset),
            stands_for="CIFAR-10",
            scales=("smoke", "cpu"),
        ),
    ),
    rows=labels,
    columns=(rp.Heading("error", "Test error", "%", 2), rp.Heading("nll", "NLL", "nats", 4)),
    claims=tuple(c for part in (CIFAR, DIGITS) for c in claims(part)),
    settings=settings,
    differences="""
smoke: A few settings and steps: this only shows that everything runs.
cpu gpu paper: The numbers of the paper's Tables 3, 4 and 6 to 9 are unreadable in our text: its sentences are what is
    held against.
cpu: digits, 8×8 images under a small network, stands in for CIFAR-10: 35 settings of ResNet-18 take months on two
    cores. T is 1 there where nothing else is said, at which no step of a chain is cold; small effects of CIFAR need
    not show.
cpu: Shifts by a pixel stand in for crops and mirroring.
gpu paper: FRN is left out here: it is a task of its own, cifar10-resnet18-frn.
""",
    figures=rp.figure(
        "cells",
        _draw,
        name="ablations",
        title="One setting at a time",
        caption="Test error, mean ± standard error over the repeats. Every chain is Entropy-MCMC's under its "
        "defaults but for the one setting, or SGD's and SGLD's where they are named.",
        alt="Dots with error bars of the test error for every setting, in one panel per ablation",
    ),
)
