"""Fidelity to a reference's predictive: agreement and total variation, against samples, chains, classes, confidence.

The reference is a file of probabilities; ``hmc``: draws of the run's own posterior by Hamiltonian Monte Carlo, made
here and kept in the store (`raychains.inference.hmc_reference`), of regressions too; or for CIFAR-10 full-batch HMC's
probabilities in the data root (Izmailov et al. 2021, https://arxiv.org/abs/2104.14421).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raychains import schedules
from raychains.core.errors import UserError, require
from raychains.data import probabilities
from raychains.evaluation import bootstrap
from raychains.evaluation.calibration_error import width_bin, width_edges
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import BINS, Array, Sharded
from raychains.evaluation.regression import Regression
from raychains.inference import hmc_reference
from raychains.inference.families import family_of
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.draws import evenly
from raychains.measures.measure import Context, Measure, Row, Tables, networks_only, no_classes
from raychains.measures.predictive_distance import METRICS, Distance, OfClasses, to_draws
from raychains.planning import Arm
from raychains.planning.views import Request
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import Axis, Chart, Line, Mark, Panel, Rule, dots, in_lines, span
from raychains.plotting.style import Drawing
from raychains.tasks.base import PredictiveTask

log = logging.getLogger(__name__)

MOST = 200
"""Numbers of samples that are followed, evenly spread, all samples the last."""
CHANCE = 1.5
"""A reference that is right on fewer than so many times 1/classes of the labels is warned of."""
LABELS = {
    "agreement": ("Same top class (%)", 100.0),
    "total_variation": ("Total variation (%)", 100.0),
    "w2": ("W₂ (reference sd)", 1.0),
    "sd_ratio": ("Spread of functions over the reference's", 1.0),
}
"""Labels of metrics in figures, and the factors that they are shown with."""
IN_WORDS = {
    "agreement": "agreement {} %",
    "total_variation": "total variation {} %",
    "w2": "W₂ {}",
    "sd_ratio": "spread of functions {}",
}
"""Metrics in captions, with those factors."""
MEANS = "Means over repeats and the outermost ends of their intervals: "
HMC = "hmc"
"""The reference that is made here."""
PROGRESS = f"draws of each chain of the HMC reference ({hmc_reference.ROUND} more as long as the chains disagree)"


def why_not(context: Context) -> str | None:
    """Return the reason where the reference, or the lack of one, does not fit the run.

    Raises:
        UserError: a reference that is no probabilities of the split's examples.
    """
    given, name = _given(context), context.comparison.task
    if _is_hmc(given):
        return _why_no_hmc(context)
    if reason := no_classes(context):
        require(given is None, "reference", given, f"be {HMC}, or left out: {reason}")
        return f"{reason}: `reference={HMC}` is for small networks of other kinds, too"
    if given is None:
        return (
            f"no reference is known for task {name} on the split {context.split}: `reference=FILE` gives one, and "
            f"`reference={HMC}` makes one for a small network"
        )
    file = isinstance(given, str | os.PathLike) and str(given).endswith(probabilities.FORMATS)
    allowed = f"be {HMC}, an array, or a file {', '.join(probabilities.FORMATS[:-1])} or {probabilities.FORMATS[-1]}"
    require(file or isinstance(given, np.ndarray), "reference", given, allowed)
    reference = probabilities.load(given)
    evaluation = context.task.splits()[context.split]
    if isinstance(evaluation, Sharded):
        _check(reference, evaluation.examples, getattr(evaluation, "classes", reference.shape[1]))
    return None


def _given(context: Context) -> object | None:
    given = context.settings.get("reference")
    return given if given is not None else context.task.reference_file(context.split)


def _is_hmc(given: object) -> bool:
    return isinstance(given, str) and given == HMC


def _why_no_hmc(context: Context) -> str | None:
    """Return the reason where no posterior is known of which HMC could draw, or it has another predictive than those
    compared."""
    if reason := networks_only(context):
        return f"{reason}: --measures reference compares those with the exact target"
    evaluation = context.task.splits()[context.split]
    if not isinstance(evaluation, Classification | Regression):
        return f"task {context.comparison.task} predicts neither classes nor a Gaussian"
    if isinstance(evaluation, Regression) and evaluation.targets.shape[1] > 1:
        return f"task {context.comparison.task} has several targets"
    if why := hmc_reference.refusal(context.task):
        return f"HMC cannot draw from the posterior of task {context.comparison.task}: {why}"
    of_arms = [context.comparison.arms[arm].chains[group][0].task for arm, group in context.groups]
    if any(task != of_arms[0] for task in of_arms):
        return "arms have several tasks, or settings of the task"
    if any(context.comparison.arms[arm].chains[group][0].prior is not None for arm, group in context.groups):
        return "HMC's reference needs one weight decay on all parameters as the prior, and arms have another prior"
    decays = _weight_decays(context)
    return None if len(decays) == 1 else f"arms have several priors: weight decay {', '.join(f'{d:g}' for d in decays)}"


def _weight_decays(context: Context) -> list[float]:
    """Return the weight decays of the arms that sample; of all arms where none does."""
    chains = [context.comparison.arms[arm].chains[group][0] for arm, group in context.groups]
    noisy = [c for c in chains if schedules.build(c.schedule).temperature > 0]
    return sorted({float(c.sampler.settings.get("weight_decay", 0.0)) for c in noisy or chains})


def _check(reference: Array, examples: int, classes: int) -> None:
    found = list(reference.shape)
    require(found == [examples, classes], "reference", found, f"have the shape [{examples}, {classes}] of the split")


def _distance(context: Context) -> tuple[Distance, list[Row]]:
    """Return the distance to the reference, and the row about it."""
    given = _given(context)
    if not _is_hmc(given):
        name = Path(given).name if isinstance(given, str | os.PathLike) else "an array"
        return OfClasses(probabilities.load(given)), [{"reference": name}]
    assert isinstance(context.task, PredictiveTask)
    (decay,) = _weight_decays(context)
    found = hmc_reference.reference(
        context.store.root,
        context.task,
        decay,
        context.split,
        lambda done, total: context.progress(PROGRESS, done, total),
    )
    blocks, half = found.blocks, len(found.blocks) // 2
    distance = to_draws(blocks, family_of(context.task).one_label)
    apart = distance.between(distance.average(blocks[:half]), distance.average(blocks[half:])).mean(axis=0)
    chains, draws, _ = found.draws.shape
    row = {"reference": HMC, "chains": chains, "draws": draws, "r_hat": found.r_hat, "ess": found.ess}
    row |= {"acceptance": found.acceptance, "step": found.step, **_named(distance, apart)}
    return distance, [row]


def _named(distance: Distance, values: Array) -> Row:
    """Return a row's metrics [metrics]; nan where the distance has none of the name."""
    own = dict(zip(distance.metrics, values.tolist(), strict=True))
    return {name: own.get(name, float("nan")) for name in METRICS}


