"""What Entropy-MCMC's settings matter (App. A.2, A.3 and C): η, T, schedules, variables, BatchNorm, burn-in, augmentation."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains.experiments import presets
from raychains.experiments.presets import Preset, Variant
from raychains.published.claims import Claim, Of, Rule
from raychains.published.emcmc.chains import ONE_COSINE, T
from raychains.published.experiment import Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found
from raychains.published.tables import Heading
from raychains.report.figures.layout import panels
from raychains.report.style import Drawing, Theme

DIGITS, CIFAR = "digits", "cifar10"
REAL = ("gpu", "paper")
SCHEDULES = ("constant", "linear", "exponential", "step", "cyclical")
"""Table 6's."""
GROUPS = {
    "eta": "η", "temperature": "T", "schedule": "step size", "variables": "predicts with", "batchnorm": "statistics",
    "burn-in": "burn-in", "update": "updates", "augmentation": "",
}  # fmt: skip
SIZES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"epochs": 4, "repeats": 2, "cycles": 2, "samples_per_cycle": 1, "thinning": 10, "chains": 1},
    "cpu": {"epochs": 200, "repeats": 10, "chains": 1},
    "gpu": {"epochs": 200, "repeats": 2, "chains": 1, "precision": "bf16"},
    "paper": {"epochs": 200, "repeats": 3, "chains": 1},
}
FEW = (
    "eta-0.01", "eta-0.1", "temperature-0.0001", "schedule-constant", "schedule-cyclical", "variables-theta",
    "variables-both", "batchnorm-shared", "batchnorm-reestimated", "burn-in-0.8", "update-gibbs",
    "augmentation-emcmc-plain", "augmentation-sgd-plain", "augmentation-sgld-plain",
)  # fmt: skip
"""Of scale smoke: one of each path."""
BEST = 4e-4
"""The published η on CIFAR-10."""
ETAS = (4e-5, 1e-4, BEST, 1e-3, 4e-3)
STRAIGHT = ("cycles", "samples_per_cycle")
"""Of these options none has a schedule without cycles."""


def preset(scale: str) -> Preset:
    """All ablations as one comparison: settings that two of them share are one chain."""
    real = scale in REAL
    variants = [
        *_of("eta", _etas() if real else None),
        *_of("temperature"),
        *_schedules(2 if scale == "smoke" else 8),
        *_of("variables"),
    ]
    variants += [
        *(_norms() if real else _of("batchnorm")),
        *_of("burn-in"),
        Variant(name="update-joint", label="joint"),
        Variant(name="update-gibbs", label="Gibbs", options={"sampler_settings": ("update=gibbs",)}),
        *_augmented(presets.named("emcmc-augmentation"), scale),
    ]
    variants = [v for v in variants if scale != "smoke" or v.name in FEW]
    common = {k: v for k, v in SIZES[scale].items() if k not in STRAIGHT} | {"seed": 13}
    cyclical = {k: SIZES[scale][k] for k in STRAIGHT if k in SIZES[scale]}
    return Preset(
        name="emcmc-ablations", about="one setting of Entropy-MCMC at a time (Li & Zhang 2024, A.2 and C)",
        task="cifar10-resnet18" if real else "digits", schedule="cyclical", options=common,
        variants=[v if v.schedule else dataclasses.replace(v, options={**cyclical, **v.options}) for v in variants],
    )  # fmt: skip


def _of(group: str, variants: Sequence[Variant] | None = None) -> list[Variant]:
    """The variants of a known ablation, named after it."""
    known = variants if variants is not None else presets.named(f"emcmc-{group}").variants
    return [
        dataclasses.replace(
            v, name=f"{group}-{v.name.removeprefix('eta-').removeprefix('t-').removeprefix('burn-in-')}"
        )
        for v in known
    ]


def _etas() -> list[Variant]:
    return [Variant(name=f"{e:g}", label=f"η = {e:g}", options={"sampler_settings": (f"eta={e:g}",)}) for e in ETAS]


def _schedules(samples: int) -> list[Variant]:
    """All with noise throughout and as many draws as the cyclical one, the others at the end of the run."""
    alike = {"schedule_settings": ("noise_from=0.0", f"samples={samples}")}
    return [
        Variant(name=f"schedule-{s}", label=s, schedule="" if s == "cyclical" else s, options={} if s == "cyclical" else alike)
        for s in SCHEDULES
    ]  # fmt: skip


def _norms() -> list[Variant]:
    """BatchNorm in ResNet-18; FRN is a task of its own there."""
    return [
        Variant(name=f"batchnorm-{name}", label=label, options={"batchnorm": how})
        for name, label, how in (
            ("shared", "BatchNorm, θ's statistics", "shared"), ("reestimated", "BatchNorm, re-estimated", "reestimate"),
        )
    ]  # fmt: skip


