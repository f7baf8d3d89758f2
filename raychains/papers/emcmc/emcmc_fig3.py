"""Logistic regression on MNIST's ones and sevens (§6.2, Fig. 3): how fast four methods converge, per gradient
evaluation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import raychains as rc
from raychains import papers as rp
from raychains import samplers, schedules
from raychains.plotting.charts import Axis, Chart, Panel

NAMES = rp.labels("emcmc entropy-sgd entropy-sgld sgld")
STYLES = rp.styles(NAMES, "emcmc cyclical 0, entropy-sgd other 0, entropy-sgld other 1, sgld decreasing 0")
PARTS = {"mnist": "N = 13,007", "authors": "N = 60,000, as in the authors' code"}
SCALES = {"mnist": rp.ALL, "authors": rp.NOT_SMOKE}
AUTHORS_N = 60_000
QUARTER = 51
"""Steps between samples: a quarter of the 204 that batches of 64 of 13,007 images make an epoch."""
WHOLE = rp.Size(epochs=10, repeats=10, options={"thinning": QUARTER})
SIZES = dict.fromkeys(rp.NOT_SMOKE, WHOLE)
SIZES |= {"smoke": rp.Size(epochs=10, repeats=2, batch_size=10, options={"thinning": 4})}
SAME = 0.005
"""Nats by which two methods of similar rates may differ over the first epoch."""


def preset(part: str, scale: str) -> rp.Preset:
    """Return mnist-1v7, each variant under its method's name."""
    known = rp.named("mnist-1v7")
    more = {"sampler_settings": (f"num_data={AUTHORS_N}",)} if part == "authors" else {}
    variants = [dataclasses.replace(v, name=v.sampler) for v in known.variants]
    name, given = f"emcmc-fig3-{part}", {**SIZES[scale].options, "seed": 3, **more}
    return SIZES[scale].preset(name, known.about, known.task, variants, schedule=known.schedule, **given)


