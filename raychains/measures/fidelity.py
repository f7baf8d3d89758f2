"""Fidelity to a reference's predictive probabilities: agreement and total variation, against samples, chains, classes, confidence.

The reference is a file of probabilities, or for CIFAR-10 those of full-batch HMC in the data root (Izmailov et al. 2021,
https://arxiv.org/abs/2104.14421).
"""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raychains import tasks
from raychains.core.errors import UserError, require
from raychains.data import probabilities
from raychains.evaluation import bootstrap
from raychains.evaluation.base import BINS, Array, Sharded, finite
from raychains.evaluation.calibration import width_bin
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.agreement import same_top, variations
from raychains.measures.base import Context, Measure, Row, Tables, no_classes
from raychains.measures.draws import evenly
from raychains.planning import Arm
from raychains.planning.views import Request
from raychains.plotting import layout
from raychains.plotting.arm_styles import ArmStyle, in_one_panel
from raychains.plotting.style import MUTED, Drawing

log = logging.getLogger(__name__)

MOST = 200
"""Numbers of samples that are followed, evenly spread, all samples the last."""
CHANCE = 1.5
"""A reference that is right on fewer than so many times 1/classes of the labels is warned of."""
METRICS = {"agreement": "Same top class (%)", "total_variation": "Total variation (%)"}
PUBLISHED_TASK = "cifar10-resnet20-frn-silu"
PUBLISHED = {
    "HMC, chain against chain": (0.940, 0.074),
    "SGD, one network": (0.855, 0.190),
    "Deep ensemble": (0.915, 0.115),
    "SGLD": (0.915, 0.110),
    "SGHMC": (0.920, 0.109),
    "cSGHMC": (0.927, 0.099),
}
"""Agreement and total variation on CIFAR-10 by Izmailov et al. 2021, of their own split of their HMC chains, quoted second-hand."""


def why_not(context: Context) -> str | None:
    """Return the reason where there is no classification or no reference.

    Raises:
        UserError: a reference that is no probabilities of the split's examples.
    """
    if reason := no_classes(context):
        return reason
    if _given(context) is None:
        return (
            f"no reference is known for task {context.comparison.task} on the split {context.split}: "
            "reference=FILE (--reference) gives one"
        )
    reference = probabilities.load(_given(context))
    evaluation = context.task.splits()[context.split]
    if isinstance(evaluation, Sharded):
        _check(reference, evaluation.examples, getattr(evaluation, "classes", reference.shape[1]))
    return None


def _given(context: Context) -> object | None:
    given = context.settings.get("reference")
    return given if given is not None else context.task.reference_file(context.split)


def _check(reference: Array, examples: int, classes: int) -> None:
    found = list(reference.shape)
    require(found == [examples, classes], "reference", found, f"have the shape [{examples}, {classes}] of the split")


def tables(context: Context) -> Tables:
    """``fidelity``, ``fidelity_chains``, ``fidelity_classes`` and ``fidelity_bins``.

    All have arm, group, repeat, agreement and total_variation, means over test examples in [0, 1]. ``fidelity``: of the
    first ``samples`` samples in the order of views (first draws of all chains first), which are of so many ``chains``, with
    95 % bootstrap intervals over test examples (``<metric>_low``, ``<metric>_high``); the last row is of all samples.
    ``fidelity_chains``: likewise of all samples of the first ``chains`` chains. ``fidelity_classes``: of all samples, on the
    ``count`` examples of a ``class`` (the label; the reference's top class where there are no labels). ``fidelity_bins``:
    likewise by the reference's confidence, ``lower`` to ``upper``.

    Raises:
        UserError: a reference of another shape, or a predictive that is not finite.
    """
    reference, bins = probabilities.load(_given(context)), int(context.settings.get("bins", BINS))
    classes = reference.argmax(axis=1)
    found: dict[str, list[Row]] = {"fidelity": [], "fidelity_chains": [], "fidelity_classes": [], "fidelity_bins": []}
    for number, (arm, group) in enumerate(context.counted("fidelity", context.groups)):
        one = _Ensemble(context, arm, group, reference)
        if number == 0 and (labels := _labels(context, arm, group)) is not None:
            classes = labels
            _warn_of_order(reference, labels, context.split)
        key = context.key(arm, group)
        found["fidelity"] += [{**key, **row} for row in one.by_samples()]
        found["fidelity_chains"] += [{**key, **row} for row in one.by_chains()]
        found["fidelity_classes"] += [{**key, **row} for row in one.by_class(classes)]
        found["fidelity_bins"] += [{**key, **row} for row in one.by_confidence(bins)]
    return found


