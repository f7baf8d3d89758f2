"""Table 1: test accuracy and NLL of seven methods on CIFAR."""

from __future__ import annotations

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.papers.emcmc.emcmc_chains import DIFFERENCES, LABELS, NAMES, below, preset, settings

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


def tables(run: rp.CompletedRun) -> rp.Tables:
    return {"cells": run.cells(NAMES.keys(), [ACCURACY, NLL])}


STUDY = rp.Study(
    **rp.listed("emcmc-table1"),
    parts=cifar.parts(preset, tables, cifar.OF_TABLES),
    rows=NAMES,
    columns=(rp.Heading(ACCURACY, "Accuracy", "%", 2), rp.Heading(NLL, "NLL", "nats", 4)),
    values=rp.printed(
        PRINTED, [(d, ACCURACY) for d in cifar.OF_TABLES], "Li & Zhang 2024, Table 1", provenance="from memory"
    ),
    claims=tuple(
        c for d in cifar.OF_TABLES for c in below(d, CLAIMED, f"Entropy-MCMC {{what}} than {{other}} on {LABELS[d]}.")
    ),
    settings=settings,
    differences=DIFFERENCES,
)
