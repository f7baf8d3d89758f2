"""Tables 1 and 2: test accuracy and NLL of one sample and of the posterior predictive, and SGD's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from raychains import papers as rp
from raychains.papers.atmc import atmc_chains
from raychains.papers.atmc.atmc_chains import ATMC, BATCHNORM, CIFAR, IMAGENET, LABELS, NAMES, SGD, SGNHT, comparisons

ACCURACY, NLL = METRICS = ("accuracy", "nll")
SINGLE = "-single"
"""Ends the row of a sampler's last sample alone."""
ROWS = {SGD: NAMES[SGD], BATCHNORM: NAMES[BATCHNORM]}
ROWS |= {ATMC + SINGLE: "ATMC (single sample)", ATMC: "ATMC (posterior predictive)"}
ROWS |= {SGNHT + SINGLE: "SGNHT (single sample)", SGNHT: "SGNHT (posterior predictive)"}
PRINTED = {
    CIFAR: """
sgd-bn: 94.4 | 0.243
atmc-single: 92.4 | 0.303
atmc: 93.9 | 0.194
sgnht-single: 91.7 | 0.343
sgnht: 93.5 | 0.211
""",
    IMAGENET: """
atmc-single: 74.2 | 1.08
atmc: 77.5 | 0.883
sgnht-single: 73.1 | 1.15
sgnht: 76.4 | 0.941
""",
}
"""Accuracy in per cent and NLL in nats."""
READABLE = ((CIFAR, BATCHNORM, ACCURACY), (CIFAR, ATMC, NLL), (IMAGENET, ATMC, ACCURACY), (IMAGENET, ATMC, NLL))
"""The cells that the paper's own text has; the others are quoted by google/edward2."""


def _sampled(dataset: str, scale: str) -> list[rp.Sampled]:
    plus, norm = comparisons(dataset, scale, tuple(NAMES))
    return [rp.Sampled(plus, views=("samples",)), rp.Sampled(norm)]


def tables(plus: rp.CompletedRun, norm: rp.CompletedRun) -> rp.Tables:
    views = plus.table("views")
    last = views[views["kind"] == "samples"].groupby(["arm", "repeat"], sort=False).tail(1)
    cells = plus.cells([SGD, ATMC, SGNHT], METRICS)
    cells += plus.cells({n: n + SINGLE for n in (ATMC, SGNHT)}, METRICS, last)
    return {"cells": cells + norm.cells([BATCHNORM], METRICS)}


def values(dataset: str, where: str) -> tuple[rp.Value, ...]:
    source = f"Heek & Kalchbrenner 2019, {where}"
    found = rp.printed(PRINTED[dataset], [(dataset, metric) for metric in METRICS], source)
    quoted = f"{source}, quoted by google/edward2, baselines/{dataset}/README.md"
    return tuple(
        v if (v.part, v.row, v.column) in READABLE else replace(v, source=quoted, provenance="quoted elsewhere")
        for v in found
    )


def claims(dataset: str) -> tuple[rp.Claim, ...]:
    """Return what §5 says of both tables; of SGNHT it says nothing, and its numbers are all there is."""
    one, apart = ATMC + SINGLE, "SGD with BatchNorm is more accurate than ATMC's posterior predictive"
    if dataset == IMAGENET:
        apart = "ATMC's posterior predictive is more accurate than SGD with BatchNorm"
    stated: tuple[tuple[str, str, str, rp.Rule, str], ...] = (
        (ATMC, one, NLL, "paired", "ATMC's posterior predictive has a lower test NLL than one sample of it"),
        (ATMC, one, ACCURACY, "paired", "ATMC's posterior predictive is more accurate than one sample"),
        (ATMC, SGNHT, NLL, "paired", "By the numbers ATMC's posterior predictive has a lower test NLL than SGNHT's"),
        (one, SGNHT + SINGLE, NLL, "paired", "By the numbers a sample of ATMC has a lower test NLL than one of SGNHT"),
        (one, SGD, NLL, "welch", "A sample of ATMC has a lower test NLL than SGD without BatchNorm"),
        (one, SGD, ACCURACY, "welch", "A sample of ATMC is more accurate than SGD without BatchNorm"),
        (ATMC, BATCHNORM, NLL, "welch", "ATMC's posterior predictive has a lower test NLL than SGD with BatchNorm"),
    )
    made = []
    for left, right, column, rule, text in stated:
        word, direction = _better(column)
        name = f"{left}-{word}-{right}-{column}"
        made.append(rp.claim(name, f"{text} on {LABELS[dataset]}.", dataset, column, left, direction, right, rule))
    worse: rp.Direction = "less" if dataset == CIFAR else "greater"
    text = f"{apart} on {LABELS[dataset]}."
    name = "atmc-and-batchnorm-accuracy"
    return (*made, rp.claim(name, text, dataset, ACCURACY, ATMC, worse, BATCHNORM))


def _better(column: str) -> tuple[str, rp.Direction]:
    return ("below", "less") if column == NLL else ("above", "greater")


def _study(name: str, dataset: str, **more: Any) -> rp.Study:
    sampled = partial(_sampled, dataset)
    part = rp.Part(name=dataset, label=LABELS[dataset], data=(dataset,), sampled=sampled, tables=tables)
    return rp.Study(
        **rp.listed(name),
        parts=(part,),
        rows=ROWS,
        columns=(rp.Heading(ACCURACY, "Top-1 accuracy", "%", 2), rp.Heading(NLL, "NLL", "nats", 4)),
        values=values(dataset, rp.listed(name)["where"]),
        claims=claims(dataset),
        **more,
    )


TABLE1 = _study("atmc-table1", CIFAR, settings=atmc_chains.settings, differences=atmc_chains.DIFFERENCES)
TABLE2 = _study(
    "atmc-table2",
    IMAGENET,
    settings=atmc_chains.imagenet_settings,
    differences=atmc_chains.COMMON + atmc_chains.OF_IMAGENET,
)
