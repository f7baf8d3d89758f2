"""Table 1: test errors of eight methods that run one chain."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.plotting.charts import DASHED, Axis, Chart, Mark, Panel, Rule

NAMES = rp.labels("sgd sgdm snapshot-sgd snapshot-sgdm sgld csgld sghmc csghmc")
ERROR = "error"
PRINTED = """
sgd: 5.29 ± 0.15 | 23.61 ± 0.09
sgdm: 5.17 ± 0.09 | 22.98 ± 0.27
snapshot-sgd: 4.46 ± 0.04 | 20.83 ± 0.01
snapshot-sgdm: 4.39 ± 0.01 | 20.81 ± 0.10
sgld: 5.20 ± 0.06 | 23.23 ± 0.01
csgld: 4.29 ± 0.06 | 20.55 ± 0.06
sghmc: 4.93 ± 0.10 | 22.60 ± 0.17
csghmc: 4.27 ± 0.03 | 20.50 ± 0.11
"""
VALUES = rp.printed(PRINTED, [(dataset, ERROR) for dataset in cifar.LABELS], "Zhang et al. 2020, Table 1", runs=3)
BELOW = "csgld sgd, csghmc sgdm, csgld snapshot-sgd, csghmc snapshot-sgdm, csgld sgld, csghmc sghmc, snapshot-sgd sgd, "
BELOW += "snapshot-sgdm sgdm, sgld sgd, sghmc sgdm"
"""Pairs of methods of which §5.2 claims that the first one's error is lower."""
PAIRED = {("csgld", "snapshot-sgd"): " paired", ("sgld", "sgd"): " paired"}
"""Methods that are one path until the noise sets in."""
RERUNS = """
gpu paper: Others have run 200 epochs of cSGHMC on CIFAR-10 with one chain: 4.29 to 4.35 % (the authors' code), 4.47 %
    (a port to JAX, on an H100, whose cSGLD had 4.39 %).
"""
STYLES = rp.styles(
    {name: NAMES[name] for name in ("csghmc", "csgld", "sghmc", "sgld")},
    "csghmc cyclical 0, csgld cyclical 1, sghmc decreasing 0, sgld decreasing 1",
)
"""The methods with several samples."""


def preset(dataset: str, scale: str) -> rp.Preset:
    """Return one chain of each method; the sampling methods' are the first ones of Table 2's arms."""
    about = "SGD(M), Snapshot-SGD(M), SGLD and SGHMC with decreasing and cyclical steps, one chain each"
    return cifar.preset("table1", about, dataset, scale, [cifar.variant(name, name, scale) for name in NAMES])


def tables(run: rp.CompletedRun) -> rp.Tables:
    return cifar.measured(run, NAMES.keys(), ERROR)


def _draw(growth: pd.DataFrame, chains: pd.DataFrame) -> Figure:
    """Draw error and NLL against the number of samples, a line for each chain, and the published errors."""
    published = {NAMES[v.row]: v.summary.mean for v in VALUES if v.part == "cifar10"}
    x = Axis(label="Samples of the chain", ticks={float(n): f"{n}" for n in sorted(set(growth["samples"]))})
    shown = []
    for metric, label in (("error", "Test error (%)"), ("nll", "NLL (nats)")):
        marks: list[Mark] = []
        for style, mine in rp.styled(growth, STYLES):
            marks += [style.line(one["samples"], one[metric], size=3.5) for _, one in mine.groupby("repeat")]
            if metric == "error":
                marks.append(Rule(at=published[style.label], style={**DASHED, "color": style.colour}))
        shown.append(Panel(marks=marks, x=x, y=Axis(label=label)))
    return Chart(panels=shown, columns=2, legend=[("published, of all samples", DASHED)])()


def _caption(scale: str, growth: pd.DataFrame, chains: pd.DataFrame) -> str:
    speeds = [
        f"{NAMES[one.row]} on {one.device}: {one.images_per_second:,.0f} training images a second, "
        f"{one.seconds / 60:.1f} minutes"
        for one in chains.itertuples()
    ]
    return f"Test error and NLL of the averaged predictions of the first samples. {'; '.join(speeds)}."


STUDY = rp.Study(
    name="table1",
    paper="csgmcmc",
    where="Table 1",
    title="test error of single chains on CIFAR",
    needs=("cifar10", "cifar100"),
    hours=(0.0064, 0.48, 7, 21),
    parts=cifar.parts(preset, cifar.OF_TABLES, tables),
    rows=NAMES,
    columns=(rp.Heading(ERROR, "Test error", "%"),),
    values=VALUES,
    claims=rp.stated(
        f"{left}-below-{right}-{dataset} | {dataset} {ERROR} | {left} < {right}{PAIRED.get((left, right), '')} | "
        f"{NAMES[left]} has a lower test error than {NAMES[right]} on {label}."
        for dataset, label in cifar.LABELS.items()
        for left, right in (pair.split() for pair in BELOW.split(","))
    ),
    settings=cifar.settings,
    differences=cifar.REPEATED + RERUNS,
    figures=rp.figure(
        "growth chains",
        _draw,
        name="samples",
        title="Error and NLL against the number of samples",
        caption=_caption,
        alt="Test error and NLL of the first samples of each chain, and the published errors",
    ),
)
