"""The samples of one arm and group that are networks, with chain, cycle and variable; points between and around
them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from torch import nn

from raychains import tasks
from raychains.core.sample import SampleMeta
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array
from raychains.evaluation.vectors import flat
from raychains.measures.draws import evenly
from raychains.measures.measure import Context
from raychains.models.batchnorm import has_batchnorm
from raychains.planning.points import Point, combination
from raychains.planning.views import Key, key_of
from raychains.store import ChainStore, SampleRecord, Storage

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
        """Return the columns that say which sample it is."""
        meta = self.meta
        columns = {"chain": self.chain, "cycle": meta.cycle, "index": meta.index, "variable": meta.variable}
        return {f"{name}{suffix}": value for name, value in columns.items()}


def drawn(context: Context, arm: int, group: int) -> list[Drawn]:
    """Return the samples of an arm's group by variable, chain and index (so by cycle)."""
    chains = {spec.digest: c for c, spec in enumerate(context.comparison.arms[arm].chains[group])}
    found = [
        Drawn(at=i, chain=chains[spec.digest], spec=spec, record=record)
        for i, (spec, record) in enumerate(context.select(arm, group).records)
    ]
    # θ before other variables
    return sorted(found, key=lambda d: (d.meta.variable != "theta", d.meta.variable, d.chain, d.meta.index))


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the items, evenly spread, the first and the last among them."""
    return [items[i] for i in evenly(len(items), most)]


def first_groups(context: Context) -> list[tuple[int, int]]:
    """Return the first group of each arm, for measures that cost a pass over the data for every point."""
    found: dict[int, int] = {}
    for arm, group in sorted(context.groups):
        found.setdefault(arm, group)
    return list(found.items())


def networks(context: Context) -> Callable[[Drawn], nn.Module]:
    """Return a function of a sample that gives its network: arms may have tasks of their own; each one's is built
    once."""
    known = {context.comparison.task_spec: context.task.build_model(seed=0, lanes=1)}

    def of(one: Drawn) -> nn.Module:
        if one.spec.task not in known:
            known[one.spec.task] = tasks.build(one.spec.task).build_model(seed=0, lanes=1)
        return known[one.spec.task]

    return of


def parameters(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a network's parameters; buffers such as BatchNorm's statistics are none."""
    return {name: tuple(p.shape) for name, p in network.named_parameters()}


def reader(root: Storage, samples: Sequence[Drawn], names: Collection[str]) -> Callable[[int], Array]:
    """Return a function that reads sample i's sampled parameters as one vector; nothing stays in memory."""

    def read(i: int) -> Array:
        one = samples[i]
        tensors, _ = ChainStore(root, one.spec.digest).sample(one.record.file)
        return flat(tensors, names & tensors.keys())

    names = frozenset(names)
    return read


def maker(context: Context) -> Callable[..., Point]:
    """Return a function that makes points of (coefficient, sample)… and a point's other fields.

    BatchNorm's statistics are estimated anew at all of them where the network has any: at the samples as well, so that
    no error changes for the statistics' sake alone.
    """
    network = networks(context)

    def make(*parts: tuple[float, Drawn], **settings: Any) -> Point:
        terms = [(c, one.spec, one.record) for c, one in parts]
        return combination(terms, reestimate=any(has_batchnorm(network(one)) for _, one in parts), **settings)

    return make


CHUNK = 1 << 17
"""Coordinates compared at a time in double precision: 1 MB."""


class Pairwise(NamedTuple):
    """Samples against each other in weight space, both [samples, samples]."""

    distance: Array
    """‖θ_i − θ_j‖₂, 0 on the diagonal."""
    cosine: Array
    """θ_i·θ_j/(‖θ_i‖‖θ_j‖), 1 on the diagonal; nan for a vector of zeros."""


def pairwise(read: Callable[[int], Array], count: int, *, hold: int = 8) -> Pairwise:
    """Return distances and cosines of ``count`` flat vectors, of which at most ``hold`` + 1 are in memory at once.

    Sums run in float64 over chunks of the coordinates, of differences and not of products, so that close vectors lose
    no digits. Vectors are read about count²/(2·hold) + count/2 times in all; with ``hold`` ≥ count each once.

    Args:
        read: gives vector i, [d], the same at each call (`vectors.flat` of a sample read from the store).
        count: the number of vectors.
        hold: the number of vectors held besides the one that they are compared with.
    """
    squared, dot = np.zeros((count, count)), np.zeros((count, count))
    for start in range(0, count, hold):
        block = range(start, min(start + hold, count))
        held = [np.asarray(read(i)) for i in block]
        for j in range(start, count):
            other = held[j - start] if j in block else np.asarray(read(j))
            for i, one in zip(block, held, strict=True):
                if i <= j:
                    squared[i, j], dot[i, j] = squared[j, i], dot[j, i] = _compare(one, other)
            del other, one  # before the next is read
        del held
    norm = np.sqrt(np.diagonal(dot))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.clip(dot / np.outer(norm, norm), -1, 1)
    np.fill_diagonal(cosine, np.where(norm > 0, 1.0, np.nan))
    return Pairwise(np.sqrt(squared), cosine)


def _compare(one: Array, other: Array) -> tuple[float, float]:
    """Return ‖one − other‖² and one·other, in float64."""
    squared = dot = 0.0
    for at in range(0, len(one), CHUNK):
        a, b = one[at : at + CHUNK].astype(np.float64), other[at : at + CHUNK].astype(np.float64)
        dot += float(a @ b)
        a -= b
        squared += float(a @ a)
    return squared, dot
