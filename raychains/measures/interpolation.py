"""Error and NLL of the networks on the line between two samples (cSG-MCMC Fig. 3b; Entropy-MCMC §6.3 for θ and θₐ)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from raychains.evaluation.evaluation import Metric
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, two_samples
from raychains.measures.network_samples import Drawn, drawn, first_groups, maker
from raychains.planning import Arm
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import Axis, Chart, Line, Panel
from raychains.plotting.style import Drawing

MOST_PAIRS = 6
"""Pairs of each kind in an arm, chosen by a seed."""
POINTS = 11
"""On each line, the samples themselves among them."""
Pair = tuple[Drawn, Drawn]


def neighbouring_cycles(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """Yield the last samples of two cycles in a row of one chain."""
    for chain in _chains(samples):
        last = {one.meta.cycle: one for one in chain}
        for cycle, one in last.items():
            if cycle + 1 in last:
                yield one, last[cycle + 1]


def inside_a_cycle(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """Yield two samples in a row of one chain and one cycle; of schedules without cycles, of one chain."""
    for chain in _chains(samples):
        yield from (pair for pair in itertools.pairwise(chain) if pair[0].meta.cycle == pair[1].meta.cycle)


def between_chains(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """Yield the last samples of two chains."""
    yield from itertools.combinations([chain[-1] for chain in _chains(samples)], 2)


def anchors(samples: Sequence[Drawn]) -> Iterator[Pair]:
    """Yield θ and the anchor θₐ that was drawn with it."""
    by = {(one.chain, one.meta.index, one.meta.variable): one for one in samples}
    for (chain, index, variable), one in by.items():
        if variable == "theta" and (chain, index, "anchor") in by:
            yield one, by[chain, index, "anchor"]


def _chains(samples: Sequence[Drawn]) -> list[list[Drawn]]:
    """Return θ's samples by chain; of samplers that draw no θ, the first variable's."""
    variable = samples[0].meta.variable
    mine = [one for one in samples if one.meta.variable == variable]
    return [list(group) for _, group in itertools.groupby(mine, key=lambda one: one.chain)]


KINDS: dict[str, tuple[Callable[[Sequence[Drawn]], Iterator[Pair]], str]] = {
    "neighbouring cycles": (neighbouring_cycles, "the last of two cycles in a row of one chain"),
    "inside a cycle": (inside_a_cycle, "neighbours inside a cycle"),
    "between chains": (between_chains, "the last of two chains"),
    "θ and θₐ": (anchors, "θ and its anchor θₐ"),
}
"""The relation of a line's two ends, in the order of the panels: its pairs, and what they are in a sentence."""


def tables(context: Context) -> Tables:
    """``interpolation``: one row per point of a line, with the split's metrics of its network."""
    shares = np.linspace(0, 1, POINTS).tolist()
    rows: list[Row] = []
    points = []
    make = maker(context)
    for arm, group in first_groups(context):
        samples = drawn(context, arm, group)
        for kind, (pairs, _) in KINDS.items():
            for number, (one, other) in enumerate(chosen(list(pairs(samples)), MOST_PAIRS, context.seed)):
                about = {"arm": context.arm_name(arm), "group": group, "kind": kind, "pair": number}
                ends = {**one.about("_from"), **other.about("_to")}
                rows += [{**about, **ends, "t": t} for t in shares]
                points += [make((1 - t, one), (t, other)) for t in shares]
    found = context.measure(context.split, points) if points else []
    table = [{**row, **metrics} for row, metrics in zip(rows, found, strict=True)]
    return {"interpolation": table} if table else {}


def chosen(pairs: Sequence[Pair], most: int, seed: int) -> list[Pair]:
    """Return at most ``most`` of the pairs in their order: the first, and others that the seed chooses."""
    if len(pairs) <= most:
        return list(pairs)
    others = np.random.default_rng(seed).choice(np.arange(1, len(pairs)), most - 1, replace=False)
    return [pairs[i] for i in sorted([0, *others.tolist()])]


@panels.drawn_from("interpolation", "arm kind", "group pair t")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw metrics along the lines: a hill says two modes; None unless networks between samples were measured."""
    metrics, arms = panels.measured(run, table), panels.present(run, table)
    kinds = [kind for kind in KINDS if kind in set(table["kind"])]
    if not metrics or not arms or not kinds:
        return None
    names = " and ".join(m.label for m in metrics)
    return Drawing(
        name="interpolation",
        title="Between two samples",
        caption=(
            f"{names} of the single network (1 − t)·θ₁ + t·θ₂ on {run.comparison.split}, for pairs of samples that "
            f"are {', or '.join(KINDS[kind][1] for kind in kinds)}. Thin: each pair; thick: their mean. A hill "
            "between the ends says that they lie in different modes."
        ),
        alt=f"{names} against the position on the line between two samples",
        draw=_chart(table, metrics, arms, kinds),
        data=table.to_dict("records"),
    )


def _chart(table: pd.DataFrame, metrics: list[Metric], arms: list[Arm], kinds: list[str]) -> Chart:
    styles, shown = in_one_panel(arms), []
    x = Axis(label="t, from θ₁ (0) to θ₂ (1)", ticks={0: "0", 0.5: "0.5", 1: "1"})
    for metric, kind in itertools.product(metrics, kinds):
        lines = []
        for arm in arms:
            mine = table[(table["kind"] == kind) & (table["arm"] == arm.name)]
            style = styles[arm.name].style(linestyle="-", linewidth=0.7, alpha=0.45)
            for _, pair in mine.groupby("pair"):
                lines.append(Line(x=pair["t"], y=metric.scale * pair[metric.name], style=style))
            if len(mine):
                mean = metric.scale * mine.groupby("t")[metric.name].mean()
                thick = styles[arm.name].style(size=3.5, linestyle="-", linewidth=2, markevery=2)
                lines.append(Line(x=mean.index, y=mean, style=thick, label=arm.label))
        title = "" if metric is not metrics[0] else kind if kind.startswith("θ") else kind[:1].upper() + kind[1:]
        shown.append(Panel(marks=lines, x=x, y=Axis(label=metric.label), title=title))
    return Chart(panels=shown, columns=len(kinds), height=2.3, share_x=True, share_y="row", legend_columns=2)


MEASURE = Measure(
    name="interpolation",
    section="Diversity",
    about="error and NLL on the line between samples of neighbouring cycles, of one cycle, of two chains, of θ and θₐ",
    tables=tables,
    why_not=lambda context: two_samples(context, "to draw a line between"),
    figures={"interpolation": figure},
)
