"""Table 1: test accuracy and NLL of seven methods on CIFAR."""

from __future__ import annotations

from functools import partial

from raychains.papers import ALL, NOT_SMOKE
from raychains.papers.completed_run import CompletedRun
from raychains.papers.contents import listed
from raychains.papers.emcmc.chains import DIFFERENCES, LABELS, NAMES, below, preset, settings
from raychains.papers.experiment import Experiment, Part, Tables, comparison, printed
from raychains.papers.tables import Heading

ACCURACY, NLL = "accuracy", "nll"
DATA = {"cifar10": ALL, "cifar100": NOT_SMOKE}
PRINTED = """
sgd: 94.87 | 76.49
entropy-sgd: 95.11 | 77.45
sam: 95.25 | 78.41
bsam: 95.53 | 78.92
sgld: 95.47 | 78.79
entropy-sgld: 94.46 | 77.98
emcmc: 95.69 | 79.16
"""
"""Accuracy in per cent on CIFAR-10 and CIFAR-100."""
CLAIMED = {ACCURACY: "is more accurate", NLL: "has a lower test NLL"}


def tables(run: CompletedRun) -> Tables:
    return {"cells": run.cells(NAMES.keys(), [ACCURACY, NLL])}


EXPERIMENTS = (
    Experiment(
        **listed("emcmc-table1"),
        parts=tuple(
            Part(
                name=dataset,
                label=LABELS[dataset],
                data=(dataset,),
                sampled=comparison(partial(preset, dataset)),
                tables=tables,
                scales=scales,
            )
            for dataset, scales in DATA.items()
        ),
        rows=NAMES,
        columns=(Heading(ACCURACY, "Accuracy", "%", 2), Heading(NLL, "NLL", "nats", 4)),
        values=printed(PRINTED, [(d, ACCURACY) for d in DATA], "Li & Zhang 2024, Table 1", provenance="from memory"),
        claims=tuple(
            c for d in DATA for c in below(d, CLAIMED, f"Entropy-MCMC {{what}} than {{other}} on {LABELS[d]}.")
        ),
        settings=settings,
        differences=DIFFERENCES,
    ),
)
