"""Flatness around samples: diagonal Fisher, loss along random directions, planes through three samples.

Entropy-MCMC §6.3; Li et al. 2018 (directions); Garipov et al. 2018 (planes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.drawn import Drawn, Networks, drawn, first_groups, maker, networks_only, reader, thinned
from raychains.errors import UserError
from raychains.evaluation.diversity import pairwise
from raychains.evaluation.flatness import PARAMETERS, TRACE, Plane, ranks_of

FISHER_EXAMPLES = 1000
"""Training examples of a Fisher at most, chosen by a seed: the first of a shuffled epoch."""
SAMPLES = 3
"""Samples of each arm and variable, evenly spread over its chains and their cycles; the last of each cycle."""
SEEDS = 3
"""Random directions from each of them."""
STEPS = 21
"""Points along a direction, t from −1 to 1 in units of the filters' own norms."""
GRID = 15
"""Points along each axis of a plane."""
TRAINING = 20_000
"""Up to this many training examples the loss along a direction is measured on them, too."""

Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``fisher``, ``directions`` and, where an arm has three samples, ``plane`` and ``plane_samples``."""
    chosen = [(arm, group, ends) for arm, group in first_groups(context) if (ends := _ends(context, arm, group))]
    found = {"fisher": _fisher(context, chosen), "directions": _directions(context, chosen)}
    found |= _planes(context, [(arm, group) for arm, group, _ in chosen])
    return {name: rows for name, rows in found.items() if rows}


def _ends(context: Context, arm: int, group: int) -> list[Drawn]:
    """Some of the samples that end a cycle, of each variable; some of all samples where few cycles end."""
    found = []
    for _, group_of_one in itertools.groupby(drawn(context, arm, group), key=lambda one: one.meta.variable):
        mine = list(group_of_one)
        last = list({(one.chain, one.meta.cycle): one for one in mine}.values())
        found += thinned(last if len(last) >= SAMPLES else mine, SAMPLES)
    return found


def _about(context: Context, arm: int, group: int) -> Row:
    return {"arm": context.comparison.arms[arm].name, "group": group}


def _fisher(context: Context, chosen: Sequence[tuple[int, int, list[Drawn]]]) -> list[Row]:
    samples = [(arm, group, one) for arm, group, ends in chosen for one in ends]
    examples = min(FISHER_EXAMPLES, context.task.num_data)
    make = maker(context)
    found = context.measure(context.split, [make((1.0, one), fisher=examples) for _, _, one in samples])
    return [
        {
            **_about(context, arm, group),
            **one.about(),
            "rank": rank,
            "eigenvalue": value,
            "trace": spectrum[TRACE],
            "parameters": int(spectrum[PARAMETERS]),
            "examples": examples,
        }
        for (arm, group, one), spectrum in zip(samples, found, strict=True)
        for rank, value in ranks_of(spectrum)
    ]


def _directions(context: Context, chosen: Sequence[tuple[int, int, list[Drawn]]]) -> list[Row]:
    rows: list[Row] = []
    points = []
    make = maker(context)
    for (arm, group, ends), seed in itertools.product(chosen, range(SEEDS)):
        for one, t in itertools.product(ends, np.linspace(-1, 1, STEPS).tolist()):
            rows.append({**_about(context, arm, group), **one.about(), "seed": seed, "t": t})
            points.append(make((1.0, one), directions=((t, seed),) if t else ()))
    return [
        {**row, "split": split, **metrics}
        for split in _splits(context)
        for row, metrics in zip(rows, context.measure(split, points), strict=True)
    ]


def _splits(context: Context) -> list[str]:
    train = "train" in context.task.splits() and context.task.num_data <= TRAINING
    return list(dict.fromkeys([context.split, *(["train"] if train else [])]))


def _planes(context: Context, groups: Sequence[tuple[int, int]]) -> dict[str, list[Row]]:
    rows: list[Row] = []
    corners: list[Row] = []
    points = []
    make, networks = maker(context), Networks(context)
    for arm, group in groups:
        three = _three(drawn(context, arm, group))
        if three is None:
            continue
        try:
            read = reader(context.store.root, three, networks.parameters(three[0]))
            plane = Plane(pairwise(read, 3).distance)
        except UserError:  # three on one line span no plane
            continue
        about = _about(context, arm, group)
        corners += [
            {**about, **one.about(), "x": x, "y": y} for one, (x, y) in zip(three, plane.corners.tolist(), strict=True)
        ]
        for x, y in itertools.product(*(axis.tolist() for axis in plane.grid(GRID))):
            rows.append({**about, "x": x, "y": y})
            points.append(make(*zip(plane.coefficients(x, y), three, strict=True)))
    found = context.measure(context.split, points) if points else []
    return {
        "plane": [{**row, **metrics} for row, metrics in zip(rows, found, strict=True)],
        "plane_samples": corners,
    }


def _three(samples: Sequence[Drawn]) -> list[Drawn] | None:
    """Three samples to lay a plane through: of three cycles of one chain, else of three chains, else any."""
    mine = [one for one in samples if one.meta.variable == samples[0].meta.variable]
    cycles = {one.meta.cycle: one for one in mine if one.chain == mine[0].chain}
    chains = {one.chain: one for one in mine}
    for found in (cycles, chains):
        if len(found) >= 3:
            return thinned(list(found.values()), 3)
    return thinned(mine, 3) if len(mine) >= 3 else None


ANALYSIS = Analysis(
    name="flatness",
    about="diagonal-Fisher spectrum, error and loss along random directions and on planes through three samples",
    tables=tables,
    why_not=networks_only,
)