def _labels(context: Context, arm: int, group: int) -> Array | None:
    (result,) = context.evaluate(context.split, [Request(arm=arm, group=group)])
    return np.asarray(result.rows["label"]) if "label" in result.rows else None


def _warn_of_order(reference: Array, labels: Array, split: str) -> None:
    right = float((reference.argmax(axis=1) == labels).mean())
    if right < CHANCE / reference.shape[1]:
        log.warning(
            "the reference is right on %.1f %% of the split %s, which is chance: are its rows in the split's order?",
            100 * right,
            split,
        )


class _Ensemble:
    """The predictive of one arm's group as samples and chains are added to it, beside the reference."""

    def __init__(self, context: Context, arm: int, group: int, reference: Array) -> None:
        self.reference = reference
        position = {spec.digest: c for c, spec in enumerate(context.comparison.arms[arm].chains[group])}
        chains = [position[spec.digest] for spec, _ in context.select(arm, group).records]
        if not chains:
            raise UserError(f"arm {context.arm_name(arm)!r} has no samples")
        total = np.zeros_like(reference)
        of_chain: dict[int, Array] = {}
        self.counts = (evenly(len(chains), MOST) + 1).tolist()
        self.chains = [len(set(chains[:n])) for n in self.counts]
        followed: list[Array] = []
        for i, (chain, block) in enumerate(zip(chains, context.predictions(arm, group), strict=True)):
            if i == 0:
                _check(reference, *block.shape)
            p = np.exp(block.astype(np.float64))
            total += p
            of_chain[chain] = of_chain.get(chain, 0.0) + p
            if i + 1 == self.counts[len(followed)]:
                followed.append(self._points(total / (i + 1)))
        self.followed = followed
        sizes = {chain: chains.count(chain) for chain in of_chain}
        self.by_chain = []
        summed, size = np.zeros_like(reference), 0
        for chain in sorted(of_chain):
            summed, size = summed + of_chain[chain], size + sizes[chain]
            self.by_chain.append((size, self._points(summed / size)))

    def _points(self, p: Array) -> Array:
        """Return agreement and total variation of each example, [examples, 2]."""
        p = finite(p, "probabilities")
        return np.stack([same_top(p, self.reference), variations(p, self.reference)], axis=1)

    def by_samples(self) -> list[Row]:
        numbers = _with_intervals(self.followed)
        return [{"samples": n, "chains": c, **row} for n, c, row in zip(self.counts, self.chains, numbers, strict=True)]

    def by_chains(self) -> list[Row]:
        numbers = _with_intervals([points for _, points in self.by_chain])
        sizes = [size for size, _ in self.by_chain]
        return [{"chains": k, "samples": n, **row} for k, (n, row) in enumerate(zip(sizes, numbers, strict=True), 1)]

    def by_class(self, classes: Array) -> list[Row]:
        return [{"class": c, **row} for c, row in self._grouped(classes)]

    def by_confidence(self, bins: int) -> list[Row]:
        """Return a row for each bin of equal width that is not empty."""
        edges = np.linspace(0, 1, bins + 1)
        which = width_bin(self.reference.max(axis=1), bins)
        return [
            {"bin": b, "bins": bins, "lower": float(edges[b]), "upper": float(edges[b + 1]), **row}
            for b, row in self._grouped(which)
        ]

    def _grouped(self, which: Array) -> list[tuple[int, Row]]:
        found = []
        for value in np.unique(which).tolist():
            mine = self.followed[-1][which == value]
            found.append(
                (int(value), {"count": len(mine), **dict(zip(METRICS, mine.mean(axis=0).tolist(), strict=True))})
            )
        return found


def _with_intervals(points: list[Array]) -> list[Row]:
    """Return means and intervals of each [examples, 2]."""
    columns = np.concatenate(points, axis=1)
    low, high = bootstrap.of_means(columns)
    mean = columns.mean(axis=0)
    rows: list[Row] = []
    for i in range(len(points)):
        row: Row = {}
        for j, name in enumerate(METRICS, 2 * i):
            row |= {name: float(mean[j]), f"{name}_low": float(low[j]), f"{name}_high": float(high[j])}
        rows.append(row)
    return rows


# Figures

ENDS = " ".join(f"{name} {name}_low {name}_high" for name in METRICS)


