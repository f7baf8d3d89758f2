"""Tables 1 and 2: test accuracy and NLL of one sample and of the posterior predictive, beside SGD's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from raychains.published.atmc.chains import (
    ATMC,
    BATCHNORM,
    CIFAR,
    IMAGENET,
    LABELS,
    NAMES,
    SGD,
    SGNHT,
    SINGLE,
    comparisons,
    differences,
    settings,
)
from raychains.published.claims import Claim, Direction, Of, Rule, Summary
from raychains.published.experiment import Evaluated, Experiment, Part, Sampled, Standing, Tables, Value
from raychains.published.found import Found
from raychains.published.tables import Heading

ACCURACY, NLL = "accuracy", "nll"
ROWS = {
    SGD: NAMES[SGD], BATCHNORM: NAMES[BATCHNORM],
    ATMC + SINGLE: "ATMC (single sample)", ATMC: "ATMC (posterior predictive)",
    SGNHT + SINGLE: "SGNHT (single sample)", SGNHT: "SGNHT (posterior predictive)",
}  # fmt: skip
PUBLISHED = {
    CIFAR: {
        BATCHNORM: (94.4, 0.243), ATMC + SINGLE: (92.4, 0.303), ATMC: (93.9, 0.194), SGNHT + SINGLE: (91.7, 0.343),
        SGNHT: (93.5, 0.211),
    },
    IMAGENET: {
        ATMC + SINGLE: (74.2, 1.08), ATMC: (77.5, 0.883), SGNHT + SINGLE: (73.1, 1.15), SGNHT: (76.4, 0.941),
    },
}  # fmt: skip
"""Accuracy in per cent and NLL in nats."""
READABLE = {(CIFAR, BATCHNORM, ACCURACY), (CIFAR, ATMC, NLL), (IMAGENET, ATMC, ACCURACY), (IMAGENET, ATMC, NLL)}
"""Which of them the paper's own text has; the others come from a later survey's table."""
CLAIMS: Sequence[tuple[str, str, str, Direction, Rule, str]] = (
    (ATMC, ATMC + SINGLE, NLL, "less", "paired", "ATMC's posterior predictive has a lower test NLL than one sample of it"),
    (ATMC, ATMC + SINGLE, ACCURACY, "greater", "paired", "ATMC's posterior predictive is more accurate than one sample"),
    (ATMC, SGNHT, NLL, "less", "paired", "by the numbers ATMC's posterior predictive has a lower test NLL than SGNHT's"),
    (ATMC + SINGLE, SGNHT + SINGLE, NLL, "less", "paired", "by the numbers a sample of ATMC has a lower test NLL than one of SGNHT"),
    (ATMC + SINGLE, SGD, NLL, "less", "welch", "a sample of ATMC has a lower test NLL than SGD without BatchNorm"),
    (ATMC + SINGLE, SGD, ACCURACY, "greater", "welch", "a sample of ATMC is more accurate than SGD without BatchNorm"),
    (ATMC, BATCHNORM, NLL, "less", "welch", "ATMC's posterior predictive has a lower test NLL than SGD with BatchNorm"),
)  # fmt: skip
"""What §5 says of both tables; of SGNHT it says nothing, and its numbers are all there is."""
APART: Sequence[tuple[str, Direction, str]] = (
    (CIFAR, "less", "SGD with BatchNorm is more accurate than ATMC's posterior predictive"),
    (IMAGENET, "greater", "ATMC's posterior predictive is more accurate than SGD with BatchNorm"),
)
"""ATMC's accuracy against that of SGD with BatchNorm."""


def _sampled(dataset: str, scale: str) -> list[Sampled]:
    plus, norm = comparisons(dataset, scale, tuple(NAMES))
    return [Sampled(preset=plus, evaluations=(Evaluated(views=("samples",)),)), Sampled(preset=norm)]


