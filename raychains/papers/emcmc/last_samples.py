"""The last samples of SGD, SGLD and Entropy-MCMC on CIFAR, around which Figs. 4 and 5 measure the loss; the chains are
those of Table 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.papers.emcmc import emcmc_chains

METHODS = ("sgd", "sgld", "emcmc")
ROWS = rp.labels("sgd sgld") | {"emcmc": "Entropy-MCMC, mean of both", "emcmc-theta": "Entropy-MCMC, θ"}
ROWS |= {"emcmc-anchor": "Entropy-MCMC, θₐ"}
STYLES = rp.styles(ROWS, "sgd other 2, sgld decreasing 0, emcmc-theta cyclical 0, emcmc-anchor cyclical 1")
LABELS = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
SCALES = {"cifar100": rp.NOT_SMOKE, "cifar10": ("smoke", "cpu")}
REVISION = 1
"""The revision of both experiments, raised by a change of what is measured: files of another one are not used."""


def parts(tables: Callable[[rp.CompletedRun], rp.Tables]) -> tuple[rp.Part, ...]:
    """Return a figure's parts: CIFAR-100, and CIFAR-10 in its place."""
    return cifar.parts(partial(emcmc_chains.preset, methods=METHODS), SCALES, tables)


def cells(part: str, rows: rp.Rows, columns: Mapping[str, Callable[[rp.Rows], float]]) -> list[dict[str, Any]]:
    """Return cells per row and repeat, by column a function of one sample's rows; Entropy-MCMC's are means of both
    variables."""
    made: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row, repeat in dict.fromkeys((r["row"], r["repeat"]) for r in rows):
        mine = [r for r in rows if (r["row"], r["repeat"]) == (row, repeat)]
        for column, of in columns.items():
            made[row, repeat, column] = rp.cell(
                part, row, column, repeat, of(mine), digests=mine[0]["digest"], samples=1
            )
    for (row, repeat, column), one in list(made.items()):
        other = made.get(("emcmc-anchor", repeat, column))
        if row == "emcmc-theta" and other is not None:
            mean = (one["value"] + other["value"]) / 2
            made["emcmc", repeat, column] = {**one, "row": "emcmc", "value": mean, "samples": 2}
    return list(made.values())


DIFFERENCES = (
    emcmc_chains.DIFFERENCES
    + """
cpu: The paper's figure is of CIFAR-100; CIFAR-10 stands in for it, with the chains of Table 1.
cpu gpu paper: As in the paper the last sample of each chain is looked at, and of Entropy-MCMC the mean of θ and θₐ.
"""
)
