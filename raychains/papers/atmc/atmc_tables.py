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
    nll, accuracy, where = f"{dataset} {NLL}", f"{dataset} {ACCURACY}", f"on {LABELS[dataset]}."
    sign, apart = "<", "SGD with BatchNorm is more accurate than ATMC's posterior predictive"
    if dataset == IMAGENET:
        sign, apart = ">", "ATMC's posterior predictive is more accurate than SGD with BatchNorm"
    return rp.stated(f"""
atmc-below-atmc-single-nll | {nll} | atmc < atmc-single paired | ATMC's posterior predictive has a lower test NLL than
    one sample of it {where}
atmc-above-atmc-single-accuracy | {accuracy} | atmc > atmc-single paired | ATMC's posterior predictive is more accurate
    than one sample {where}
atmc-below-sgnht-nll | {nll} | atmc < sgnht paired | By the numbers ATMC's posterior predictive has a lower test NLL
    than SGNHT's {where}
atmc-single-below-sgnht-single-nll | {nll} | atmc-single < sgnht-single paired | By the numbers a sample of ATMC has a
    lower test NLL than one of SGNHT {where}
atmc-single-below-sgd-nll | {nll} | atmc-single < sgd | A sample of ATMC has a lower test NLL than SGD without BatchNorm
    {where}
atmc-single-above-sgd-accuracy | {accuracy} | atmc-single > sgd | A sample of ATMC is more accurate than SGD without
    BatchNorm {where}
atmc-below-sgd-bn-nll | {nll} | atmc < sgd-bn | ATMC's posterior predictive has a lower test NLL than SGD with BatchNorm
    {where}
atmc-and-batchnorm-accuracy | {accuracy} | atmc {sign} sgd-bn | {apart} {where}
""")


def _study(dataset: str, *, where: str, **more: Any) -> rp.Study:
    sampled = partial(_sampled, dataset)
    part = rp.Part(name=dataset, label=LABELS[dataset], sampled=sampled, tables=tables)
    return rp.Study(
        where=where,
        parts=(part,),
        rows=ROWS,
        columns=(rp.Heading(ACCURACY, "Top-1 accuracy", "%", 2), rp.Heading(NLL, "NLL", "nats", 4)),
        values=values(dataset, where),
        claims=claims(dataset),
        **more,
    )


TABLE1 = _study(
    CIFAR,
    name="atmc-table1",
    paper="atmc",
    where="Table 1",
    title="CIFAR-10 under ResNet++",
    needs=("cifar10",),
    hours=(0.01, 0.7, 5, 30),
    settings=atmc_chains.settings,
    differences=atmc_chains.DIFFERENCES,
)
TABLE2 = _study(
    IMAGENET,
    name="atmc-table2",
    paper="atmc",
    where="Table 2",
    title="ImageNet under ResNet++",
    needs=("imagenet",),
    hours=(0.01, 0, 60, 500),
    settings=atmc_chains.imagenet_settings,
    differences=atmc_chains.COMMON + atmc_chains.OF_IMAGENET,
)
