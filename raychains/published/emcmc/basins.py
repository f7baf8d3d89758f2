"""The last samples of SGD, SGLD and Entropy-MCMC on CIFAR, which Figs. 4 and 5 look around: the chains of Table 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import torch

from raychains import tasks
from raychains.errors import UserError
from raychains.models.batchnorm import has_batchnorm
from raychains.orchestration.point import Bench
from raychains.planning.points import Point, combination
from raychains.published.emcmc import chains
from raychains.published.experiment import Part, Rows, Sampled, Tables
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.looks import Look
from raychains.spec import ChainSpec
from raychains.store import ChainStore, SampleRecord
from raychains.tasks import Task

METHODS = ("sgd", "sgld", "emcmc")
ROWS = {
    "sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC, mean of both", "emcmc-theta": "Entropy-MCMC, θ",
    "emcmc-anchor": "Entropy-MCMC, θₐ",
}  # fmt: skip
LOOKS = {
    "sgd": Look("other", 2, ROWS["sgd"]), "sgld": Look("decreasing", 0, ROWS["sgld"]),
    "emcmc-theta": Look("cyclical", 0, ROWS["emcmc-theta"]), "emcmc-anchor": Look("cyclical", 1, ROWS["emcmc-anchor"]),
}  # fmt: skip
LABELS = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
REVISION = 1
"""Of both experiments, raised by a change of what is measured: what a run's folder holds of another is not used."""


@dataclasses.dataclass(frozen=True)
class Last:
    """The last sample of one variable of one chain."""

    row: str
    """Of `ROWS`."""
    repeat: int
    spec: ChainSpec
    record: SampleRecord

    def about(self, part: str) -> dict[str, Any]:
        """The columns that say which sample it is."""
        return {
            "part": part, "row": self.row, "repeat": self.repeat, "digest": self.spec.digest, "sha256": self.record.sha256,
        }  # fmt: skip


def last(run: Found) -> list[Last]:
    """Of every method, repeat and variable."""
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
    """Measures networks at and around samples, without augmentation, on a GPU where there is one.

    Args:
        run: whose samples.
        like: any chain of it.
    """

    def __init__(self, run: Found, like: ChainSpec) -> None:
        plain = dataclasses.replace(like.task, settings={**like.task.settings, "augment": False})
        self.task: Task = tasks.build(plain)
        device = torch.device("cuda") if torch.cuda.is_available() else None
        self._bench = Bench(run.store.root, self.task, device)
        model = self.task.build_model(seed=0, lanes=1)
        self._norm = has_batchnorm(model)
        self.parameters = sum(p.numel() for p in model.parameters())

    def at(self, split: str, *parts: tuple[float, Last], **settings: Any) -> dict[str, float]:
        """The split's metrics of one network, or what else the point's settings ask for."""
        point: Point = combination([(c, one.spec, one.record) for c, one in parts], reestimate=self._norm, **settings)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # several wait for each other at every small layer
        try:
            return self._bench.measure(self.task.splits()[split], point)
        finally:
            torch.set_num_threads(threads)


def of_each(
    run: Found, name: str, ends: Sequence[Last], measure: Callable[[Measured, Last], Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """The rows of every sample: those that an earlier call left in the run's folder, else measured now and left there.

    Args:
        run: whose samples.
        name: of the measurement, with whatever its settings are: it names the files.
        ends: the samples.
        measure: (bench, sample) -> rows.
    """
    bench, rows = None, []
    for number, one in enumerate(ends):
        file = f"{name}-{one.row}-{one.repeat}-r{REVISION}"
        found = _readable(run, file)
        if found is None:
            run.tell(name, number, len(ends))
            bench = bench or Measured(run, one.spec)
            run.store.write_table(file, measure(bench, one))
            found = run.store.table(file)
            assert found is not None
        rows += found.to_pylist()
    return rows


def _readable(run: Found, file: str) -> pa.Table | None:
    try:
        return run.store.table(file)
    except UserError:  # damaged: measured anew
        return None


def part(dataset: str, tables: Callable[[str, str, Sequence[Found]], Tables]) -> Part:
    """A figure on one data set.

    Args:
        dataset: a key of `LABELS`.
        tables: (data set, scale, found) -> tables.
    """
    stands = LABELS["cifar100"] if dataset == "cifar10" else ""
    return Part(
        name=dataset, label=LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [Sampled(preset=chains.preset(dataset, scale, METHODS))],
        tables=partial(tables, dataset), scales=("smoke", "cpu") if stands else ("cpu", "gpu", "paper"), stands_for=stands,
    )  # fmt: skip


def cells(part: str, rows: Rows, columns: Mapping[str, Callable[[Rows], float]]) -> list[dict[str, Any]]:
    """Cells per row and repeat, and those of Entropy-MCMC as means of its two variables.

    Args:
        part: the part's name.
        rows: measurements with `Last.about`'s columns.
        columns: by column, what it is of one sample's rows.
    """
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


def headings(scale: str) -> list[Heading]:
    """The rows of both tables."""
    return [Heading(key, label) for key, label in ROWS.items()]


def differences(scale: str) -> list[str]:
    """In words."""
    made = chains.differences(scale)
    if scale == "cpu":
        made.append("The paper's figure is of CIFAR-100; CIFAR-10 stands in for it, with the chains of Table 1.")
    if scale != "smoke":
        made.append(
            "As in the paper the last sample of each chain is looked at, and of Entropy-MCMC the mean of θ and θₐ."
        )
    return made
