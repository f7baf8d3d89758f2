"""How many chains fit on a cluster's nodes: node by node, since a chain never spans two.

A cluster's sums would count too many: two nodes of one CPU hold no chain of two. Evaluators with a share of a GPU come
first, where they cost the fewest chains; then decoders, of one CPU each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EPSILON = 1e-6
"""Three thirds of a GPU are one."""


@dataclass(frozen=True)
class Node:
    """What one node has, or has free."""

    cpus: float
    gpus: float = 0.0
    id: str = ""
    accelerator: str | None = None


@dataclass(frozen=True)
class Fit:
    """What fits on a sequence of nodes."""

    chains: int
    evaluators: tuple[int, ...] = ()
    """The index of each evaluator's node; fewer than asked for where no more fit."""
    decoders: tuple[int, ...] = ()
    """The index of each decoder's node; fewer than asked for where a chain could not run beside more."""


def fit(
    nodes: Sequence[Node],
    cpus: float,
    gpus: float,
    evaluators: int = 0,
    evaluator_gpus: float = 0.0,
    *,
    decoders: int = 0,
    least: int = 1,
) -> Fit:
    """The most chains of ``cpus`` and ``gpus`` each, beside as many of the evaluators as fit, and of the decoders.

    GPUs are whole numbers or 1/k, a share of one. Evaluators hold no CPU; those without GPUs take nothing. Decoders take
    CPUs that chains have no use for, then chains' own, but never those of the ``least`` chains that there must be.
    """
    made = _evaluating(nodes, cpus, gpus, evaluators, evaluator_gpus)
    return _decoding(made, nodes, cpus, gpus, evaluator_gpus, decoders, least) if decoders else made


def _decoding(
    made: Fit, nodes: Sequence[Node], cpus: float, gpus: float, share: float, decoders: int, least: int
) -> Fit:
    """The same with decoders: spread over what is free, a chain's CPUs freed where nothing is."""
    chains = [_beside(node, cpus, gpus, made.evaluators.count(i), share) or 0 for i, node in enumerate(nodes)]
    held = [0] * len(nodes)

    def free(i: int) -> float:
        return nodes[i].cpus - chains[i] * cpus - held[i]

    placed: list[int] = []
    while len(placed) < decoders and nodes:
        at = max(range(len(nodes)), key=free)
        if free(at) < 1 - EPSILON:
            at = max(range(len(nodes)), key=chains.__getitem__)
            if sum(chains) <= least or not chains[at]:
                break
            chains[at] -= 1
        else:
            held[at] += 1
            placed.append(at)
    return Fit(sum(chains), made.evaluators, tuple(placed))


def _evaluating(nodes: Sequence[Node], cpus: float, gpus: float, evaluators: int, evaluator_gpus: float) -> Fit:
    """The most chains beside as many of the evaluators as fit."""
    wanted = evaluators if evaluator_gpus > 0 else 0
    best: list[Fit | None] = [Fit(0)] + [None] * wanted
    for index, node in enumerate(nodes):
        table = [_beside(node, cpus, gpus, n, evaluator_gpus) for n in range(wanted + 1)]
        after: list[Fit | None] = [None] * (wanted + 1)
        for before, fitting in enumerate(best):
            for here, chains in enumerate(table[: wanted + 1 - before]):
                if fitting is None or chains is None:
                    continue
                now, total = after[before + here], fitting.chains + chains
                if now is None or total > now.chains:
                    after[before + here] = Fit(total, fitting.evaluators + (index,) * here)
        best = after
    return next(found for found in reversed(best) if found is not None)


def _beside(node: Node, cpus: float, gpus: float, evaluators: int, share: float) -> int | None:
    """The most chains on a node that holds some evaluators; None where so many do not fit."""
    by_cpus, whole = int(node.cpus / cpus + EPSILON), int(node.gpus + EPSILON)
    if not evaluators:
        return by_cpus if not gpus else min(by_cpus, _of(float(whole), gpus) if gpus >= 1 else whole * _of(1.0, gpus))
    if share >= 1:
        free = whole - evaluators * share
        left = None if free < -EPSILON else _of(free, gpus) if gpus >= 1 else round(free) * _of(1.0, gpus)
    elif 0 < gpus < 1:
        left = _shared(whole, gpus, evaluators, share)
    else:
        free = whole - math.ceil(evaluators / _of(1.0, share))
        left = None if free < 0 else _of(float(free), gpus)
    if left is None:
        return None
    return min(by_cpus, left) if gpus else by_cpus


def _shared(whole: int, gpus: float, evaluators: int, share: float) -> int | None:
    """The most chains on GPUs that hold shares of chains and of evaluators side by side."""
    beside = [_of(1 - n * share, gpus) for n in range(_of(1.0, share) + 1)]
    best: list[int | None] = [0] + [None] * evaluators
    for _ in range(whole):
        after: list[int | None] = [None] * (evaluators + 1)
        for before, chains in enumerate(best):
            for here, more in enumerate(beside[: evaluators + 1 - before]):
                if chains is not None and chains + more > (after[before + here] or -1):
                    after[before + here] = chains + more
        best = after
    return best[evaluators]


def _of(have: float, each: float) -> int:
    """How often ``each`` goes into ``have``; nothing is wanted of it where ``each`` is 0."""
    return int(max(0.0, have) / each + EPSILON) if each else 0


def describe(nodes: Sequence[Node]) -> str:
    """For people: ``2 nodes of 8 CPU, 1 GPU (A100) and 1 node of 4 CPU``."""
    kinds: dict[str, int] = {}
    for node in nodes:
        name = f" ({node.accelerator})" if node.accelerator and node.gpus else ""
        what = f"{node.cpus:g} CPU" + (f", {node.gpus:g} GPU{name}" if node.gpus else "")
        kinds[what] = kinds.get(what, 0) + 1
    said = [f"{n} node{'s' * (n > 1)} of {what}" for what, n in sorted(kinds.items(), key=lambda k: -k[1])]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "no node"
