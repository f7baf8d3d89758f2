"""Error and NLL of the networks on the line between two samples (cSG-MCMC Fig. 3b; Entropy-MCMC §6.3 for θ and θₐ)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.drawn import Drawn, drawn, first_groups, maker, networks_only

MOST_PAIRS = 6
"""Pairs of each kind in an arm: which ones, a seed says."""
POINTS = 11
"""On each line, the samples themselves among them."""

Pair = tuple[Drawn, Drawn]


def neighbouring_cycles(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """The last samples of two cycles in a row of one chain."""
    for chain in _chains(samples):
        last = {one.meta.cycle: one for one in chain}
        for cycle, one in last.items():
            if cycle + 1 in last:
                yield one, last[cycle + 1]


def inside_a_cycle(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """Two samples in a row of one chain and one cycle; of schedules without cycles, of one chain."""
    for chain in _chains(samples):
        yield from (pair for pair in itertools.pairwise(chain) if pair[0].meta.cycle == pair[1].meta.cycle)


def between_chains(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """The last samples of two chains."""
    yield from itertools.combinations([chain[-1] for chain in _chains(samples)], 2)


def anchors(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """θ and the anchor θₐ that was drawn with it."""
    by = {(one.chain, one.meta.index, one.meta.variable): one for one in samples}
    for (chain, index, variable), one in by.items():
        if variable == "theta" and (chain, index, "anchor") in by:
            yield one, by[chain, index, "anchor"]


KINDS: dict[str, Callable[[Sequence[Drawn]], Iterator[Pair]]] = {
    "neighbouring cycles": neighbouring_cycles,
    "inside a cycle": inside_a_cycle,
    "between chains": between_chains,
    "θ and θₐ": anchors,
}
"""What the two ends of a line are to each other."""


def tables(context: Context) -> Tables:
    """``interpolation``: one row per point of a line, with the split's metrics of its network."""
    seed = int(context.settings.get("seed", 0))
    shares = np.linspace(0, 1, POINTS).tolist()
    rows: list[dict[str, Any]] = []
    points = []
    make = maker(context)
    for arm, group in first_groups(context):
        samples = drawn(context, arm, group)
        for kind, pairs in KINDS.items():
            for number, (one, other) in enumerate(chosen(list(pairs(samples)), MOST_PAIRS, seed)):
                about = {"arm": context.comparison.arms[arm].name, "group": group, "kind": kind, "pair": number}
                ends = {**one.about("_from"), **other.about("_to")}
                rows += [{**about, **ends, "t": t} for t in shares]
                points += [make((1 - t, one), (t, other)) for t in shares]
    found = context.measure(context.split, points) if points else []
    table = [{**row, **metrics} for row, metrics in zip(rows, found, strict=True)]
    return {"interpolation": table} if table else {}


def chosen(pairs: Sequence[Pair], most: int, seed: int) -> list[Pair]:
    """At most ``most`` of the pairs in their order: the first, and others that the seed chooses."""
    if len(pairs) <= most:
        return list(pairs)
    others = np.random.default_rng(seed).choice(np.arange(1, len(pairs)), most - 1, replace=False)
    return [pairs[i] for i in sorted([0, *others.tolist()])]


def _chains(samples: Sequence[Drawn]) -> list[list[Drawn]]:
    """θ's samples by chain; of samplers that draw no θ, the first variable's."""
    variable = samples[0].meta.variable
    mine = [one for one in samples if one.meta.variable == variable]
    return [list(group) for _, group in itertools.groupby(mine, key=lambda one: one.chain)]


def _why_not(context: Context) -> str | None:
    if (why := networks_only(context)) is not None:
        return why
    some = any(len(context.select(a, g).records) > 1 for a, g in context.groups)
    return None if some else "no arm has two samples to draw a line between"


ANALYSIS = Analysis(
    name="interpolation",
    about="error and NLL on the line between samples of neighbouring cycles, of one cycle, of two chains, of θ and θₐ",
    tables=tables,
    why_not=_why_not,
)
