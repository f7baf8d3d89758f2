"""The samples of one arm and group as analyses of networks look at them: with chain, cycle and variable, in that order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from raychains import tasks
from raychains.analyses.base import Context
from raychains.evaluation.base import Array
from raychains.evaluation.vectors import flat
from raychains.models.batchnorm import has_batchnorm
from raychains.planning.points import Point, combination
from raychains.planning.views import Key, key_of
from raychains.predictive import Selection
from raychains.sample import SampleMeta
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root, SampleRecord, codec
from raychains.tasks import Task

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One sample of an arm."""

    at: int
    """Position in `Context.select`."""
    chain: int
    """Position of its chain in the arm."""
    spec: ChainSpec
    record: SampleRecord

    @property
    def meta(self) -> SampleMeta:
        return self.record.meta

    @property
    def key(self) -> Key:
        return key_of(self.meta)

    def about(self, suffix: str = "") -> dict[str, Any]:
        """The columns that say which sample it is."""
        meta = self.meta
        told = {"chain": self.chain, "cycle": meta.cycle, "index": meta.index, "variable": meta.variable}
        return {f"{name}{suffix}": value for name, value in told.items()}


def drawn(context: Context, arm: int, group: int) -> list[Drawn]:
    """The samples of an arm's group by variable, chain and index (so by cycle)."""
    chains = {spec.digest: c for c, spec in enumerate(context.comparison.arms[arm].chains[group])}
    selection: Selection = context.select(arm, group)
    found = [
        Drawn(at=i, chain=chains[spec.digest], spec=spec, record=record)
        for i, (spec, record) in enumerate(selection.records)
    ]
    # θ before other variables
    return sorted(found, key=lambda d: (d.meta.variable != "theta", d.meta.variable, d.chain, d.meta.index))


def thinned(items: Sequence[T], most: int) -> list[T]:
    """At most ``most`` of them, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.unique(np.rint(np.linspace(0, len(items) - 1, most)).astype(int))]


def first_groups(context: Context) -> list[tuple[int, int]]:
    """The first group of each arm: what costs a pass over the data for every point is done once per arm."""
    found: dict[int, int] = {}
    for arm, group in sorted(context.groups):
        found.setdefault(arm, group)
    return list(found.items())


class Networks:
    """What the samples' networks are like. Arms may have tasks, and so networks, of their own; each is built once."""

    def __init__(self, context: Context) -> None:
        self._known = {context.comparison.task_spec: self._look(context.task)}

    def parameters(self, one: Drawn) -> dict[str, tuple[int, ...]]:
        """Names and shapes of a sample's network's parameters; buffers such as BatchNorm's statistics are none."""
        return self._of(one)[0]

    def normed(self, one: Drawn) -> bool:
        """Whether a sample's network has BatchNorm."""
        return self._of(one)[1]

    def _of(self, one: Drawn) -> tuple[dict[str, tuple[int, ...]], bool]:
        if one.spec.task not in self._known:
            self._known[one.spec.task] = self._look(tasks.build(one.spec.task))
        return self._known[one.spec.task]

    @staticmethod
    def _look(task: Task) -> tuple[dict[str, tuple[int, ...]], bool]:
        model = task.build_model(seed=0, lanes=1)
        return {name: tuple(p.shape) for name, p in model.named_parameters()}, has_batchnorm(model)


def reader(root: Root, samples: Sequence[Drawn], names: Collection[str]) -> Callable[[int], Array]:
    """Reads sample i's parameters as one vector, those that were sampled; nothing stays in memory."""

    def read(i: int) -> Array:
        one = samples[i]
        tensors, _ = codec.decode(ChainStore(root, one.spec.digest).read_sample(one.record.file))
        return flat(tensors, names & tensors.keys())

    names = frozenset(names)
    return read


def maker(context: Context) -> Callable[..., Point]:
    """What makes points of (coefficient, sample)… and a point's other fields.

    BatchNorm's statistics are estimated anew at all of them where the network has any: at the samples as well, so that
    no error changes for the statistics' sake alone.
    """
    networks = Networks(context)

    def make(*parts: tuple[float, Drawn], **settings: Any) -> Point:
        terms = [(c, one.spec, one.record) for c, one in parts]
        return combination(terms, reestimate=any(networks.normed(one) for _, one in parts), **settings)

    return make


def networks_only(context: Context) -> str | None:
    """Why an analysis of networks says nothing about a run; None where it does."""
    name = context.comparison.task
    return f"task {name} is a density, its draws are no networks" if context.task.low_dimensional else None