def _published(run: RunData) -> dict[str, tuple[float, float]]:
    """Return the published numbers where the run samples the same posterior."""
    own = run.comparison.task_spec
    return PUBLISHED if own.kind == tasks.NAMES[PUBLISHED_TASK] and run.comparison.split == "test" else {}


@panels.drawn_from("fidelity", "arm", f"group samples chains {ENDS}")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw agreement and total variation of all samples of each arm, beside published numbers."""
    arms = panels.present(run, table)
    if not arms:
        return None
    last = table[table["samples"] == table.groupby(["arm", "group"])["samples"].transform("max")]
    published = _published(run)
    beside = (
        " Below them published numbers of Izmailov et al. 2021, with a reference of their own and far longer chains."
        if published
        else ""
    )
    return Drawing(
        name="fidelity",
        title="Fidelity to the reference",
        caption=(
            "Share of test examples with the reference's top class, and mean total variation to the reference, of all samples of "
            f"an arm: a dot for each repeat, with the 95 % bootstrap interval over test examples.{beside}"
        ),
        alt="Agreement with the reference and total variation to it of each arm",
        draw=lambda: _draw(run, last, arms, published),
        data=[*last.to_dict("records"), *_rows(published)],
    )


def _rows(published: dict[str, tuple[float, float]]) -> list[Row]:
    return [{"arm": f"published: {name}", "agreement": a, "total_variation": v} for name, (a, v) in published.items()]


def _draw(run: RunData, table: pd.DataFrame, arms: list[Arm], published: dict[str, tuple[float, float]]) -> Figure:
    labels = [arm.label for arm in arms] + [f"published: {name}" for name in published]
    figure, axes = layout.per_arm(labels, len(METRICS))
    for j, (axis, (metric, label)) in enumerate(zip(axes, METRICS.items(), strict=True)):
        for line, arm in enumerate(arms):
            mine = table[table["arm"] == arm.name].sort_values("group")
            colour = run.arm_styles[arm].colour
            panels.dots(axis, line, 100 * mine[metric].to_numpy(), color=colour)
            low, high = 100 * mine[f"{metric}_low"].min(), 100 * mine[f"{metric}_high"].max()
            axis.hlines(line, low, high, color=colour, linewidth=1, alpha=0.6)
        for line, values in enumerate(published.values(), len(arms)):
            panels.dots(axis, line, np.array([100 * values[j]]), color=MUTED, marker="D")
        axis.set_xlabel(label)
    return figure


@panels.drawn_from("fidelity", "arm", f"group samples chains {ENDS}")
def by_samples(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw agreement and total variation against the number of samples; None unless an arm has two."""
    arms = panels.present(run, table)
    if not arms or table["samples"].max() < 2:
        return None
    return Drawing(
        name="fidelity_samples",
        title="Fidelity against the number of samples",
        caption=(
            "Agreement with the reference and total variation to it of the first samples of the first repeat, chains in turn; "
            "shaded: 95 % bootstrap intervals over test examples."
        ),
        alt="Agreement with the reference and total variation to it against the number of samples",
        draw=lambda: _draw_samples(panels.first_groups(table), arms),
        data=table.to_dict("records"),
    )


def _draw_samples(table: pd.DataFrame, arms: list[Arm]) -> Figure:
    figure, (axes,) = layout.panels(1, len(METRICS), 2.9)
    style = in_one_panel(arms)
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        for arm in arms:
            _line(axis, table[table["arm"] == arm.name].sort_values("samples"), metric, style[arm.name])
        axis.set_xlabel("Samples")
        axis.set_title(label)
        panels.few_ticks(axis, 5)
    layout.legend(figure, [style[arm.name].handle() for arm in arms])
    return figure


def _line(axis: Axes, rows: pd.DataFrame, metric: str, style: ArmStyle) -> None:
    style.plot(axis, rows["samples"], 100 * rows[metric], size=3 if len(rows) < 2 else 0)
    low, high = (100 * rows[f"{metric}_{end}"] for end in ("low", "high"))
    axis.fill_between(rows["samples"], low, high, color=style.colour, alpha=0.15, linewidth=0)


MEASURE = Measure(
    name="fidelity",
    about="agreement with a reference's predictive probabilities (full-batch HMC's on CIFAR-10) and total variation to them",
    tables=tables,
    why_not=why_not,
    figures={"fidelity": figure, "fidelity_samples": by_samples},
    takes_reference=True,
)
