"""The number of chains that fit on a cluster's nodes: node by node, since a chain never spans two.

A cluster's sums would count too many: two nodes of one CPU hold no chain of two. Evaluators with a share of a GPU come
first, where they cost the fewest chains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

ACCELERATOR = "accelerator_type:"
"""Begins the resource by which a node says what its GPUs are."""
EPSILON = 1e-6
"""Three thirds of a GPU are one."""


@dataclass(frozen=True)
class Node:
    """Resources of one node, all or those that are free."""

    cpus: float
    gpus: float = 0.0
    id: str = ""
    accelerator: str | None = None


@dataclass(frozen=True)
class Capacity:
    """Chains and evaluators that fit on a sequence of nodes."""

    chains: int
    evaluators: tuple[int, ...] = ()
    """The index of each evaluator's node; fewer than asked for where no more fit."""


def fit(
    nodes: Sequence[Node],
    cpus: float,
    gpus: float,
    evaluators: int = 0,
    evaluator_gpus: float = 0.0,
) -> Capacity:
    """Return the most chains of ``cpus`` and ``gpus`` each, beside as many of the evaluators as fit.

    GPUs are whole numbers or 1/k, a share of one. Evaluators hold no CPU; those without GPUs take nothing.
    """
    number = evaluators if evaluator_gpus > 0 else 0
    tables = [[_beside(node, cpus, gpus, n, evaluator_gpus) for n in range(number + 1)] for node in nodes]
    chains, placed = next(found for found in reversed(_spread(tables, number)) if found[0] >= 0)
    return Capacity(int(chains), placed)


def _spread(tables: Sequence[Sequence[float]], number: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return the most chains beside 0, 1, … ``number`` evaluators, and the table of each evaluator.

    A table holds the chains beside 0, 1, … evaluators on one node or GPU, -inf where so many do not fit.
    """
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ()), *[(-math.inf, ())] * number]
    for index, table in enumerate(tables):
        best = [
            max(
                (
                    (best[n - here][0] + table[here], best[n - here][1] + (index,) * here)
                    for here in reversed(range(min(n + 1, len(table))))
                ),
                key=itemgetter(0),
            )
            for n in range(number + 1)
        ]
    return best


def _beside(node: Node, cpus: float, gpus: float, evaluators: int, share: float) -> float:
    """Return the most chains on a node that holds some evaluators; -inf where so many do not fit."""
    by_cpus, whole = int(node.cpus / cpus + EPSILON), int(node.gpus + EPSILON)
    free = float(whole)
    if evaluators and share < 1 and 0 < gpus < 1:  # both side by side on one GPU
        beside = [_of(1 - n * share, gpus) for n in range(_of(1.0, share) + 1)]
        left = _spread([beside] * whole, evaluators)[evaluators][0]
    else:
        if evaluators:
            free -= evaluators * share if share >= 1 else math.ceil(evaluators / _of(1.0, share))
        left = -math.inf if free < -EPSILON else _of(free, gpus) if gpus >= 1 else round(free) * _of(1.0, gpus)
    return min(by_cpus, left) if gpus or left < 0 else by_cpus


def _of(have: float, each: float) -> int:
    """Return how often ``each`` goes into ``have``; 0 where ``each`` is 0."""
    return int(max(0.0, have) / each + EPSILON) if each else 0


def describe(nodes: Sequence[Node]) -> str:
    """Return nodes for people: ``2 nodes of 8 CPU, 1 GPU (A100) and 1 node of 4 CPU``."""
    kinds: dict[str, int] = {}
    for node in nodes:
        name = f" ({node.accelerator})" if node.accelerator and node.gpus else ""
        what = f"{node.cpus:g} CPU" + (f", {node.gpus:g} GPU{name}" if node.gpus else "")
        kinds[what] = kinds.get(what, 0) + 1
    listed = [f"{n} node{'s' * (n > 1)} of {what}" for what, n in sorted(kinds.items(), key=lambda k: -k[1])]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed) or "no node"