def spent(spec: rc.ChainSpec, index: int, variable: str, epochs: int) -> float:
    """Return the cost in epochs of gradient evaluations, of ``epochs`` in all, before a chain drew a sample."""
    made = schedules.build(spec.schedule)
    kept = [k for k in range(1, made.steps + 1) if made.at(k).keep]
    return epochs * kept[index // samplers.variables(spec.sampler)[variable]] / spec.steps


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return metrics of single samples against gradient evaluations, and of all samples of a chain together."""
    views = run.table("views")
    views = views[(views["kind"] == "samples") & (views["weighting"] == "equal")]
    cells = run.cells(NAMES.keys(), ["error"])
    points: list[dict[str, Any]] = []
    for method in NAMES:
        arm = run.arm(method)
        for row in views[views["arm"] == arm.name].to_dict("records"):
            _, position, index, variable = str(row["view"]).split(":")
            repeat = int(row["group"])
            spec = arm.chains[repeat][int(position)]
            epochs = spent(spec, int(index), variable, SIZES[run.scale].epochs)
            where = {"part": run.part, "row": method, "repeat": repeat, "index": int(index), "epochs": epochs}
            points.append({**where, "nll": row["nll"], "error": 100 * row["error"], "digest": spec.digest})
    table = pd.DataFrame(points).sort_values(["row", "repeat", "epochs"])
    for (method, repeat), mine in table.groupby(["row", "repeat"]):
        first = mine[mine["epochs"] <= max(1, mine["epochs"].min()) + 1e-6]
        last = mine[mine["epochs"] > mine["epochs"].max() - 1 + 1e-6]
        digest = str(mine["digest"].iloc[0])
        for column, values in (("early", first["nll"]), ("late", last["error"])):
            value, n = float(values.mean()), len(values)
            cells.append(rp.cell(run.part, str(method), column, int(repeat), value, digests=digest, samples=n))
    by = table.groupby(["row", "epochs"])[["nll", "error"]]
    curve = by.mean().join(by.std(ddof=1), rsuffix="_sd").reset_index()
    curve.insert(0, "part", run.part)
    return {"cells": cells, "curve": curve.to_dict("records"), "points": table.to_dict("records")}


def _draw(curve: pd.DataFrame) -> Figure:
    """Draw test NLL and error of single samples against gradient evaluations."""
    shown = []
    for metric, label in (("nll", "Test NLL (nats)"), ("error", "Test error (%)")):
        lines = []
        for style, mine in rp.styled(curve, STYLES):
            mean, sd = mine[metric], mine[f"{metric}_sd"].fillna(0)
            lines.append(style.line(mine["epochs"], mean, band=((mean - sd).clip(lower=mean / 3), mean + sd)))
        x = Axis(label="Epochs of gradient evaluations")
        shown.append(Panel(marks=lines, x=x, y=Axis(label=label, scale="log")))
    return Chart(panels=shown, columns=2, legend_columns=4)()


def claims(part: str) -> tuple[rp.Claim, ...]:
    where = f"({PARTS[part]})."
    faster = "Entropy-MCMC converges faster than {}: its NLL over the first epoch is lower"
    return rp.stated(
        f"""
faster-than-entropy-sgd-{part} | {part} early | emcmc < entropy-sgd | {faster.format("Entropy-SGD")} {where}
faster-than-entropy-sgld-{part} | {part} early | emcmc < entropy-sgld | {faster.format("Entropy-SGLD")} {where}
as-fast-as-sgld-{part} | {part} early | emcmc = sgld paired | Entropy-MCMC's NLL over the first epoch is SGLD's, to
    {SAME:g} {where}
below-sgld-{part} | {part} late | emcmc < sgld paired | Entropy-MCMC's test error in the last epoch is below SGLD's
    {where}
ensemble-below-sgld-{part} | {part} error | emcmc < sgld paired | The test error of all samples is below SGLD's {where}
""",
        tolerance=SAME,
    )


def settings(scale: str) -> list[rp.Setting]:
    size = SIZES[scale]
    return [
        rp.Setting("network", "784 × 2 weights, no intercept", rp.CODE),
        rp.Setting("lr", "0.03", rp.CODE),
        rp.Setting("batch", str(size.batch_size or 64), rp.OURS if scale == "smoke" else rp.CODE),
        rp.Setting("η", "1", rp.CODE),
        rp.Setting("T", "1", rp.CODE),
        rp.Setting("step size", "constant", rp.OURS),
        rp.Setting("epochs", f"{size.epochs}, in gradient evaluations", rp.OURS),
        rp.Setting("weight decay", "1e-4", rp.OURS),
        rp.Setting("Entropy-SG(L)D", "20 inner steps of 0.03, outer step 1, γ 0.03", rp.OURS),
        rp.Setting("predicts with", "θ", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
    ]


STUDY = rp.Study(
    name="emcmc-fig3",
    paper="emcmc",
    where="Fig. 3",
    title="logistic regression on MNIST's 1 and 7",
    needs=("mnist",),
    hours=(0.01, 0.05, 0.05, 0.05),
    parts=rp.parts(PARTS, rp.comparison(preset, views=("samples",)), tables, data=lambda part: "mnist", scales=SCALES),
    rows=NAMES,
    columns=(
        rp.Heading("early", "Test NLL of θ, mean over the first epoch", "nats", 4),
        rp.Heading("late", "Test error of θ, last epoch", "%", 2),
        rp.Heading("error", "Test error of all samples", "%", 2),
    ),
    claims=tuple(c for name in PARTS for c in claims(name)),
    settings=settings,
    differences="""
smoke: A few steps on some forty made-up images: this only shows that everything runs.
cpu gpu paper: The paper shows curves without numbers; epochs, weight decay and the baselines' settings are ours. It
    does not say what an epoch of Entropy-SG(L)D is: here it is as many gradient evaluations as for the others, 20 to
    each outer step.
cpu gpu paper: The authors' code passes N = 60,000, the number of all digits, for the 13,007 ones and sevens: noise
    and coupling are then weaker than the posterior's. Both are run.
cpu gpu paper: At η = 1 θₐ is as wide as the prior of a weight that counts: it predicts badly, and is left out here.
""",
    figures=rp.figure(
        "curve",
        _draw,
        name="convergence",
        title="Convergence by gradient evaluations, {part}",
        caption="Each sample of θ by itself, mean over the repeats, bands ± one standard deviation. An epoch is "
        "as many gradient evaluations as there are training images; the inner steps of Entropy-SG(L)D "
        "count as what they cost.",
        alt="Test NLL and test error against epochs of gradient evaluations for four methods",
        parts=PARTS,
    ),
)