def tables(context: Context) -> Tables:
    """``fidelity``, ``fidelity_chains``, of classifiers ``fidelity_classes`` and ``fidelity_bins``, and
    ``fidelity_reference``.

    The first four have arm, group, repeat and the metrics, means over test examples: of classifiers agreement and
    total_variation in [0, 1], of regressions total_variation, w2 and sd_ratio
    (`raychains.measures.predictive_distance`); the others are nan, as all are of a predictive that is not finite.
    ``fidelity``: of the first ``samples`` samples in the order of views (first draws of all chains first), which are of
    so many ``chains``, with 95 % bootstrap intervals over test examples (``<metric>_low``, ``<metric>_high``); the last
    row is of all samples.
    ``fidelity_chains``: likewise of all samples of the first ``chains`` chains. ``fidelity_classes``: of all samples,
    on the ``count`` examples of a ``class`` (the label; the reference's top class where there are no labels).
    ``fidelity_bins``: likewise by the reference's confidence, ``lower`` to ``upper``. ``fidelity_reference``:
    reference, the file's name, 'an array' or 'hmc'; of hmc also its chains, draws of each, the largest r_hat and
    smallest ess of its predictions, acceptance, step (in the prior's sd), and the metrics of the first half of its
    chains beside the second: what the reference itself is uncertain by.

    Raises:
        UserError: a reference of another shape, or HMC chains that do not agree.
    """
    distance, about = _distance(context)
    bins = int(context.settings.get("bins", BINS))
    found: dict[str, list[Row]] = {"fidelity": [], "fidelity_chains": []}
    of_classes = isinstance(distance, OfClasses)
    if of_classes:
        found |= {"fidelity_classes": [], "fidelity_bins": []}
        classes = distance.reference.argmax(axis=1)
    for number, (arm, group) in enumerate(context.counted("fidelity", context.groups)):
        one = _Ensemble(context, arm, group, distance)
        key = context.key(arm, group)
        found["fidelity"] += [{**key, **row} for row in one.by_samples()]
        found["fidelity_chains"] += [{**key, **row} for row in one.by_chains()]
        if not of_classes:
            continue
        if number == 0 and (labels := _labels(context, arm, group)) is not None:
            classes = labels
            _warn_of_order(distance.reference, labels, context.split)
        found["fidelity_classes"] += [{**key, **row} for row in one.by_class(classes)]
        found["fidelity_bins"] += [{**key, **row} for row in one.by_confidence(bins)]
    return {**found, "fidelity_reference": about}


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

    def __init__(self, context: Context, arm: int, group: int, distance: Distance) -> None:
        self.distance = distance
        position = {spec.digest: c for c, spec in enumerate(context.comparison.arms[arm].chains[group])}
        selection = context.select(arm, group)
        chains = [position[spec.digest] for spec, _ in selection.records]
        if not chains:
            raise UserError(f"arm {context.arm_name(arm)!r} has no samples")
        weights = selection.weights if selection.weights is not None else [1.0] * len(chains)
        total: Any = 0.0
        mass = 0.0
        of_chain: dict[int, Any] = {}
        mass_of: dict[int, float] = {}
        self.counts = (evenly(len(chains), MOST) + 1).tolist()
        self.chains = [len(set(chains[:n])) for n in self.counts]
        followed: list[Array] = []
        for i, (chain, block) in enumerate(zip(chains, context.predictions(arm, group), strict=True)):
            if i == 0 and isinstance(distance, OfClasses):
                _check(distance.reference, *block.shape)
            p = weights[i] * distance.summary(block)
            total, mass = total + p, mass + weights[i]
            of_chain[chain] = of_chain.get(chain, 0.0) + p
            mass_of[chain] = mass_of.get(chain, 0.0) + weights[i]
            if i + 1 == self.counts[len(followed)]:
                followed.append(distance.points(total / mass))
        self.followed = followed
        if np.isnan(followed[-1]).any():
            log.warning("arm %s: the predictive is not finite: one of its samples diverged", context.arm_name(arm))
        sizes = {chain: chains.count(chain) for chain in of_chain}
        self.by_chain = []
        summed: Any = 0.0
        mass, size = 0.0, 0
        for chain in sorted(of_chain):
            summed, mass, size = summed + of_chain[chain], mass + mass_of[chain], size + sizes[chain]
            self.by_chain.append((size, distance.points(summed / mass)))

    def by_samples(self) -> list[Row]:
        numbers = self._with_intervals(self.followed)
        return [{"samples": n, "chains": c, **row} for n, c, row in zip(self.counts, self.chains, numbers, strict=True)]

    def by_chains(self) -> list[Row]:
        numbers = self._with_intervals([points for _, points in self.by_chain])
        sizes = [size for size, _ in self.by_chain]
        return [{"chains": k, "samples": n, **row} for k, (n, row) in enumerate(zip(sizes, numbers, strict=True), 1)]

    def by_class(self, classes: Array) -> list[Row]:
        return [{"class": c, **row} for c, row in self._grouped(classes)]

    def by_confidence(self, bins: int) -> list[Row]:
        """Return a row for each bin of equal width that is not empty."""
        edges, which = width_edges(bins), width_bin(self.distance.reference.max(axis=1), bins)
        return [
            {"bin": b, "bins": bins, "lower": float(edges[b]), "upper": float(edges[b + 1]), **row}
            for b, row in self._grouped(which)
        ]

    def _grouped(self, which: Array) -> list[tuple[int, Row]]:
        found = []
        for value in np.unique(which).tolist():
            mine = self.followed[-1][which == value]
            found.append((int(value), {"count": len(mine), **_named(self.distance, mine.mean(axis=0))}))
        return found

    def _with_intervals(self, points: list[Array]) -> list[Row]:
        """Return means and intervals of each [examples, metrics]."""
        columns = np.concatenate(points, axis=1)
        ends = dict(zip(("_low", "_high"), bootstrap.of_means(columns), strict=True))
        parts = {"": columns.mean(axis=0), **ends}
        count = len(self.distance.metrics)
        return [
            {
                f"{name}{end}": value
                for end, values in parts.items()
                for name, value in _named(self.distance, values[count * i : count * (i + 1)]).items()
            }
            for i in range(len(points))
        ]


