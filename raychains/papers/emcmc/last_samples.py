"""The last samples of SGD, SGLD and Entropy-MCMC on CIFAR, around which Figs. 4 and 5 measure the loss; the chains are
those of Table 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from raychains import tasks
from raychains.core import gpus
from raychains.core.spec import ChainSpec
from raychains.core.threads import threads
from raychains.models.batchnorm import has_batchnorm
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.papers import NOT_SMOKE
from raychains.papers.completed_run import CompletedRun, cell, kept
from raychains.papers.csgmcmc import cifar
from raychains.papers.emcmc import emcmc_chains
from raychains.papers.experiment import Part, Rows, Tables, styles
from raychains.planning.points import Point, combination
from raychains.store import ChainStore, SampleRecord
from raychains.tasks import Task

METHODS = ("sgd", "sgld", "emcmc")
ROWS = {"sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC, mean of both", "emcmc-theta": "Entropy-MCMC, θ"}
ROWS |= {"emcmc-anchor": "Entropy-MCMC, θₐ"}
STYLES = styles(ROWS, "sgd other 2, sgld decreasing 0, emcmc-theta cyclical 0, emcmc-anchor cyclical 1")
LABELS = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
SCALES = {"cifar100": NOT_SMOKE, "cifar10": ("smoke", "cpu")}
REVISION = 1
"""The revision of both experiments, raised by a change of what is measured: files of another one are not used."""


@dataclasses.dataclass(frozen=True)
class Last:
    """The last sample of one variable of one chain."""

    row: str
    """A key of `ROWS`."""
    repeat: int
    spec: ChainSpec
    record: SampleRecord

    def about(self, part: str) -> dict[str, Any]:
        """Return the columns that identify the sample."""
        where = {"part": part, "row": self.row, "repeat": self.repeat}
        return {**where, "digest": self.spec.digest, "sha256": self.record.sha256}


def last(run: CompletedRun) -> list[Last]:
    """Return the last sample of every method, repeat and variable."""
    made = []
    for method in METHODS:
        for repeat, (spec,) in enumerate(run.arm(method).chains):
            by: dict[str, SampleRecord] = {}
            for record in sorted(ChainStore(run.store.root, spec.digest).records(), key=lambda r: r.meta.index):
                by[record.meta.variable] = record
            for variable, record in by.items():
                made.append(Last(method if len(by) == 1 else f"{method}-{variable}", repeat, spec, record))
    return made


class Measured:
    """Measures networks at and around a run's samples, without augmentation, on a GPU where there is one."""

    def __init__(self, run: CompletedRun, like: ChainSpec) -> None:
        plain = dataclasses.replace(like.task, settings={**like.task.settings, "augment": False})
        self.task: Task = tasks.build(plain)
        device = gpus.best() if gpus.is_gpu(gpus.best()) else None
        self._evaluator = PointEvaluator(run.store.root, self.task, device)
        model = self.task.build_model(seed=0, lanes=1)
        self._norm = has_batchnorm(model)
        self.parameters = sum(p.numel() for p in model.parameters())

    def at(self, split: str, *parts: tuple[float, Last], **settings: Any) -> dict[str, float]:
        """Return the split's metrics of one network, or what the point's settings ask for."""
        point: Point = combination([(c, one.spec, one.record) for c, one in parts], reestimate=self._norm, **settings)
        with threads(1):  # several wait for each other at every small layer
            return self._evaluator.measure(self.task.splits()[split], point)


def of_each(
    run: CompletedRun, name: str, ends: Sequence[Last], measure: Callable[[Measured, Last], Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the rows of every sample: those that an earlier call left in the run's folder, else measured now and
    written there.

    ``name`` is of the measurement and its settings: it names the files.
    """
    built: list[Measured] = []
    rows: list[dict[str, Any]] = []

    def measured(number: int, one: Last) -> Sequence[Mapping[str, Any]]:
        run.tell(name, number, len(ends))
        if not built:
            built.append(Measured(run, one.spec))
        return measure(built[0], one)

    for number, one in enumerate(ends):
        file = f"{name}-{one.row}-{one.repeat}-r{REVISION}"
        rows += kept(run.store, file, partial(measured, number, one))
    return rows


def parts(tables: Callable[[CompletedRun], Tables]) -> tuple[Part, ...]:
    """Return a figure's parts: CIFAR-100, and CIFAR-10 in its place."""
    return cifar.parts(partial(emcmc_chains.preset, methods=METHODS), tables, SCALES)


def cells(part: str, rows: Rows, columns: Mapping[str, Callable[[Rows], float]]) -> list[dict[str, Any]]:
    """Return cells per row and repeat, by column a function of one sample's rows; Entropy-MCMC's are means of both
    variables."""
    made: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row, repeat in dict.fromkeys((r["row"], r["repeat"]) for r in rows):
        mine = [r for r in rows if (r["row"], r["repeat"]) == (row, repeat)]
        for column, of in columns.items():
            made[row, repeat, column] = cell(part, row, column, repeat, of(mine), digests=mine[0]["digest"], samples=1)
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
