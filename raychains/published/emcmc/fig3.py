"""Logistic regression on MNIST's ones and sevens (§6.2, Fig. 3): how fast four methods converge, per gradient evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raychains import samplers, schedules
from raychains.experiments import presets
from raychains.experiments.one_versus_seven import QUARTER
from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures.layout import handle, legend, log_axis, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line
from raychains.spec import ChainSpec

NAMES = {"emcmc": "Entropy-MCMC", "entropy-sgd": "Entropy-SGD", "entropy-sgld": "Entropy-SGLD", "sgld": "SGLD"}
LOOKS = {
    "emcmc": Look("cyclical", 0, NAMES["emcmc"]), "entropy-sgd": Look("other", 0, NAMES["entropy-sgd"]),
    "entropy-sgld": Look("other", 1, NAMES["entropy-sgld"]), "sgld": Look("decreasing", 0, NAMES["sgld"]),
}  # fmt: skip
PARTS = {"mnist": "N = 13,007", "authors": "N = 60,000, as in the authors' code"}
AUTHORS_N = 60_000
COLUMNS = {
    "early": Heading("early", "Test NLL of θ, mean over the first epoch", "nats", 4),
    "late": Heading("late", "Test error of θ, last epoch", "%", 2),
    "error": Heading("error", "Test error of all samples", "%", 2),
}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"epochs": 10, "repeats": 2, "batch_size": 10, "thinning": 4},
    "cpu": {"epochs": 10, "repeats": 10, "thinning": QUARTER},
    "gpu": {"epochs": 10, "repeats": 10, "thinning": QUARTER},
    "paper": {"epochs": 10, "repeats": 10, "thinning": QUARTER},
}
SAME = 0.005
"""Nats by which two methods of similar rates may differ over the first epoch."""


def preset(part: str, scale: str) -> Preset:
    """mnist-1v7, each variant under its method's name."""
    known = presets.named("mnist-1v7")
    more = {"sampler_settings": (f"num_data={AUTHORS_N}",)} if part == "authors" else {}
    variants = [dataclasses.replace(v, name=v.sampler) for v in known.variants]
    options = {**known.options, **SIZES[scale], "chains": 1, "seed": 3, **more}
    return dataclasses.replace(known, name=f"emcmc-fig3-{part}", options=options, variants=variants)


