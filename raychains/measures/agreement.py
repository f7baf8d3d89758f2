"""Agreement of the arms' predictives: the same top class, and total variation, of each two (Izmailov et al. 2021)."""

from __future__ import annotations

import textwrap
from collections import defaultdict

import numpy as np
import pandas as pd

from raychains.core.errors import UserError
from raychains.evaluation.classification import Average
from raychains.evaluation.evaluation import Array, finite
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.measure import Context, Measure, Row, Tables, no_classes
from raychains.planning import Arm
from raychains.plotting.charts import Axis, Chart, Heat, Panel
from raychains.plotting.style import HEAT, Drawing

LABELS = {"agreement": "Same top class (%)", "total_variation": "Total variation (%)"}


def tables(context: Context) -> Tables:
    """``agreement``: between, first, first_group, second, second_group, agreement and total_variation, both in [0, 1].

    Where ``between`` is ``arms``: each two arms of one group of repeats on the run's split, in both orders, and each
    arm with itself. Where it is ``repeats``: the first of an arm's groups with each other one; the likeness of repeats
    is the yardstick for that of two arms.

    Raises:
        UserError: a predictive is not finite.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for arm, group in context.groups:
        groups[group].append(arm)
    first_of: dict[int, tuple[int, int, Array]] = {}
    rows: list[Row] = []
    for group, arms in context.counted("agreement", sorted(groups.items())):
        means = {arm: _mean(context, arm, group) for arm in arms}
        for a in arms:
            one = (a, group, means[a])
            rows += [_row(context, "arms", one, (b, group, means[b])) for b in arms]
            if a in first_of:
                rows.append(_row(context, "repeats", first_of[a], one))
            first_of.setdefault(a, one)
    return {"agreement": rows}


def _row(context: Context, between: str, one: tuple[int, int, Array], other: tuple[int, int, Array]) -> Row:
    return {
        "between": between,
        "first": context.arm_name(one[0]),
        "first_group": one[1],
        "second": context.arm_name(other[0]),
        "second_group": other[1],
        "agreement": agreement(one[2], other[2]),
        "total_variation": total_variation(one[2], other[2]),
    }


def _mean(context: Context, arm: int, group: int) -> Array:
    """Return the predictive, [examples, classes]."""
    average = Average.of(context.predictions(arm, group), context.select(arm, group).weights)
    if average is None:
        raise UserError(f"arm {context.arm_name(arm)!r} has no samples")
    # Half-precision blocks sum to 1 within 1e-3 only; float32 halves what is held of every arm.
    return finite(average.mean, "probabilities").astype(np.float32)


def agreement(first: Array, second: Array) -> float:
    """Return the share of examples [n, classes] with the same top class (the first of equals), in [0, 1]."""
    return float(same_top(first, second).mean())


def same_top(first: Array, second: Array) -> Array:
    """Return for each of the examples [n, classes] whether both have the same top class (the first of equals), bool
    [n]."""
    return np.asarray(first.argmax(axis=1) == second.argmax(axis=1))


def total_variation(first: Array, second: Array) -> float:
    """Return the mean over the examples [n, classes] of ½ Σ_c |p_c − q_c|, in [0, 1]."""
    return float(variations(first, second).mean())


def variations(first: Array, second: Array) -> Array:
    """Return ½ Σ_c |p_c − q_c| of each of the examples [n, classes], float64 [n] in [0, 1]."""
    return np.asarray(0.5 * np.abs(first.astype(np.float64) - second).sum(axis=1))


@panels.drawn_from("agreement", "between first second", f"first_group second_group {' '.join(LABELS)}")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw two small maps of all pairs of arms; None unless two arms' predictives were compared."""
    arms = [arm for arm in run.comparison.arms if arm.name in set(table["first"])]
    if len(arms) < 2:
        return None
    maps = {measure: _matrix(table, arms, measure) for measure in LABELS}
    repeats = bool((table["between"] == "repeats").any())
    diagonal = "between an arm's repeats" if repeats else "empty: every arm was run once"
    return Drawing(
        name="agreement",
        title="Likeness of the predictives",
        caption=(
            "Left: share of the inputs with the same most probable class; right: mean total variation of the two "
            f"predictives{run.over_repeats}. The diagonal is {diagonal}."
        ),
        alt="Agreement and total variation of the predictives of each two arms",
        draw=_chart(arms, maps),
        data=[
            {"first": a.name, "second": b.name, **{m: float(maps[m][i, j]) for m in LABELS}}
            for i, a in enumerate(arms)
            for j, b in enumerate(arms)
        ],
    )


def _matrix(table: pd.DataFrame, arms: list[Arm], measure: str) -> Array:
    """Return means over groups, [arms, arms]; on the diagonal those between repeats, nan where there are none."""
    between = table.groupby(["between", "first", "second"])[measure].mean()
    found = [[between.get(("repeats" if a is b else "arms", a.name, b.name), np.nan) for b in arms] for a in arms]
    return np.array(found, dtype=float)


def _chart(arms: list[Arm], maps: dict[str, Array]) -> Chart:
    numbers = {float(k): str(k + 1) for k in range(len(arms))}
    names = {float(k): f"{textwrap.shorten(a.label, 28, placeholder='…')}  {k + 1}" for k, a in enumerate(arms)}
    shown = []
    for measure, label in LABELS.items():
        values = 100 * maps[measure]
        found = values[np.isfinite(values)]
        high = float(found.max()) if len(found) else 1.0
        # The least likely pair is shaded too: only where nothing was compared there is paper.
        low = high - max(1.0, 1.3 * (high - float(found.min()) if len(found) else 0.0))
        heat = Heat(values=values, low=low, high=high, digits=1, colours=HEAT[:2])
        x, y = Axis(label="Arm", ticks=numbers, grid=False), Axis(ticks=names, grid=False)
        shown.append(Panel(marks=[heat], x=x, y=y, title=label))
    return Chart(panels=shown, columns=2, height=0.5 + 0.36 * max(len(arms), 3), share_y=True)


MEASURE = Measure(
    name="agreement",
    section="Uncertainty",
    about="agreement and total variation of the arms' predictives with each other",
    tables=tables,
    why_not=no_classes,
    figures={"agreement": figure},
)