# Figures

COLUMNS = "arm", "group samples chains " + " ".join(f"{name} {name}_low {name}_high" for name in METRICS)
"""Texts and numbers of the table ``fidelity``."""


def _about(run: RunData) -> dict[str, Any]:
    """Return what the run's tables say of its reference; nothing where they are older than that."""
    found = panels.table(run, "fidelity_reference", "", "")
    return {} if found is None else found.iloc[0].dropna().to_dict()


def _of_reference(about: dict[str, Any]) -> str:
    """Return the sentence on the reference; empty where nothing is known of it."""
    if "r_hat" not in about:
        return f" The reference: {about['reference']}." if about else ""
    return (
        f" The reference: HMC, {about['chains']:.0f} chains of {about['draws']:,.0f} draws, R-hat "
        f"{about['r_hat']:.3f}, effective sample size {about['ess']:,.0f}; between its halves: {_in_words(about)}."
    )


def _in_words(row: Mapping[str, Any]) -> str:
    """Return the finite metrics of a row, with their intervals where it has them."""
    words = []
    for metric, words_of in IN_WORDS.items():
        ends = (row.get(f"{metric}{end}", math.nan) * LABELS[metric][1] for end in ("", "_low", "_high"))
        value, low, high = (f"{number:.3g}" for number in ends)
        between = "" if "nan" in (low, high) else f" ({low} to {high})"
        words += [] if value == "nan" else [words_of.format(value) + between]
    return ", ".join(words) or "not finite"