def spent(spec: ChainSpec, index: int, variable: str, epochs: int) -> float:
    """Epochs' worth of gradient evaluations, of so many in all, that a chain had spent when it drew a sample."""
    made = schedules.build(spec.schedule)
    kept = [k for k in range(1, made.steps + 1) if made.at(k).keep]
    return epochs * kept[index // samplers.variables(spec.sampler)[variable]] / spec.steps


def tables(part: str, scale: str, found: Sequence[Found]) -> Tables:
    """Metrics of single samples against gradient evaluations, and of all samples of a chain together."""
    (run,) = found
    views = run.table("views")
    views = views[(views["kind"] == "samples") & (views["weighting"] == "equal")]
    cells = run.cells(part, {n: n for n in NAMES}, {"error": "error"}, {"error": 100.0})
    points: list[dict[str, Any]] = []
    for method in NAMES:
        arm = run.arm(method)
        for row in views[views["arm"] == arm.name].to_dict("records"):
            _, position, index, variable = str(row["view"]).split(":")
            spec = arm.chains[int(row["group"])][int(position)]
            points.append(
                {
                    "part": part, "row": method, "repeat": int(row["group"]), "index": int(index),
                    "epochs": spent(spec, int(index), variable, SIZES[scale]["epochs"]), "nll": row["nll"], "error": 100 * row["error"],
                    "digest": spec.digest,
                }
            )  # fmt: skip
    table = pd.DataFrame(points).sort_values(["row", "repeat", "epochs"])
    for (method, repeat), mine in table.groupby(["row", "repeat"]):
        first = mine[mine["epochs"] <= max(1, mine["epochs"].min()) + 1e-6]
        last = mine[mine["epochs"] > mine["epochs"].max() - 1 + 1e-6]
        digest = str(mine["digest"].iloc[0])
        for column, value, n in (("early", first["nll"].mean(), len(first)), ("late", last["error"].mean(), len(last))):
            cells.append(cell(part, str(method), column, int(repeat), float(value), digests=digest, samples=n))
    by = table.groupby(["row", "epochs"])[["nll", "error"]]
    curve = by.mean().join(by.std(ddof=1), rsuffix="_sd").reset_index()
    return {"cells": cells, "curve": [{"part": part, **row} for row in _records(curve)], "points": _records(table)}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_dict("records")
    return found


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Test NLL and error of single samples against gradient evaluations, one drawing per part."""
    if "curve" not in tables:
        return []
    curve = tables["curve"]
    return [
        Drawing(
            name=f"convergence-{part}",
            title=f"Convergence by gradient evaluations, {label}",
            caption="Each sample of θ by itself, mean over the repeats, bands ± one standard deviation. An epoch is as many "
            "gradient evaluations as there are training images; the inner steps of Entropy-SG(L)D count as what they cost.",
            alt="Test NLL and test error against epochs of gradient evaluations for four methods",
            draw=partial(_draw, curve[curve["part"] == part]),
        )
        for part, label in PARTS.items()
        if part in set(curve["part"])
    ]


def _draw(curve: pd.DataFrame, theme: Theme) -> Figure:
    figure, ((left, right),) = panels(1, 2, 3.0)
    for axis, metric, label in ((left, "nll", "Test NLL (nats)"), (right, "error", "Test error (%)")):
        for method, look in LOOKS.items():
            mine = curve[curve["row"] == method]
            colour = theme.colour(look)
            axis.plot(mine["epochs"], mine[metric], color=colour, linestyle=line(look))
            sd = mine[f"{metric}_sd"].fillna(0)
            low = (mine[metric] - sd).clip(lower=mine[metric] / 3)
            axis.fill_between(mine["epochs"], low, mine[metric] + sd, color=colour, alpha=0.13, linewidth=0)
        axis.set(yscale="log", xlabel="Epochs of gradient evaluations", ylabel=label)
        log_axis(axis.yaxis)
    legend(figure, [handle(theme, look) for look in LOOKS.values()], columns=4)
    return figure


def _claims(part: str) -> list[Claim]:
    scales = ("smoke", "cpu", "gpu", "paper") if part == "mnist" else ("cpu", "gpu", "paper")
    where = PARTS[part]

    def of(name: str, text: str, right: str, column: str, direction: Any, **more: Any) -> Claim:
        return Claim(
            name=f"{name}-{part}", text=f"{text} ({where}).", part=part, left=Of(row="emcmc", column=column),
            right=Of(row=right, column=column), direction=direction, scales=scales, **more,
        )  # fmt: skip

    return [
        *(
            of(f"faster-than-{m}", f"Entropy-MCMC converges faster than {NAMES[m]}: its NLL over the first epoch is lower", m,
               "early", "less", rule="welch")
            for m in ("entropy-sgd", "entropy-sgld")
        ),
        of("as-fast-as-sgld", f"Entropy-MCMC's NLL over the first epoch is SGLD's, to {SAME:g}", "sgld", "early", "equal",
           rule="paired", tolerance=SAME),
        of("below-sgld", "Entropy-MCMC's test error in the last epoch is below SGLD's", "sgld", "late", "less", rule="paired"),
        of("ensemble-below-sgld", "The test error of all samples is below SGLD's", "sgld", "error", "less", rule="paired"),
    ]  # fmt: skip


def settings(scale: str) -> list[Setting]:
    size = SIZES[scale]
    smoke = scale == "smoke"
    return [
        Setting(name="network", value="784 × 2 weights, no intercept", origin="authors' code"),
        Setting(name="lr", value="0.03", origin="authors' code"),
        Setting(name="batch", value=str(size.get("batch_size", 64)), origin="ours" if smoke else "authors' code"),
        Setting(name="η", value="1", origin="authors' code"),
        Setting(name="T", value="1", origin="authors' code"),
        Setting(name="step size", value="constant", origin="ours"),
        Setting(name="epochs", value=f"{size['epochs']}, in gradient evaluations", origin="ours"),
        Setting(name="weight decay", value="1e-4", origin="ours"),
        Setting(name="Entropy-SG(L)D", value="20 inner steps of 0.03, outer step 1, γ 0.03", origin="ours"),
        Setting(name="predicts with", value="θ", origin="ours"),
        Setting(name="repeats", value=str(size["repeats"]), origin="ours"),
    ]


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["A few steps on some forty made-up images: this only shows that everything runs."]
    return [
        "The paper shows curves without numbers; epochs, weight decay and the baselines' settings are ours. It does not say what "
        "an epoch of Entropy-SG(L)D is: here it is as many gradient evaluations as for the others, 20 to each outer step.",
        "The authors' code passes N = 60,000, the number of all digits, for the 13,007 ones and sevens: noise and coupling are "
        "then weaker than the posterior's. Both are run.",
        "At η = 1 θₐ is as wide as the prior of a weight that counts: it predicts badly, and is left out here.",
    ]


EXPERIMENTS = (
    Experiment(
        name="emcmc-fig3", title="logistic regression on MNIST's 1 and 7", paper="emcmc", where="Fig. 3", order=23,
        parts=tuple(
            Part(
                name=part, label=label, data=lambda scale: ("mnist",),
                sampled=lambda scale, part=part: [  # type: ignore[misc]
                    Sampled(preset=preset(part, scale), evaluations=(Evaluated(views=("samples",)),))
                ],
                tables=partial(tables, part),
                scales=("smoke", "cpu", "gpu", "paper") if part == "mnist" else ("cpu", "gpu", "paper"),
            )
            for part, label in PARTS.items()
        ),
        rows=lambda scale: [Heading(key, label) for key, label in NAMES.items()],
        columns=lambda scale: tuple(COLUMNS.values()),
        claims=tuple(c for part in PARTS for c in _claims(part)),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.01, "cpu": 0.05, "gpu": 0.05, "paper": 0.05},
        figures=figures,
    ),
)  # fmt: skip
