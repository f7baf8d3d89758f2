"""Fig. 3a: a map of 12 samples in weight space, which form a cluster per cycle under cyclical steps and one
otherwise."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.evaluation.evaluation import Array
from raychains.measures.diversity import clusters, matrix
from raychains.measures.network_samples import thinned
from raychains.papers.csgmcmc import cifar
from raychains.plotting.charts import Axis, Mark, Note, Panel

ROWS = rp.labels("csgld sgld")
STYLES = rp.styles(ROWS, "csgld cyclical 0, sgld decreasing 1")
CLUSTERS = rp.printed("csgld: 4\nsgld: 1", [("cifar100", "clusters")], "Zhang et al. 2020, §5.2")
COLUMNS = {"clusters": "Clusters", "distance": "Mean distance", "apart": "Distance between cycles / inside"}


def preset(dataset: str, scale: str) -> rp.Preset:
    """Return one chain of each: Table 1's."""
    variants = [cifar.variant(row, row, scale) for row in ROWS]
    return cifar.preset("fig3a", "12 samples in weight space", dataset, scale, variants)


def tables(run: rp.CompletedRun) -> rp.Tables:
    size = cifar.SIZES[run.scale]
    cells, points = [], []
    for row in ROWS:
        arm = run.arm(row).name
        for repeat in range(size.repeats):
            mine = _few(_of(run.table("embedding"), arm, repeat), 3 * size.cycles)
            chosen = mine["sample"].to_numpy().astype(int)
            distance = matrix(_of(run.table("distances"), arm, repeat), "distance")[np.ix_(chosen, chosen)]
            digest = run.digests(row, repeat)
            # Without cycles, as many samples in a row are a group.
            group = mine["cycle"].to_numpy() if row == "csgld" else np.arange(len(mine)) * size.cycles // len(mine)
            for column, value in statistics(distance, group).items():
                cells.append(rp.cell(run.part, row, column, repeat, value, digests=digest, samples=len(mine)))
            shown = mine[["index", "x", "y", "stress"]].astype({"index": int, "x": float, "y": float, "stress": float})
            shown.insert(1, "group", group.astype(int))
            about = {"part": run.part, "row": row, "repeat": repeat}
            points += [{**about, **point} for point in shown.to_dict("records")]
    return {"cells": cells, "map": points}


def _of(table: pd.DataFrame, arm: str, repeat: int) -> pd.DataFrame:
    return table[(table["arm"] == arm) & (table["group"] == repeat)]


def _few(samples: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most so many of a chain's samples, evenly spread, in order."""
    ordered = samples.sort_values("sample")
    return ordered.iloc[thinned(range(len(ordered)), most)]


def statistics(distance: Array, group: Array) -> dict[str, float]:
    """Return the number of clusters, the mean distance of all pairs, and that between groups over that inside, from
    distances ‖θ_i − θ_j‖ [samples, samples] and the group (cycle) of each sample [samples].
    """
    above = np.triu(np.ones(distance.shape, dtype=bool), 1)
    same = np.equal.outer(group, group)
    return {
        "clusters": float(clusters(distance).count),
        "distance": float(distance[above].mean()),
        "apart": float(distance[above & ~same].mean() / distance[above & same].mean()),
    }


def _caption(scale: str, points: pd.DataFrame) -> str:
    stress = points[points["repeat"] == points["repeat"].min()]["stress"].max()
    return (
        "Samples of one chain of each method, placed so that distances in the map are those of all parameters as "
        f"nearly as a plane can show them (metric multidimensional scaling, stress {stress:.2f}). Numbers are "
        "cycles. Every repeat has a map of its own; the first one's is shown."
    )


def _draw(points: pd.DataFrame) -> Figure:
    """Draw the first repeat's map of every part that was run."""
    points = points[points["repeat"] == points["repeat"].min()]
    count = points["part"].nunique()
    return rp.by_part(cifar.LABELS, _panel, height=0.1 + (4.4 if count == 1 else 8 / count))(points)


def _panel(points: pd.DataFrame) -> Panel:
    marks: list[Mark] = [s.line(of["x"], of["y"], size=6, linestyle="") for s, of in rp.styled(points, STYLES)]
    cycles = points[points["row"] == "csgld"].groupby("group")[["x", "y"]].mean()
    marks += [Note(x=one.x, y=one.y, text=f"{one.Index + 1}") for one in cycles.itertuples()]
    x, y = (Axis(label=f"{name} axis (unit of the weights)", margin=0.1) for name in ("First", "Second"))
    return Panel(marks=marks, x=x, y=y, equal="datalim")


def claims(dataset: str) -> tuple[rp.Claim, ...]:
    """Return what the paper reads from the figure."""
    where = cifar.LABELS[dataset]
    counted = rp.stated(
        (
            f"{v.row}-{v.text}-clusters-{dataset} | {dataset} clusters | {v.row} = {v.summary.mean} | 12 samples of "
            f"{ROWS[v.row]} form {v.text} cluster{'s' * (v.summary.mean > 1)} on {where}."
            for v in CLUSTERS
        ),
        scales=rp.NOT_SMOKE,
        tolerance=0.5,
    )
    larger = {
        "distance": "Samples of cSGLD are further apart than those of SGLD",
        "apart": "Samples of several cycles of cSGLD are further apart, against those of one, than early and late "
        "ones of SGLD",
    }
    table = (f"csgld-larger-{c}-{dataset} | {dataset} {c} | csgld > sgld | {t} on {where}." for c, t in larger.items())
    return counted + rp.stated(table)


STUDY = rp.Study(
    name="fig3a",
    paper="csgmcmc",
    where="Fig. 3a",
    title="12 samples in weight space",
    needs=("cifar100", "cifar10"),
    hours=(0.0016, 0.13, 0.88, 2.6),
    parts=cifar.parts(preset, cifar.OF_FIGURES, tables, measures=("diversity",)),
    rows=ROWS,
    columns=COLUMNS,
    values=CLUSTERS,
    claims=tuple(c for dataset in cifar.OF_FIGURES for c in claims(dataset)),
    settings=cifar.settings,
    differences=cifar.REPEATED
    + """
cpu gpu paper: The paper does not say which of its samplers the map shows: ours are SGLD and cSGLD. 12 of SGLD's 20
    samples, evenly spread, are taken; three in a row count as a cycle.
cpu gpu paper: The paper counts clusters by eye; ours are counted on the distances by their silhouette, one where none
    of 2 to 6 exceeds 0.5. A chain that drifts without stopping may pass for two.
cpu gpu: The paper's figure is of CIFAR-100; CIFAR-10 stands in for it with Table 1's chains.
""",
    figures=rp.figure(
        "map",
        _draw,
        name="map",
        title="Samples in weight space",
        caption=_caption,
        alt="A map of the samples of cSGLD and SGLD in weight space",
    ),
)
