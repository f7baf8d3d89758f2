"""Diversity of samples: distances and a map in weight space (cSG-MCMC Fig. 3a), disagreement of functions."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.drawn import Drawn, Networks, drawn, networks_only, reader, thinned
from raychains.evaluation import agreement
from raychains.evaluation.base import Array
from raychains.evaluation.diversity import Pairwise, clusters, mds, pairwise
from raychains.planning.views import Key

log = logging.getLogger(__name__)

MOST_SAMPLES = 200
"""Samples that are compared with each other at a time: matrices, and reads of the store, grow with their square."""
MOST_NUMBERS = 20_000_000
"""Predicted probabilities held at a time, 160 MB: beyond it every so many examples are left out."""
HOLD = 2_000_000_000
"""Bytes of samples held at a time while they are compared."""

Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``distances``, ``embedding``, ``clusters`` and, of classifiers, ``disagreement``."""
    found: dict[str, list[Row]] = {"distances": [], "embedding": [], "clusters": []}
    networks = Networks(context)
    for group in sorted({g for _, g in context.groups}):
        samples = {a: drawn(context, a, g) for a, g in context.groups if g == group}
        alike: dict[tuple[Any, ...], dict[int, list[Drawn]]] = {}
        for arm, mine in samples.items():
            alike.setdefault(tuple(networks.parameters(mine[0]).items()), {})[arm] = mine
        for number, (network, of_arms) in enumerate(alike.items()):
            for name, rows in _weight_space(context, group, number, of_arms, dict(network)).items():
                found[name] += rows
    # Few samples have few numbers of clusters; a table has one set of columns.
    columns = dict.fromkeys(name for row in found["clusters"] for name in row)
    found["clusters"] = [{name: row.get(name, float("nan")) for name in columns} for row in found["clusters"]]
    if context.task.predicts == "classes":
        found["disagreement"] = [row for a, g in context.groups for row in _function_space(context, a, g)]
    return {name: rows for name, rows in found.items() if rows}


def _weight_space(
    context: Context, group: int, number: int, of_arms: Mapping[int, Sequence[Drawn]], names: Collection[str]
) -> dict[str, list[Row]]:
    """All arms of one group of repeats and one network in one map; chains that they share are compared once."""
    arms, share = list(of_arms), MOST_SAMPLES // len(of_arms)
    samples = {arm: _few(of_arms[arm], share, context.comparison.arms[arm].name) for arm in arms}
    unique: dict[Key, Drawn] = {one.key: one for arm in arms for one in samples[arm]}
    place = {key: i for i, key in enumerate(unique)}
    all_of_them = list(unique.values())
    read = reader(context.store.root, all_of_them, names)
    hold = max(1, min(len(all_of_them), HOLD // max(1, read(0).nbytes)))
    done = itertools.count(1)
    context.progress("distances", 0, len(all_of_them))

    def told(i: int) -> Array:
        context.progress("distances", min(next(done), len(all_of_them)), len(all_of_them))
        return read(i)

    between = pairwise(told, len(all_of_them), hold=hold)
    at, stress = mds(between.distance, seed=int(context.settings.get("seed", 0)))
    out: dict[str, list[Row]] = {"distances": [], "embedding": [], "clusters": []}
    for arm in arms:
        mine = np.array([place[one.key] for one in samples[arm]])
        about = {"arm": context.comparison.arms[arm].name, "group": group}
        own = between.distance[np.ix_(mine, mine)]
        found = clusters(own)
        out["distances"] += [{**about, **row} for row in _pairs(samples[arm], mine, between)]
        out["embedding"] += [
            {
                **about,
                "map": number,
                "sample": i,
                **one.about(),
                "x": x,
                "y": y,
                "cluster": int(label),
                "stress": stress,
            }
            for i, (one, (x, y), label) in enumerate(zip(samples[arm], at[mine].tolist(), found.labels, strict=True))
        ]
        tried = {f"silhouette_{k}": value for k, value in found.silhouettes.items()}
        best = max(found.silhouettes.values(), default=float("nan"))
        out["clusters"].append({**about, "samples": len(mine), "clusters": found.count, "silhouette": best, **tried})
    return out


def _few(samples: Sequence[Drawn], most: int, arm: str) -> list[Drawn]:
    few = thinned(samples, max(2, most))
    if len(few) < len(samples):
        log.warning("arm %s: %d of %d samples, evenly spread, are compared", arm, len(few), len(samples))
    return few


def _pairs(samples: Sequence[Drawn], mine: Array, between: Pairwise) -> list[Row]:
    return [
        {
            "i": i,
            "j": j,
            **samples[i].about("_i"),
            **samples[j].about("_j"),
            "distance": float(between.distance[mine[i], mine[j]]),
            "cosine": float(between.cosine[mine[i], mine[j]]),
        }
        for i, j in itertools.combinations(range(len(samples)), 2)
    ]


def _function_space(context: Context, arm: int, group: int) -> list[Row]:
    """Disagreement and total variation of each two samples' predictions on the split."""
    name = context.comparison.arms[arm].name
    samples = _few(drawn(context, arm, group), MOST_SAMPLES, name)
    order = {one.at: i for i, one in enumerate(samples)}
    top: dict[int, Array] = {}
    p: dict[int, Array] = {}
    examples = 0
    for at, log_p in enumerate(context.predictions(arm, group)):
        if at not in order:
            continue
        i = order[at]
        context.progress("disagreement", len(top) + 1, len(samples))
        top[i], examples = log_p.argmax(1), len(log_p)
        step = -(-log_p.size * len(samples) // MOST_NUMBERS)
        # Half precisions are rounded; probabilities sum to one again.
        q = np.exp(log_p[::step].astype(np.float64))
        p[i] = q / q.sum(1, keepdims=True)
    share = agreement.disagreements(np.stack([top[i] for i in range(len(samples))])) / examples
    variation = agreement.total_variation_matrix(np.stack([p[i] for i in range(len(samples))]))
    compared = len(p[0])
    return [
        {
            "arm": name,
            "group": group,
            "i": i,
            "j": j,
            **samples[i].about("_i"),
            **samples[j].about("_j"),
            "disagreement": float(share[i, j]),
            "total_variation": float(variation[i, j]),
            "examples": examples,
            "examples_of_variation": compared,
        }
        for i, j in itertools.combinations(range(len(samples)), 2)
    ]


def _why_not(context: Context) -> str | None:
    if (why := networks_only(context)) is not None:
        return why
    some = any(len(context.select(a, g).records) > 1 for a, g in context.groups)
    return None if some else "no arm has two samples to compare"


def matrix(rows: Sequence[Mapping[str, Any]], column: str, diagonal: float = 0.0) -> Array:
    """The symmetric matrix whose upper triangle the rows of ``distances`` or ``disagreement`` hold."""
    n = 1 + max(row["j"] for row in rows)
    out = np.full((n, n), diagonal)
    for row in rows:
        out[row["i"], row["j"]] = out[row["j"], row["i"]] = row[column]
    return out


ANALYSIS = Analysis(
    name="diversity",
    about="distances, a map and clusters of the samples; on how many examples they disagree",
    tables=tables,
    why_not=_why_not,
)