def _tables(dataset: str, scale: str, found: Sequence[Found]) -> Tables:
    plus, norm = found
    columns = {ACCURACY: ACCURACY, NLL: NLL}
    scaled = {ACCURACY: 100.0}
    views = _accurate(plus.table("views"))
    last = views[views["kind"] == "samples"].groupby(["arm", "repeat"], sort=False).tail(1)
    cells = plus.cells_of(_accurate(plus.results), dataset, {n: n for n in (SGD, ATMC, SGNHT)}, columns, scaled)
    cells += plus.cells_of(last, dataset, {n: n + SINGLE for n in (ATMC, SGNHT)}, columns, scaled)
    cells += norm.cells_of(_accurate(norm.results), dataset, {BATCHNORM: BATCHNORM}, columns, scaled)
    return {"cells": cells}


def _accurate(results: Any) -> Any:
    return results.assign(**{ACCURACY: 1 - results["error"]})


def _values(dataset: str, where: str) -> tuple[Value, ...]:
    made = []
    for row, numbers in PUBLISHED[dataset].items():
        for column, number in zip((ACCURACY, NLL), numbers, strict=True):
            standing: Standing = "in the paper's text" if (dataset, row, column) in READABLE else "unknown"
            source = f"Heek & Kalchbrenner 2019, {where}"
            made.append(
                Value(
                    part=dataset, row=row, column=column, text=f"{number:g}",
                    summary=Summary(mean=number, se=math.nan, n=0), standing=standing,
                    source=source if standing != "unknown" else f"{source}, as a later survey's table has it",
                )
            )  # fmt: skip
    return tuple(made)


def _claims(dataset: str) -> tuple[Claim, ...]:
    stated = [
        Claim(
            name=f"{left}-{'below' if column == NLL else 'above'}-{right}-{column}", part=dataset, direction=direction,
            rule=rule, text=f"{text[0].upper()}{text[1:]} on {LABELS[dataset]}.", left=Of(row=left, column=column),
            right=Of(row=right, column=column),
        )
        for left, right, column, direction, rule, text in CLAIMS
    ]  # fmt: skip
    stated += [
        Claim(
            name="atmc-and-batchnorm-accuracy", part=dataset, direction=direction, rule="welch",
            text=f"{text} on {LABELS[dataset]}.", left=Of(row=ATMC, column=ACCURACY), right=Of(row=BATCHNORM, column=ACCURACY),
        )
        for where, direction, text in APART
        if where == dataset
    ]  # fmt: skip
    return tuple(stated)


def _experiment(dataset: str, name: str, title: str, where: str, order: float, **more: Any) -> Experiment:
    sampled: Callable[[str], Sequence[Sampled]] = partial(_sampled, dataset)
    return Experiment(
        name=name, title=title, paper="atmc", where=where, order=order,
        parts=(
            Part(
                name=dataset, label=LABELS[dataset], data=lambda scale: (dataset,), sampled=sampled,
                tables=partial(_tables, dataset),
            ),
        ),
        rows=lambda scale: [Heading(key, label) for key, label in ROWS.items()],
        columns=lambda scale: (Heading(ACCURACY, "Top-1 accuracy", "%", 2), Heading(NLL, "NLL", "nats", 4)),
        values=_values(dataset, where), claims=_claims(dataset),
        settings=partial(settings, dataset=dataset), differences=partial(differences, dataset=dataset), **more,
    )  # fmt: skip


EXPERIMENTS = (
    _experiment(
        CIFAR, "atmc-table1", "CIFAR-10 under ResNet++", "Table 1", 15,
        hours={"smoke": 0.01, "cpu": 0.7, "gpu": 5.0, "paper": 30.0},
    ),
    _experiment(
        IMAGENET, "atmc-table2", "ImageNet under ResNet++", "Table 2", 16,
        hours={"smoke": 0.01, "cpu": 0.0, "gpu": 60.0, "paper": 500.0},
    ),
)  # fmt: skip
