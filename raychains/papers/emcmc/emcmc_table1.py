"""Table 1: test accuracy and NLL of seven methods on CIFAR."""

from __future__ import annotations

from raychains.papers.completed_run import CompletedRun
from raychains.papers.contents import listed
from raychains.papers.csgmcmc import cifar
from raychains.papers.emcmc.emcmc_chains import DIFFERENCES, LABELS, NAMES, below, preset, settings
from raychains.papers.experiment import Experiment, Tables, printed
from raychains.papers.published_table import Heading

ACCURACY, NLL = "accuracy", "nll"
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
        parts=cifar.parts(preset, tables, cifar.OF_TABLES),
        rows=NAMES,
        columns=(Heading(ACCURACY, "Accuracy", "%", 2), Heading(NLL, "NLL", "nats", 4)),
        values=printed(
            PRINTED, [(d, ACCURACY) for d in cifar.OF_TABLES], "Li & Zhang 2024, Table 1", provenance="from memory"
        ),
        claims=tuple(
            c
            for d in cifar.OF_TABLES
            for c in below(d, CLAIMED, f"Entropy-MCMC {{what}} than {{other}} on {LABELS[d]}.")
        ),
        settings=settings,
        differences=DIFFERENCES,
    ),
)