def _augmented(known: Preset, scale: str) -> list[Variant]:
    """SGD predicts with its last iterate; SGLD has Entropy-MCMC's batch, T and noise, and θ as often as it has θ and θₐ."""
    shared: dict[str, Any] = {"batch_size": 128} if scale in REAL else {}
    sgld = {**shared, "exploration": 0.0, "samples_per_cycle": 2 if scale == "smoke" else 4}
    if scale in REAL:
        sgld["temperature"] = T
    own = {"sgd": {**shared, **ONE_COSINE}, "sgld": sgld, "emcmc": {}}
    return [
        dataclasses.replace(v, name=f"augmentation-{v.sampler}-{v.name}", options={**v.options, **own[v.sampler]})
        for v in known.variants
    ]


def labels(scale: str) -> dict[str, str]:
    """Of the rows."""
    named = {"sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC"}
    made = {}
    for v in preset(scale).variants:
        who = f"{named[v.sampler]}, " if v.name.startswith("augmentation") else ""
        what = f"step size {v.label}" if v.name.startswith("schedule") else v.label
        what = f"{v.label} updates" if v.name.startswith("update") else what
        made[v.name] = f"{who}{what}"
    return made


def tables(part: str, scale: str, found: Sequence[Found]) -> Tables:
    """Error and NLL of all samples of a chain."""
    (run,) = found
    rows = {v.name: v.name for v in run.preset.variants}
    return {"cells": run.cells(part, rows, {"error": "error", "nll": "nll"}, {"error": 100.0})}


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Mean ± standard error of every setting, a panel for each ablation."""
    cells = tables.get("cells")
    if cells is None or not len(cells):
        return []
    return [
        Drawing(
            name="ablations",
            title="One setting at a time",
            caption="Test error, mean ± standard error over the repeats. Every chain is Entropy-MCMC's under its defaults but for the "
            "one setting, or SGD's and SGLD's where they are named.",
            alt="Dots with error bars of the test error for every setting, in one panel per ablation",
            draw=lambda theme: _draw(cells[cells["column"] == "error"], labels(scale), theme),
        )
    ]


LABEL = 16
"""Characters of a line of a row's label in the figure."""
TITLES = {"eta": "η", "batchnorm": "BatchNorm", "burn-in": "Burn-in"}


