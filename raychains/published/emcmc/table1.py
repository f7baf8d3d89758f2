"""Table 1: test accuracy and NLL of seven methods on CIFAR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from raychains.published.claims import Claim, Of, Rule, Summary
from raychains.published.emcmc.chains import LABELS, NAMES, differences, preset, settings
from raychains.published.experiment import Experiment, Part, Sampled, Tables, Value
from raychains.published.found import Found
from raychains.published.tables import Heading

ACCURACY, NLL = "accuracy", "nll"
DATA = ("cifar10", "cifar100")
PUBLISHED = {
    "sgd": (94.87, 76.49), "entropy-sgd": (95.11, 77.45), "sam": (95.25, 78.41), "bsam": (95.53, 78.92),
    "sgld": (95.47, 78.79), "entropy-sgld": (94.46, 77.98), "emcmc": (95.69, 79.16),
}  # fmt: skip
"""Accuracy in per cent on CIFAR-10 and CIFAR-100."""
PAIRED = ("sgld",)
"""Methods whose batches are Entropy-MCMC's: their steps are as many."""


def rule(method: str) -> Rule:
    """Of a claim that compares Entropy-MCMC with a method."""
    return "paired" if method in PAIRED else "welch"


def tables(dataset: str, scale: str, found: Sequence[Found]) -> Tables:
    (run,) = found
    results = run.results.assign(**{ACCURACY: 1 - run.results["error"]})
    return {
        "cells": run.cells_of(
            results, dataset, {n: n for n in NAMES}, {ACCURACY: ACCURACY, NLL: NLL}, {ACCURACY: 100.0}
        )
    }


def _part(dataset: str) -> Part:
    return Part(
        name=dataset, label=LABELS[dataset], data=lambda scale: (dataset,), tables=partial(tables, dataset),
        sampled=lambda scale: [Sampled(preset=preset(dataset, scale))],
        scales=("smoke", "cpu", "gpu", "paper") if dataset == "cifar10" else ("cpu", "gpu", "paper"),
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        name="emcmc-table1", title="test accuracy on CIFAR", paper="emcmc", where="Table 1", order=30,
        parts=tuple(_part(dataset) for dataset in DATA),
        rows=lambda scale: [Heading(key, label) for key, label in NAMES.items()],
        columns=lambda scale: (Heading(ACCURACY, "Accuracy", "%", 2), Heading(NLL, "NLL", "nats", 4)),
        values=tuple(
            Value(
                part=dataset, row=row, column=ACCURACY, text=f"{number:.2f}", standing="from memory",
                summary=Summary(mean=number, se=math.nan, n=0), source="Li & Zhang 2024, Table 1",
            )
            for row, numbers in PUBLISHED.items()
            for dataset, number in zip(DATA, numbers, strict=True)
        ),
        claims=tuple(
            Claim(
                name=f"emcmc-{'above' if column == ACCURACY else 'below'}-{other}-{column}-{dataset}", part=dataset,
                direction="greater" if column == ACCURACY else "less", rule=rule(other),
                text=f"Entropy-MCMC {what} than {NAMES[other]} on {LABELS[dataset]}.",
                left=Of(row="emcmc", column=column), right=Of(row=other, column=column),
            )
            for dataset in DATA
            for column, what in ((ACCURACY, "is more accurate"), (NLL, "has a lower test NLL"))
            for other in NAMES
            if other != "emcmc"
        ),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.01, "cpu": 0.55, "gpu": 8.0, "paper": 28.0},
    ),
)  # fmt: skip
