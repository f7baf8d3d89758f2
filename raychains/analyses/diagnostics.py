"""How well chains mix: effective sample sizes, split R-hat, autocorrelation, traces, mode masses and temperatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from raychains import schedules
from raychains.analyses import mode_masses, temperatures
from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.followed import Followed, of_density, of_network
from raychains.evaluation import diagnostics
from raychains.evaluation.base import Array
from raychains.spec import ChainSpec

CHAIN, CYCLE = "chain", "cycle"
"""What counts as a chain: each as it ran, or every cycle of each by itself."""
POINTS = 1_000
"""Of a trace, at most, per chain."""
LAGS = 60
"""Lags at which an autocorrelation is told, at most: the first ones all, the others ever farther apart."""
Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``diagnostics``, ``autocorrelation``, ``traces``, ``temperatures`` and, of mixtures, ``modes``.

    diagnostics: arm, group, repeat, variable, quantity, unit (chain | cycle), chains, draws (of all of them), mean, mcse
        (standard error of the mean), bulk_ess, tail_ess, ess_per_draw (bulk), r_hat (split, rank-normalised), notice
        (why numbers lack, or what they cannot be taken for).
    autocorrelation, traces: of the first repeat and the few quantities of `Followed.shown`: arm, group, repeat, variable,
        quantity and lag, value (mean over the chains, each about its own mean), or chain (position in the arm), draw
        (from 0), cycle, value.
    """
    found: dict[str, list[Row]] = {name: [] for name in ("diagnostics", "autocorrelation", "traces")}
    first = {arm: min(g for a, g in context.groups if a == arm) for arm, _ in context.groups}
    for done, (a, g) in enumerate(context.groups):
        context.progress("diagnostics", done, len(context.groups))
        arm = context.comparison.arms[a]
        chains = arm.chains[g]
        about = {"arm": arm.name, "group": g}
        for followed in followed_of(context, a, g):
            found["diagnostics"] += diagnosed(followed, chains[0], about, g * chains[0].lanes)
            if g == first[a]:
                here = {**about, "repeat": g * chains[0].lanes, "variable": followed.variable}
                found["autocorrelation"] += correlated(followed, here)
                found["traces"] += traced(followed, here)
    context.progress("diagnostics", len(context.groups), len(context.groups))
    masses = mode_masses.rows(context)
    return {**found, "temperatures": temperatures.rows(context), **({"modes": masses} if masses else {})}


def followed_of(context: Context, arm: int, group: int) -> Iterator[Followed]:
    """What is followed along the chains of one arm and group of a run."""
    chains, seed = context.comparison.arms[arm].chains[group], int(context.settings.get("seed", 0))
    if context.task.low_dimensional:
        yield from of_density(context.store.root, context.task, chains, seed=seed)
        return
    selection = context.select(arm, group)
    classes = context.task.predicts == "classes"
    yield from of_network(
        selection,
        chains,
        predictions=context.predictions(arm, group) if classes else None,
        evaluation=context.task.splits()[context.split] if classes else None,
        seed=seed,
    )


def diagnosed(followed: Followed, spec: ChainSpec, about: Row, repeat: int) -> list[Row]:
    """Rows of ``diagnostics``: one per repeat, quantity and unit.

    Args:
        followed: the numbers.
        spec: of one of the chains: they share their schedule.
        about: columns that all rows begin with.
        repeat: the number of the first lane's repeat.
    """
    schedule = schedules.build(spec.schedule)
    cold = "temperature 0: an optimiser's path, no sampler's draws" if schedule.temperature == 0 else ""
    cyclical = schedule.cycle_count > 1
    rows = []
    for quantity, values in followed.values.items():
        units = {CHAIN: (values, "the step size cycles: no stationary chain" if cyclical else "")}
        if cyclical and (parts := by_cycle(values, followed.cycle)) is not None:
            units[CYCLE] = (parts, "")
        for unit, (series, warning) in units.items():
            measured, why = measure(series)
            notice = "; ".join(text for text in (why, warning, cold) if text)
            for lane in range(series.shape[2]):
                numbers = {name: float(v[lane]) for name, v in measured.items()}
                rows.append(
                    {
                        **about,
                        "repeat": repeat + lane,
                        "variable": followed.variable,
                        "quantity": quantity,
                        "unit": unit,
                        "chains": series.shape[0],
                        "draws": series.shape[0] * series.shape[1],
                        **numbers,
                        "notice": notice,
                    }
                )
    return rows


