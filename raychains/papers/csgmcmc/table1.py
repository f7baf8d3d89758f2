"""Table 1: test errors of eight methods that run one chain."""

from __future__ import annotations

from raychains.papers.claims import claim
from raychains.papers.completed_run import CompletedRun
from raychains.papers.contents import listed
from raychains.papers.csgmcmc import cifar
from raychains.papers.experiment import Experiment, Tables, printed
from raychains.papers.tables import Heading
from raychains.planning.presets.named import Preset

NAMES = {"sgd": "SGD", "sgdm": "SGDM", "snapshot-sgd": "Snapshot-SGD", "snapshot-sgdm": "Snapshot-SGDM"}
NAMES |= {"sgld": "SGLD", "csgld": "cSGLD", "sghmc": "SGHMC", "csghmc": "cSGHMC"}
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
BELOW = "csgld sgd, csghmc sgdm, csgld snapshot-sgd, csghmc snapshot-sgdm, csgld sgld, csghmc sghmc, snapshot-sgd sgd, "
BELOW += "snapshot-sgdm sgdm, sgld sgd, sghmc sgdm"
"""Pairs of methods of which §5.2 claims that the first one's error is lower."""
PAIRED = (("csgld", "snapshot-sgd"), ("sgld", "sgd"))
"""Methods that are one path until the noise sets in."""


def preset(dataset: str, scale: str) -> Preset:
    """Return one chain of each method; the sampling methods' are the first ones of Table 2's arms."""
    about = "SGD(M), Snapshot-SGD(M), SGLD and SGHMC with decreasing and cyclical steps, one chain each"
    return cifar.preset("table1", about, dataset, scale, [cifar.variant(name, name, scale) for name in NAMES])


def tables(run: CompletedRun) -> Tables:
    return cifar.measured(run, NAMES.keys(), ERROR)


EXPERIMENTS = (
    Experiment(
        **listed("table1"),
        parts=cifar.parts(preset, tables, cifar.OF_TABLES),
        rows=NAMES,
        columns=(Heading(ERROR, "Test error", "%"),),
        values=printed(PRINTED, [(dataset, ERROR) for dataset in cifar.LABELS], "Zhang et al. 2020, Table 1", runs=3),
        claims=tuple(
            claim(
                f"{left}-below-{right}-{dataset}",
                f"{NAMES[left]} has a lower test error than {NAMES[right]} on {cifar.LABELS[dataset]}.",
                *(dataset, ERROR, left, "less", right),
                rule="paired" if (left, right) in PAIRED else "welch",
            )
            for dataset in cifar.LABELS
            for left, right in (pair.split() for pair in BELOW.split(","))
        ),
        settings=cifar.settings,
        differences=cifar.REPEATED,
    ),
)
