"""Diversity of samples: distances, clusters and a map in weight space (cSG-MCMC Fig. 3a), disagreement of functions."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from raychains.evaluation.evaluation import Array, finite
from raychains.inference.families import family_of
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, two_samples
from raychains.measures.network_samples import Drawn, drawn, networks, pairwise, parameters, reader, thinned
from raychains.planning import Arm
from raychains.planning.views import Key
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import DOT, HOLLOW, Axis, Chart, Heat, Line, Mark, Note, Panel, Rule
from raychains.plotting.style import GRID, INK, MARKERS, MUTED, PAPER, Drawing

log = logging.getLogger(__name__)

MOST_SAMPLES = 200
"""Samples that are compared with each other at a time: matrices, and reads of the store, grow with their square."""
MOST_NUMBERS = 20_000_000
"""Predicted probabilities held at a time, 160 MB: of more, evenly spread examples are left out."""
HOLD = 2_000_000_000
"""Bytes of samples held at a time while they are compared."""
CLEAR = 0.5
"""A mean silhouette above this speaks for clusters (Kaufman & Rousseeuw 1990: "reasonable structure")."""
MOST_CLUSTERS = 6
MOST_LABELS = 12
"""Cycles of a chain that are numbered in the map."""
PLAIN = 0.2
"""Stress above which the map says little (Kruskal 1964)."""


def tables(context: Context) -> Tables:
    """``distances``, ``embedding``, ``clusters`` and, of classifiers, ``disagreement``."""
    found: dict[str, list[Row]] = {"distances": [], "embedding": [], "clusters": []}
    network_of = networks(context)
    for group in sorted({g for _, g in context.groups}):
        samples = {a: drawn(context, a, g) for a, g in context.groups if g == group}
        alike: dict[tuple[Any, ...], dict[int, list[Drawn]]] = {}
        for arm, mine in samples.items():
            kind = (mine[0].spec.sample_only, tuple(parameters(network_of(mine[0])).items()))
            alike.setdefault(kind, {})[arm] = mine
        for number, ((_, network), of_arms) in enumerate(alike.items()):
            for name, rows in _weight_space(context, group, number, of_arms, dict(network)).items():
                found[name] += rows
    # Few samples have few numbers of clusters; a table has one set of columns.
    found["clusters"] = pd.DataFrame(found["clusters"]).to_dict("records")
    if family_of(context.task).one_label:
        found["disagreement"] = [row for a, g in context.groups for row in _function_space(context, a, g)]
    return {name: rows for name, rows in found.items() if rows}


def _weight_space(
    context: Context, group: int, number: int, of_arms: Mapping[int, Sequence[Drawn]], names: Collection[str]
) -> dict[str, list[Row]]:
    """Put all arms of one group of repeats and one network in one map; chains that they share are compared once."""
    share = MOST_SAMPLES // len(of_arms)
    samples = {arm: _few(own, share, context.arm_name(arm)) for arm, own in of_arms.items()}
    unique: dict[Key, Drawn] = {one.key: one for own in samples.values() for one in own}
    place = {key: i for i, key in enumerate(unique)}
    all_of_them = list(unique.values())
    read = reader(context.store.root, all_of_them, names)
    hold = max(1, min(len(all_of_them), HOLD // max(1, read(0).nbytes)))
    done = itertools.count(1)
    context.progress("distances", 0, len(all_of_them))

    def counted(i: int) -> Array:
        context.progress("distances", min(next(done), len(all_of_them)), len(all_of_them))
        return read(i)

    between = pairwise(counted, len(all_of_them), hold=hold)
    at, stress = mds(between.distance, seed=context.seed)
    out: dict[str, list[Row]] = {"distances": [], "embedding": [], "clusters": []}
    for arm, mine_drawn in samples.items():
        mine = np.array([place[one.key] for one in mine_drawn])
        about = {"arm": context.arm_name(arm), "group": group}
        own = between.distance[np.ix_(mine, mine)]
        found = clusters(own)
        rows = _pairs(mine_drawn, distance=own, cosine=between.cosine[np.ix_(mine, mine)])
        out["distances"] += [{**about, **row} for row in rows]
        places = zip(mine_drawn, at[mine].tolist(), found.labels, strict=True)
        for i, (one, (x, y), label) in enumerate(places):
            where = {"x": x, "y": y, "cluster": int(label), "stress": stress}
            out["embedding"].append({**about, "map": number, "sample": i, **one.about(), **where})
        tried = {f"silhouette_{k}": value for k, value in found.silhouettes.items()}
        best = max(found.silhouettes.values(), default=float("nan"))
        out["clusters"].append({**about, "samples": len(mine), "clusters": found.count, "silhouette": best, **tried})
    return out


def _few(samples: Sequence[Drawn], most: int, arm: str) -> list[Drawn]:
    few = thinned(samples, max(2, most))
    if len(few) < len(samples):
        log.warning("arm %s: %d of %d samples, evenly spread, are compared", arm, len(few), len(samples))
    return few


def _pairs(samples: Sequence[Drawn], **matrices: Array) -> list[Row]:
    """Return one row per pair of samples, with the entries of matrices [samples, samples]."""
    rows: list[Row] = []
    for i, j in itertools.combinations(range(len(samples)), 2):
        numbers = {name: matrix[i, j].item() for name, matrix in matrices.items()}
        rows.append({"i": i, "j": j, **samples[i].about("_i"), **samples[j].about("_j"), **numbers})
    return rows


def _function_space(context: Context, arm: int, group: int) -> list[Row]:
    """Return disagreement and total variation of each two samples' predictions on the split."""
    name = context.arm_name(arm)
    samples = _few(drawn(context, arm, group), MOST_SAMPLES, name)
    wanted = {one.at for one in samples}
    top: dict[int, Array] = {}
    p: dict[int, Array] = {}
    for at, log_p in enumerate(context.predictions(arm, group)):
        if at not in wanted:
            continue
        context.progress("disagreement", len(top) + 1, len(samples))
        top[at] = log_p.argmax(1)
        step = -(-log_p.size * len(samples) // MOST_NUMBERS)
        # Half precisions are rounded; probabilities sum to one again.
        q = np.exp(log_p[::step].astype(np.float64))
        p[at] = q / q.sum(1, keepdims=True)
    share = disagreements(np.stack([top[one.at] for one in samples]))
    variation = total_variations(np.stack([p[one.at] for one in samples]))
    about = {"arm": name, "group": group}
    sizes = {"examples": len(top[samples[0].at]), "examples_of_variation": len(p[samples[0].at])}
    return [{**about, **row, **sizes} for row in _pairs(samples, disagreement=share, total_variation=variation)]


def matrix(rows: pd.DataFrame, column: str) -> Array:
    """Return the symmetric matrix [samples, samples], 0 on its diagonal, whose upper triangle the rows of ``distances``
    or ``disagreement`` hold; nan where a pair lacks."""
    pairs = rows.pivot_table(index="i", columns="j", values=column)
    order = sorted({*pairs.index, *pairs.columns})
    upper = pairs.reindex(index=order, columns=order).to_numpy()
    values = np.where(np.isnan(upper), upper.T, upper)
    np.fill_diagonal(values, 0)
    return values


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """The groups that the samples form."""

    count: int
    """The number with the largest silhouette above .5; 1 when none is above."""
    labels: Array
    """The cluster of each sample, [samples], numbered by first appearance; all 0 when there is one."""
    silhouettes: Mapping[int, float]
    """Mean silhouette for each number of clusters that was tried."""


def mds(distance: Array, *, seed: int = 0) -> tuple[Array, float]:
    """Return points of the plane whose distances match ``distance`` as well as they can (metric MDS by scikit-learn's
    SMACOF).

    The best of four random configurations and the classical solution (Torgerson's). Axes are turned to the principal
    ones, signs fixed by each axis' largest coordinate, so that the same distances give the same picture; axes have no
    meaning.

    Args:
        distance: [samples, samples], symmetric, in the unit of θ.
        seed: of the random configurations.

    Returns:
        The points [samples, 2], centred, in the unit of θ; and Kruskal's stress-1, √(Σ(d̂−d)²/Σd²): below .05
        the picture can be read as distances, above .2 it says little (Kruskal 1964).
    """
    import warnings

    from sklearn.decomposition import KernelPCA
    from sklearn.manifold import smacof

    unit = distance.max()
    if unit == 0:
        return np.zeros((len(distance), 2)), 0.0
    d = distance / unit
    settings: dict[str, Any] = {"n_components": 2, "max_iter": 500, "eps": 1e-9, "normalized_stress": False}
    classical = KernelPCA(2, kernel="precomputed").fit_transform(-(d**2) / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of defaults that are all given here
        found = [smacof(d, init=classical, n_init=1, **settings), smacof(d, n_init=4, random_state=seed, **settings)]
    best, squares = min(found, key=lambda one: one[1])  # of each pair once
    best = best - best.mean(0)
    best = best @ np.linalg.svd(best, full_matrices=True)[2].T
    best *= np.where(best[np.abs(best).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    return best * unit, float(np.sqrt(2 * squares / (d**2).sum()))


def clusters(d: Array) -> Clusters:
    """Return the clusters with the largest mean silhouette, k in 2…`MOST_CLUSTERS`; one when none exceeds `CLEAR`.

    Average linkage on the distances themselves, not on a map of them. A silhouette compares a sample's mean distance
    to its own cluster with that to the nearest other one; in many dimensions independent draws of one mode are all
    equally far apart and it is near 0. A chain that drifts without ever stopping may pass for two clusters.

    Args:
        d: distances [samples, samples], symmetric.

    Source: Rousseeuw 1987; computed by scikit-learn.
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    found: dict[int, float] = {}
    labels: dict[int, Array] = {}
    for k in range(2, min(MOST_CLUSTERS, len(d) - 1) + 1):
        labels[k] = AgglomerativeClustering(n_clusters=k, metric="precomputed", linkage="average").fit_predict(d)
        found[k] = float(silhouette_score(d, labels[k], metric="precomputed")) if d.any() else 0.0
    best = max(found, key=lambda k: found[k], default=1)
    if best == 1 or not found[best] > CLEAR:
        return Clusters(count=1, labels=np.zeros(len(d), dtype=int), silhouettes=found)
    _, first, inverse = np.unique(labels[best], return_index=True, return_inverse=True)
    return Clusters(count=best, labels=np.argsort(np.argsort(first))[inverse], silhouettes=found)


def disagreements(classes: Array) -> Array:
    """Return the share of examples with different top classes [samples, n] for each two samples, [samples, samples]
    (Fort et al. 2019)."""
    from scipy.spatial.distance import pdist, squareform

    return np.asarray(squareform(pdist(classes, "hamming")))


def total_variations(p: Array) -> Array:
    """Return the mean total variation of each two samples' predictives [samples, n, classes], [samples, samples], in
    [0, 1]."""
    from scipy.spatial.distance import pdist, squareform

    flat = finite(p, "probabilities").reshape(len(p), -1)
    return np.asarray(squareform(pdist(flat, "cityblock"))) / (2 * p.shape[1])


# Figures


@panels.drawn_from("embedding", "arm variable", f"group map x y stress {panels.SAMPLE}")
def embedding(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw a map of the samples; None unless their diversity was measured."""
    counts = panels.table(run, "clusters", "arm", "group samples clusters silhouette")
    if counts is None:
        return None
    table = table[table["group"] == table["group"].min()]  # groups of repeats have maps of their own
    clusters = panels.first_groups(counts).set_index("arm")
    arms = [arm for arm in panels.present(run, table) if arm.name in clusters.index]
    if not arms:
        return None
    stress = float(table["stress"].max())
    twice, several_maps = table.duplicated(["map", "x", "y"]).any(), table["map"].nunique() > 1
    shared = " Samples that arms share are drawn for the first of them." if twice else ""
    several = " Arms of different networks have maps of their own." if several_maps else ""
    doubt = ", so that it says little" if stress > PLAIN else ""
    return Drawing(
        name="embedding",
        title="Samples in weight space",
        caption=(
            f"Every sample, placed so that distances in the map are those of all parameters as nearly as a plane can "
            f"show them (metric multidimensional scaling, stress {stress:.2f}{doubt}); axes have no other meaning. "
            "Numbers are cycles. Clusters are counted on the distances themselves by their silhouette: one where none "
            f"of 2 to 6 exceeds 0.5.{shared}{several}"
        ),
        alt="A map of the samples of every arm: " + "; ".join(f"{a.label} forms {_count(clusters, a)}" for a in arms),
        draw=_map(run, arms, table, clusters),
        data=table.to_dict("records"),
    )


def _count(clusters: pd.DataFrame, arm: Arm) -> str:
    n = int(clusters.loc[arm.name, "clusters"])
    return f"{n} cluster{'s' * (n != 1)}"


def _map(run: RunData, arms: list[Arm], table: pd.DataFrame, clusters: pd.DataFrame) -> Chart:
    # Arms of one sampler on one map share a panel; a map's other samples stand pale behind them.
    map_of = dict(zip(table["arm"], table["map"], strict=True))
    shown = [
        (number, panel.title, [a for a in panel.arms if a in arms and map_of[a.name] == number])
        for number in sorted(set(table["map"]))
        for panel in run.arm_styles.panels
    ]
    shown = [panel for panel in shown if panel[2]]
    styles, first, made = in_one_panel(arms), table[~table.duplicated(["map", "x", "y"])], []
    x, y = (Axis(label=f"{name} axis (unit of the weights)", margin=0.08) for name in ("First", "Second"))
    equal: Literal["box", "datalim"] = "datalim" if len(shown) == 1 else "box"  # panels that share both axes keep them
    for i, (number, title, group) in enumerate(shown):
        names = [a.name for a in group]
        others, own = first[(first["map"] == number) & ~first["arm"].isin(names)], table[table["arm"].isin(names)]
        own = own[~own.duplicated(["x", "y"])]
        marks: list[Mark] = [Line(x=others["x"], y=others["y"], style={**DOT, "color": GRID, "markersize": 3})]
        for arm in group:
            marks += _samples(own[own["arm"] == arm.name], styles[arm.name].colour)
        made.append(Panel(marks=marks, x=x, y=replace(y, label="" if i else y.label), title=title, equal=equal))
    one_map, height = table["map"].nunique() == 1, 4.0 if len(shown) == 1 else 6.6 / min(3, len(shown))
    dot = {**DOT, "markersize": 6}
    legend = [(f"{a.label}: {_count(clusters, a)}", {**dot, "color": styles[a.name].colour}) for a in arms]
    chains, others = sorted(set(first["chain"].astype(int))), sorted(set(first["variable"]) - {"theta"})
    if len(chains) > 1:
        legend += [(f"chain {c + 1}", {**dot, "marker": m}) for c, m in zip(chains, MARKERS, strict=False)]
    legend += [(f"{panels.variable(v)} (hollow)", {**dot, **HOLLOW}) for v in others]
    share: Any = {"share_x": one_map, "share_y": one_map}
    return Chart(panels=made, columns=3, height=height, legend=legend, legend_columns=2, **share)


def _samples(mine: pd.DataFrame, colour: str) -> Iterator[Mark]:
    """Yield an arm's samples, and beside its chains' last ones of each cycle the cycle's number."""
    for (chain, name), some in mine.groupby(["chain", "variable"]):
        look = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 1.1}
        if name == "theta":
            look = {"markerfacecolor": colour, "markeredgecolor": PAPER, "markeredgewidth": 0.6}
        mark = {"marker": MARKERS[int(chain) % len(MARKERS)], "markersize": 6.5, "linestyle": ""}
        yield Line(x=some["x"], y=some["y"], style={**mark, **look})
    theta = mine[mine["variable"] == max(mine["variable"], default="")]  # theta where there is one
    for _, chain_of in theta.groupby("chain"):
        cycles = chain_of.groupby("cycle")[["x", "y"]].last()
        for cycle, at in cycles.iterrows() if 1 < len(cycles) <= MOST_LABELS else ():
            yield Note(x=at["x"], y=at["y"], text=str(int(cycle) + 1))


@panels.drawn_from(
    "disagreement",
    "arm variable_i variable_j",
    "group disagreement total_variation i j chain_i chain_j cycle_i cycle_j",
)
def disagreement(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw heat maps of pairs by chain and cycle; None unless a classifier's diversity was measured."""
    table = panels.first_groups(table)
    arms = panels.present(run, table)
    if not arms:
        return None
    means = table.groupby("arm")["disagreement"].mean()
    variables = " and θ from θₐ" if table["variable_j"].nunique() > 1 else ""
    means_by_arm = "; ".join(f"{a.label} {100 * means[a.name]:.1f} %" for a in arms)
    return Drawing(
        name="disagreement",
        title="Disagreement of samples",
        caption=(
            "Share of the inputs on which two samples of an arm predict different classes, samples in the order of "
            f"chains and cycles; thick lines part chains{variables}, thin ones cycles. Mean over pairs: {means_by_arm}."
        ),
        alt="Heat maps of the pairwise disagreement of each arm's samples",
        draw=_heat(arms, table),
        data=table.to_dict("records"),
    )


def _heat(arms: list[Arm], table: pd.DataFrame) -> Chart:
    most, shown = 100 * float(table["disagreement"].max()) or 1.0, []
    about = ["variable", "chain", "cycle"]
    for i, arm in enumerate(arms):
        mine = table[table["arm"] == arm.name]
        values = 100 * matrix(mine, "disagreement")
        n = len(values)  # samples are numbered from 1
        marks: list[Mark] = [Heat(values=values, low=0, high=most, extent=(0.5, n + 0.5, n + 0.5, 0.5))]
        both = [mine[[e, *(f"{name}_{e}" for name in about)]].set_axis(["at", *about], axis=1) for e in "ij"]
        samples = pd.concat(both).drop_duplicates("at").sort_values("at")
        for k, (before, now) in enumerate(itertools.pairwise(samples[about].to_numpy().tolist()), start=1):
            apart = {"color": INK, "linewidth": 1.2} if before[:2] != now[:2] else {"color": MUTED, "linewidth": 0.5}
            if before != now:
                marks += [Rule(at=k + 0.5, upright=upright, style=apart) for upright in (False, True)]
        x = Axis(label="Sample", ticks=4, whole=True, margin=0)
        shown.append(Panel(marks=marks, x=x, y=replace(x, label="" if i else x.label), title=arm.label))
    return Chart(panels=shown, columns=panels.COLUMNS, height=2.5, bar="Different class (%)")


MEASURE = Measure(
    name="diversity",
    section="Diversity",
    about="distances, a map and clusters of the samples; on how many examples they disagree",
    tables=tables,
    why_not=lambda context: two_samples(context, "to compare"),
    figures={"embedding": embedding, "disagreement": disagreement},
)
