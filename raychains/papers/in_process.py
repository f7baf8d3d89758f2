"""What a table computes in its own process: chains of a density, and networks at and around a run's samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.core import gpus
from raychains.core.config import Run
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.core.threads import threads
from raychains.evaluation.evaluation import Array
from raychains.models.batchnorm import has_batchnorm
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.papers.completed_run import CompletedRun, kept
from raychains.planning import methods
from raychains.planning.methods import Method
from raychains.planning.points import Point, combination
from raychains.store import ChainStore, SampleRecord
from raychains.tasks import Task

# Chains of a density


def density_method(task: Task, name: str, *, sampler: str, schedule: str, **options: Any) -> Method:
    """Return what `raychains run --task NAME --sampler … --schedule …` runs; ``options`` are those of `raychains.Run`.

    Raises:
        UserError: an option out of range.
    """
    given = Run(task=name, sampler=sampler, schedule=schedule, **options)
    return methods.resolve(given, task=task, sampler=sampler, schedule=schedule)


def density_draws(method: Method, task: Task) -> Array | None:
    """Return the kept draws of one stack of chains, [draws, lanes, dim]; None if one of them diverged."""
    try:
        events = list(Chain(method.spec, task))
    except Diverged:
        return None
    return np.concatenate([e.tensors["theta"].numpy() for e in events if isinstance(e, Sample)])


# Networks at and around a run's samples


@dataclasses.dataclass(frozen=True)
class LastSample:
    """The last sample of one variable of one chain."""

    row: str
    """The variant, or ``VARIANT-VARIABLE`` where its chains have several variables."""
    repeat: int
    spec: ChainSpec
    record: SampleRecord

    def about(self, part: str) -> dict[str, Any]:
        """Return the columns that identify the sample."""
        where = {"part": part, "row": self.row, "repeat": self.repeat}
        return {**where, "digest": self.spec.digest, "sha256": self.record.sha256}


def last_samples(run: CompletedRun, variants: Iterable[str]) -> list[LastSample]:
    """Return the last sample of every repeat and variable of arms of one chain."""
    made = []
    for variant in variants:
        for repeat, (spec,) in enumerate(run.arm(variant).chains):
            by: dict[str, SampleRecord] = {}
            for record in sorted(ChainStore(run.store.root, spec.digest).records(), key=lambda r: r.meta.index):
                by[record.meta.variable] = record
            for variable, record in by.items():
                made.append(LastSample(variant if len(by) == 1 else f"{variant}-{variable}", repeat, spec, record))
    return made


class Networks:
    """Measures networks at and around a run's samples, without augmentation, on a GPU where there is one."""

    def __init__(self, run: CompletedRun, like: ChainSpec) -> None:
        plain = dataclasses.replace(like.task, settings={**like.task.settings, "augment": False})
        self.task: Task = tasks.build(plain)
        device = gpus.best() if gpus.is_gpu(gpus.best()) else None
        self._evaluator = PointEvaluator(run.store.root, self.task, device)
        model = self.task.build_model(seed=0, lanes=1)
        self._norm = has_batchnorm(model)
        self.parameters = sum(p.numel() for p in model.parameters())

    def at(self, split: str, *parts: tuple[float, LastSample], **settings: Any) -> dict[str, float]:
        """Return the split's metrics of the network Σ weight · sample, or what the settings of
        `raychains.planning.points.combination` ask for."""
        point: Point = combination([(c, one.spec, one.record) for c, one in parts], reestimate=self._norm, **settings)
        with threads(1):  # several wait for each other at every small layer
            return self._evaluator.measure(self.task.splits()[split], point)


def of_each(
    run: CompletedRun,
    name: str,
    samples: Sequence[LastSample],
    measure: Callable[[Networks, LastSample], Sequence[Mapping[str, Any]]],
    revision: int,
) -> list[dict[str, Any]]:
    """Return the rows of every sample: those that an earlier call left in the run's folder, else measured now and
    written there.

    ``name`` is of the measurement and its settings, and ``revision`` of its code: they name the files.
    """
    built: list[Networks] = []
    rows: list[dict[str, Any]] = []

    def measured(number: int, one: LastSample) -> Sequence[Mapping[str, Any]]:
        run.tell(name, number, len(samples))
        if not built:
            built.append(Networks(run, one.spec))
        return measure(built[0], one)

    for number, one in enumerate(samples):
        rows += kept(run.store, f"{name}-{one.row}-{one.repeat}-r{revision}", partial(measured, number, one))
    return rows