def _draw(cells: pd.DataFrame, named: Mapping[str, str], theme: Theme) -> Figure:
    groups = {g: [n for n in named if n.startswith(f"{g}-")] for g in GROUPS}
    groups = {g: names for g, names in groups.items() if names}
    figure, axes = panels(-(-len(groups) // 2), 2, 2.1)
    flat = [a for row in axes for a in row]
    colour = theme.families["cyclical"][0]
    for axis, (group, names) in zip(flat, groups.items(), strict=False):
        for place, name in enumerate(names):
            values = cells[cells["row"] == name]["value"].dropna()
            se = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
            axis.errorbar(values.mean(), -place, xerr=se, marker="o", markersize=4, color=colour, capsize=2)
        labels = ["\n".join(textwrap.wrap(named[n], LABEL)) for n in names]
        axis.set_yticks([-i for i in range(len(names))], labels, fontsize=6.5)
        axis.set(xlabel="Test error (%)", title=TITLES.get(group, group.capitalize()), ylim=(-len(names) + 0.5, 0.5))
    for axis in flat[len(groups) :]:
        axis.set_axis_off()
    return figure


def _claim(part: str, name: str, text: str, left: str, right: str, rule: Rule = "welch") -> Claim:
    where = "CIFAR-10" if part == CIFAR else "digits"
    return Claim(
        name=f"{name}-{part}", text=f"{text} ({where}).", part=part, left=Of(row=left, column="error"),
        right=Of(row=right, column="error"), direction="less", rule=rule, scales=REAL if part == CIFAR else ("cpu",),
    )  # fmt: skip


def _claims(part: str) -> list[Claim]:
    """What the paper says of A.3, Fig. 6 and its Tables 3, 4 and 6 to 9, whose numbers are unreadable in our text."""
    lower = "has a lower error than"
    made = [
        _claim(
            part,
            f"cyclical-below-{s}",
            f"The cyclical step size {lower} the {s} one",
            "schedule-cyclical",
            f"schedule-{s}",
        )
        for s in SCHEDULES[:-1]
    ]
    made += [
        _claim(part, f"both-below-{v}", f"Predicting with both {lower} predicting with {label} alone", "variables-both",
               f"variables-{v}", "paired")
        for v, label in (("theta", "θ"), ("anchor", "θₐ"))
    ]  # fmt: skip
    made += [
        _claim(
            part,
            f"cold-below-{t:g}".replace(".", "-"),
            f"T = 1e-4 {lower} T = {t:g}",
            "temperature-0.0001",
            f"temperature-{t:g}",
        )
        for t in (1.0, 0.1)
    ]
    made += [
        _claim(part, f"burn-in-below-{b}".replace(".", "-"), f"A burn-in of 40 of 50 epochs {lower} one of {n}", "burn-in-0.8",
               f"burn-in-{b}")
        for b, n in (("0", 0), ("0.2", 10), ("0.4", 20), ("0.6", 30), ("0.94", 47))
    ]  # fmt: skip
    made.append(
        _claim(part, "reestimated-below-shared", f"BatchNorm with one more forward pass {lower} θ's statistics",
               "batchnorm-reestimated", "batchnorm-shared", "paired")
    )  # fmt: skip
    made.append(
        _claim(
            part,
            "joint-below-gibbs",
            f"Updating both variables together {lower} Gibbs updates",
            "update-joint",
            "update-gibbs",
        )
    )
    if part == CIFAR:
        made += [
            _claim(part, f"eta-below-{e:g}".replace(".", "-"), f"η = {BEST:g} {lower} η = {e:g}", f"eta-{BEST:g}", f"eta-{e:g}")
            for e in ETAS if e != BEST
        ]  # fmt: skip
    return made + [
        _claim(part, f"emcmc-below-{other}-{how}", f"Entropy-MCMC {lower} {other.upper()}, {how}", f"augmentation-emcmc-{how}",
               f"augmentation-{other}-{how}")
        for how in ("augmented", "plain") for other in ("sgd", "sgld")
    ]  # fmt: skip


def settings(scale: str) -> list[Setting]:
    real, smoke, size = scale in REAL, scale == "smoke", SIZES[scale]
    made = [
        Setting(name="network", value="ResNet-18" if real else "MLP; a small CNN for the statistics", origin="published" if real else "ours"),
        Setting(name="epochs", value=str(size["epochs"]), origin="ours" if smoke else "published"),
        Setting(name="M", value=str(size.get("cycles", 4)), origin="ours" if smoke else "published"),
        Setting(name="initial step size, batch", value="0.5, 128" if real else "0.3, 50", origin="published" if real else "ours"),
        Setting(name="η, T otherwise", value="4e-4, 1e-4" if real else "0.01, 1", origin="published" if real else "ours"),
        Setting(name="T", value="1 to 1e-5", origin="published"),
        Setting(
            name="SGD, SGLD", origin="ours",
            value="the last iterate of one cosine; cycles with noise throughout, as many samples as of θ and θₐ",
        ),
        Setting(name="η", value=", ".join(f"{e:g}" for e in (ETAS if real else (0.002, 0.005, 0.01, 0.02, 0.05, 0.1))), origin="ours"),
        Setting(name="burn-in", value="0, 10, 20, 30, 40, 47 of 50 epochs", origin="published"),
        Setting(name="schedules", value="linear and exponential to a hundredth, steps of a tenth at 1/2 and 3/4; noise throughout", origin="ours"),
        Setting(name="repeats", value=str(size["repeats"]), origin="ours"),
    ]  # fmt: skip
    return made


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["A few settings and steps: this only shows that everything runs."]
    made = [
        "The numbers of the paper's Tables 3, 4 and 6 to 9 are unreadable in our text: its sentences are what is held against."
    ]
    if scale == "cpu":
        made += [
            "digits, 8×8 images under a small network, stands in for CIFAR-10: 35 settings of ResNet-18 take months on two cores. "
            "T is 1 there where nothing else is said, at which no step of a chain is cold; small effects of CIFAR need not show.",
            "Shifts by a pixel stand in for crops and mirroring.",
        ]
    else:
        made.append("FRN is left out here: it is a task of its own, cifar10-resnet18-frn.")
    return made


EXPERIMENTS = (
    Experiment(
        name="emcmc-ablations", title="one setting of Entropy-MCMC at a time", paper="emcmc",
        where="App. A.2, C; Tables 3, 4, 6–9, Fig. 6", order=33,
        parts=(
            Part(
                name=CIFAR, label="CIFAR-10", data=lambda scale: ("cifar10",), tables=partial(tables, CIFAR), scales=REAL,
                sampled=lambda scale: [Sampled(preset=preset(scale))],
            ),
            Part(
                name=DIGITS, label="digits", tables=partial(tables, DIGITS), scales=("smoke", "cpu"), stands_for="CIFAR-10",
                sampled=lambda scale: [Sampled(preset=preset(scale))],
            ),
        ),
        rows=lambda scale: [Heading(key, label) for key, label in labels(scale).items()],
        columns=lambda scale: (Heading("error", "Test error", "%", 2), Heading("nll", "NLL", "nats", 4)),
        claims=tuple(c for part in (CIFAR, DIGITS) for c in _claims(part)),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.01, "cpu": 0.16, "gpu": 16, "paper": 48},
        figures=figures,
    ),
)  # fmt: skip