def measure(series: Array) -> tuple[dict[str, Array], str]:
    """Diagnostics of ``series`` [chains, draws, lanes], each [lanes], and why some of them lack (nan)."""
    chains, draws, lanes = series.shape
    nothing = np.full(lanes, np.nan)
    found = dict.fromkeys(("mean", "mcse", "bulk_ess", "tail_ess", "ess_per_draw", "r_hat"), nothing)
    found["mean"] = series.mean((0, 1))
    if draws < diagnostics.FEWEST:
        return found, f"{draws} draw{'s' * (draws != 1)} a chain: at least {diagnostics.FEWEST} are needed"
    still = series.min((0, 1)) == series.max((0, 1))
    mcse = np.array([diagnostics.mean(series[:, :, lane]).error for lane in range(lanes)])
    sizes = {"mcse": mcse, "bulk_ess": diagnostics.ess(series, "bulk"), "tail_ess": diagnostics.ess(series, "tail")}
    found |= {name: np.where(still, np.nan, values) for name, values in sizes.items()}
    found["ess_per_draw"] = found["bulk_ess"] / (chains * draws)
    if chains > 1 or draws >= 2 * diagnostics.FEWEST:
        found["r_hat"] = diagnostics.r_hat(series)
    if draws < diagnostics.FEWEST_FOR_ESS:
        return found, f"{draws} draws a chain: effective sample sizes need {diagnostics.FEWEST_FOR_ESS}"
    return found, "it never moves" if still.any() else ""


def by_cycle(values: Array, cycle: Array) -> Array | None:
    """``values`` [chains, draws, lanes] with every cycle of every chain as a chain of its own; None of a single one.

    Cycles that keep nothing fall out, and those that keep more than the shortest count with their last draws.
    """
    parts = [values[c, cycle[c] == k] for c in range(len(values)) for k in np.unique(cycle[c])]
    if len(parts) == len(values):
        return None
    least = min(len(p) for p in parts)
    return np.stack([p[len(p) - least :] for p in parts])


def lags_of(draws: int) -> Array:
    """Lags from 0 to a third of the draws: every one at first, then each a few per cent above the last."""
    last = max(0, (draws - 1) // 3 if draws > 6 else draws - 1)
    return np.unique(
        np.concatenate([np.arange(min(last, 15) + 1), np.geomspace(1, max(last, 1), LAGS - 16).round()])
    ).astype(int)[: last + 1]


def correlated(followed: Followed, about: Row) -> list[Row]:
    """Rows of ``autocorrelation``; none of fewer draws than `diagnostics.FEWEST`, or of what never moves."""
    if followed.draws < diagnostics.FEWEST:
        return []
    lags = lags_of(followed.draws)
    rows = []
    for quantity in followed.shown:
        series = followed.values[quantity][..., 0]
        if (series.min(1) == series.max(1)).any() or not np.isfinite(series).all():
            continue
        values = diagnostics.autocorrelation(series, lags=int(lags[-1])).mean(0)
        rows += [{**about, "quantity": quantity, "lag": int(k), "value": float(values[k])} for k in lags]
    return rows


def traced(followed: Followed, about: Row) -> list[Row]:
    """Rows of ``traces``: at most `POINTS` per chain, evenly spread, first and last draw among them."""
    at = np.arange(followed.draws)
    if followed.draws > POINTS:
        at = np.linspace(0, followed.draws - 1, POINTS).round().astype(int)
    return [
        {
            **about,
            "quantity": quantity,
            "chain": position,
            "draw": int(t),
            "cycle": int(followed.cycle[c, t]),
            "value": float(followed.values[quantity][c, t, 0]),
        }
        for quantity in followed.shown
        for c, position in enumerate(followed.chains)
        for t in at
    ]


ANALYSIS = Analysis(
    name="diagnostics",
    about="effective sample sizes, split R-hat, autocorrelation, traces, mode masses, temperatures",
    tables=tables,
)