def _of_all_samples(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["samples"] == table.groupby(["arm", "group"])["samples"].transform("max")]


def _of_arms(last: pd.DataFrame, arms: list[Arm]) -> list[str]:
    """Return each arm's metrics, means over its repeats, between the ends of the line that is drawn."""
    how = {f"{metric}{end}": to for metric in METRICS for end, to in (("", "mean"), ("_low", "min"), ("_high", "max"))}
    rows = last.groupby("arm").agg(how)
    return [f"{arm.label}: {_in_words(rows.loc[arm.name])}" for arm in arms]


def in_words(run: RunData) -> list[str]:
    """Return each arm's distances with all of its samples in a line, and one on the reference."""
    table = panels.table(run, "fidelity", *COLUMNS)
    if table is None or not (arms := panels.present(run, table)):
        return []
    lines = [f"fidelity of {line}" for line in _of_arms(_of_all_samples(table), arms)]
    return [*lines, *filter(None, [_of_reference(_about(run)).strip()])]


@panels.drawn_from("fidelity", *COLUMNS)
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw agreement and total variation of all samples of each arm."""
    arms, last = panels.present(run, table), _of_all_samples(table)
    if not arms or not _measured(last):
        return None
    about = _about(run)
    halves = {metric: about[metric] for metric in METRICS if metric in about}
    beside = (
        " Dashed: the distance between two halves of HMC's draws, nothing nearer can be told apart; for the "
        "ratio of spreads 1."
        if "sd_ratio" in halves
        else " Dashed: the distance between two halves of HMC's draws; nothing nearer can be told apart."
        if halves
        else ""
    )
    return Drawing(
        name="fidelity",
        title="Fidelity to the reference",
        caption=(
            "Distances of the predictive of all samples of an arm to the reference's, means over test examples: of "
            "classifiers the share with the same top class and total variation; of regressions total variation, "
            "Wasserstein's W₂ between Gaussians of the same moments in the reference's standard deviation, and the "
            "standard deviation of the networks' means over the reference's. A dot for each repeat, with the 95 % "
            f"bootstrap interval over test examples.{beside}{_of_reference(about)} "
            f"{MEANS if run.repeated else ''}{'; '.join(_of_arms(last, arms))}."
        ),
        alt="Distances to the reference's predictive of each arm",
        draw=_chart(run, last, arms, halves),
        data=last.to_dict("records"),
    )


def _chart(
    run: RunData,
    table: pd.DataFrame,
    arms: list[Arm],
    halves: dict[str, float],
) -> Chart:
    shown = []
    for metric in _measured(table):
        label, scale = LABELS[metric]
        marks: list[Mark] = []
        for line, arm in enumerate(arms):
            mine, colour = table[table["arm"] == arm.name].sort_values("group"), {"color": run.arm_styles[arm].colour}
            marks += [
                dots(line, scale * mine[metric], colour),
                span(line, scale * mine[f"{metric}_low"].min(), scale * mine[f"{metric}_high"].max(), colour),
            ]
        if metric == "sd_ratio" or metric in halves:
            marks.append(Rule(at=1.0 if metric == "sd_ratio" else scale * halves[metric], upright=True))
        shown.append((Axis(label=label), marks))
    return in_lines([arm.label for arm in arms], shown)


def _measured(table: pd.DataFrame) -> list[str]:
    """Return the metrics of which a table has numbers."""
    return [metric for metric in METRICS if np.isfinite(table[metric]).any()]


@panels.drawn_from("fidelity", *COLUMNS)
def by_samples(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw agreement and total variation against the number of samples; None unless an arm has two."""
    arms = panels.present(run, table)
    if not arms or not _measured(table) or table["samples"].max() < 2:
        return None
    return Drawing(
        name="fidelity_samples",
        title="Fidelity against the number of samples",
        caption=(
            "Distances to the reference's predictive of the first samples of the first repeat, chains in turn; "
            "shaded: 95 % bootstrap intervals over test examples."
        ),
        alt="Distances to the reference's predictive against the number of samples",
        draw=_growth(panels.first_groups(table), arms),
        data=table.to_dict("records"),
    )


def _growth(table: pd.DataFrame, arms: list[Arm]) -> Chart:
    styles, shown = in_one_panel(arms), []
    for metric in _measured(table):
        label, scale = LABELS[metric]
        lines = []
        for arm in arms:
            rows = table[table["arm"] == arm.name].sort_values("samples")
            value, *ends = (scale * rows[f"{metric}{end}"] for end in ("", "_low", "_high"))
            band, style = (ends[0], ends[1]), styles[arm.name].style()
            lines.append(Line(x=rows["samples"], y=value, style=style, label=arm.label, band=band))
        shown.append(Panel(marks=lines, x=Axis(label="Samples", ticks=5, whole=True), y=Axis(ticks=5), title=label))
    return Chart(panels=shown, columns=len(shown), height=2.9, legend_columns=2)


MEASURE = Measure(
    name="fidelity",
    section="Uncertainty",
    about="distance to a reference's predictive: a file's, full-batch HMC's on CIFAR-10, or HMC's of this posterior "
    "(--reference hmc)",
    tables=tables,
    why_not=why_not,
    figures={"fidelity": figure, "fidelity_samples": by_samples},
    in_words=in_words,
    takes_reference=True,
)
