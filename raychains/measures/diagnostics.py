"""Mixing of chains: effective sample sizes, split R-hat, autocorrelation, traces, ranks; mode masses and
temperatures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raychains import schedules
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.evaluation import mcmc_diagnostics
from raychains.evaluation.evaluation import Array
from raychains.inference.families import family_of
from raychains.inference.run_data import RunData
from raychains.measures import modes, panels, temperatures
from raychains.measures.draws import Followed, evenly, last_draws, of_density, of_network
from raychains.measures.measure import Context, Measure, Row, Tables
from raychains.planning import Arm
from raychains.plotting.charts import DASHED, DOT, HOLLOW, Axis, Chart, Line, Mark, Panel, Rule, Style, dots, in_lines
from raychains.plotting.style import INK, LINES, MUTED, Drawing, hue

CHAIN, CYCLE = "chain", "cycle"
"""The unit that counts as a chain: each as it ran, or every cycle of each by itself."""
POINTS = 1_000
"""Points of a trace, at most, per chain."""
LAGS = 60
"""Lags of an autocorrelation, at most: all of the first ones, the others ever farther apart."""
R_HAT, ESS = 1.01, 400
"""Vehtari et al. 2021: below and above, chains of four agree well enough to trust their means and quantiles."""
LEAST = 1e-3
"""R-hat − 1 is drawn no smaller than this."""
QUANTITIES = 2
"""Whose traces are drawn, per arm."""
MOST_CHAINS = 6
"""Chains that are drawn, per arm: more lines hide one another."""
RANK_BINS = 20
"""Bins of a histogram of ranks."""
FEWEST = 4
"""Points of a trace, at least."""
TEXTS, NUMBERS = "arm variable quantity unit notice", "repeat chains draws bulk_ess tail_ess r_hat"


def tables(context: Context) -> Tables:
    """``diagnostics``, ``autocorrelation``, ``traces``, ``temperatures``, of several chains ``ranks``, and of mixtures
    ``modes``.

    diagnostics: arm, group, repeat, variable, quantity, unit (chain | cycle), chains, draws (of all of them), mean,
    mcse
        (standard error of the mean), bulk_ess, tail_ess, ess_per_draw (bulk), r_hat (split, rank-normalised), notice
        (why numbers lack, or what they cannot be taken for).
    autocorrelation, traces: of the first repeat and the few quantities of `Followed.shown`: arm, group, repeat,
    variable,
        quantity and lag, value (mean over the chains, each about its own mean), or chain (position in the arm), draw
        (from 0), cycle, value.
    ranks: of the same: arm, group, repeat, variable, quantity, chain, bin (from 0), value: draws of the chain whose
    ranks among
        those of all chains fall into the bin, over the number that equal chains would have there; of several chains.
    """
    found: dict[str, list[Row]] = {name: [] for name in ("diagnostics", "autocorrelation", "traces")}
    rank_rows: list[Row] = []
    first = {arm: min(g for a, g in context.groups if a == arm) for arm, _ in context.groups}
    for a, g in context.counted("diagnostics", context.groups):
        chains = context.comparison.arms[a].chains[g]
        about = {"arm": context.arm_name(a), "group": g}
        for followed in followed_of(context, a, g):
            found["diagnostics"] += diagnosed(followed, chains[0], about, g * chains[0].lanes)
            if g == first[a]:
                here = {**about, "repeat": g * chains[0].lanes, "variable": followed.variable}
                found["autocorrelation"] += correlated(followed, here)
                found["traces"] += traced(followed, here)
                rank_rows += ranked(followed, here)
    masses = modes.rows(context)
    further = {name: rows for name, rows in {"ranks": rank_rows, "modes": masses}.items() if rows}
    return {**found, "temperatures": temperatures.rows(context), **further}


def followed_of(context: Context, arm: int, group: int) -> Iterator[Followed]:
    """Follow the chains of one arm and group of a run."""
    chains, seed = context.comparison.arms[arm].chains[group], context.seed
    if context.task.low_dimensional:
        yield from of_density(context.store.root, context.task, chains, seed=seed)
        return
    predicted: dict[str, Any] = {}
    if family_of(context.task).one_label:
        predicted["predictions"] = context.predictions(arm, group)
        predicted["evaluation"] = context.task.splits()[context.split]
    yield from of_network(context.select(arm, group), chains, seed=seed, **predicted)


def diagnosed(followed: Followed, spec: ChainSpec, about: Row, repeat: int) -> list[Row]:
    """Return rows of ``diagnostics``, which begin with ``about``: one per lane (repeats from ``repeat`` on), quantity
    and unit."""
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
                name = {"variable": followed.variable, "quantity": quantity, "unit": unit}
                sizes = {"chains": series.shape[0], "draws": series.shape[0] * series.shape[1]}
                rows.append({**about, "repeat": repeat + lane, **name, **sizes, **numbers, "notice": notice})
    return rows


def measure(series: Array) -> tuple[dict[str, Array], str]:
    """Return diagnostics of ``series`` [chains, draws, lanes], each [lanes], and why some of them lack (nan)."""
    chains, draws, lanes = series.shape
    nothing = np.full(lanes, np.nan)
    found = dict.fromkeys(("mean", "mcse", "bulk_ess", "tail_ess", "ess_per_draw", "r_hat"), nothing)
    found["mean"] = series.mean((0, 1))
    if draws < mcmc_diagnostics.FEWEST:
        return found, f"{draws} draw{'s' * (draws != 1)} a chain: at least {mcmc_diagnostics.FEWEST} are needed"
    still = series.min((0, 1)) == series.max((0, 1))
    mcse = np.array([mcmc_diagnostics.mean(series[:, :, lane]).error for lane in range(lanes)])
    sizes = {
        "mcse": mcse,
        "bulk_ess": mcmc_diagnostics.ess(series, "bulk"),
        "tail_ess": mcmc_diagnostics.ess(series, "tail"),
    }
    found |= {name: np.where(still, np.nan, values) for name, values in sizes.items()}
    found["ess_per_draw"] = found["bulk_ess"] / (chains * draws)
    if chains > 1 or draws >= 2 * mcmc_diagnostics.FEWEST:
        found["r_hat"] = mcmc_diagnostics.r_hat(series)
    if draws < mcmc_diagnostics.FEWEST_FOR_ESS:
        return found, f"{draws} draws a chain: effective sample sizes need {mcmc_diagnostics.FEWEST_FOR_ESS}"
    return found, "it never moves" if still.any() else ""


def by_cycle(values: Array, cycle: Array) -> Array | None:
    """Return ``values`` [chains, draws, lanes] with every cycle of every chain as a chain of its own; None of a single
    one.

    Cycles that keep nothing are left out, and those that keep more than the shortest count with their last draws.
    """
    parts = [values[c, cycle[c] == k] for c in range(len(values)) for k in np.unique(cycle[c])]
    return None if len(parts) == len(values) else last_draws(parts)


def lags_of(draws: int) -> Array:
    """Return lags from 0 to a third of the draws: every one at first, then each a few per cent above the last."""
    last = max(0, (draws - 1) // 3 if draws > 6 else draws - 1)
    return np.unique(
        np.concatenate([np.arange(min(last, 15) + 1), np.geomspace(1, max(last, 1), LAGS - 16).round()])
    ).astype(int)[: last + 1]


def correlated(followed: Followed, about: Row) -> list[Row]:
    """Return rows of ``autocorrelation``; none of fewer draws than `mcmc_diagnostics.FEWEST`, or of what never
    moves."""
    if followed.draws < mcmc_diagnostics.FEWEST:
        return []
    lags = lags_of(followed.draws)
    rows = []
    for quantity in followed.shown:
        series = followed.values[quantity][..., 0]
        if (series.min(1) == series.max(1)).any() or not np.isfinite(series).all():
            continue
        values = mcmc_diagnostics.autocorrelation(series, lags=int(lags[-1])).mean(0)
        rows += [{**about, "quantity": quantity, "lag": int(k), "value": float(values[k])} for k in lags]
    return rows


def traced(followed: Followed, about: Row) -> list[Row]:
    """Return rows of ``traces``: at most `POINTS` per chain, evenly spread, first and last draw among them."""
    at = evenly(followed.draws, POINTS)
    rows = []
    for quantity in followed.shown:
        values = followed.values[quantity][..., 0]
        for c, position in enumerate(followed.chains):
            where = {**about, "quantity": quantity, "chain": position}
            drawn = zip(at.tolist(), followed.cycle[c, at].tolist(), values[c, at].tolist(), strict=True)
            rows += [{**where, "draw": t, "cycle": cycle, "value": value} for t, cycle, value in drawn]
    return rows


def ranked(followed: Followed, about: Row) -> list[Row]:
    """Return rows of ``ranks``; none of a single chain, of fewer draws than bins, or of what never moves."""
    from scipy.stats import rankdata  # whose import takes half a second

    rows: list[Row] = []
    if len(followed.chains) < 2 or followed.draws < RANK_BINS:
        return rows
    for quantity in followed.shown:
        series = followed.values[quantity][..., 0]
        if series.min() == series.max() or not np.isfinite(series).all():
            continue
        bins = ((rankdata(series) - 1) * RANK_BINS / series.size).astype(int).reshape(series.shape)
        for c, position in enumerate(followed.chains):
            shares = np.bincount(bins[c], minlength=RANK_BINS) * RANK_BINS / followed.draws
            where = {**about, "quantity": quantity, "chain": position}
            rows += [{**where, "bin": k, "value": float(v)} for k, v in enumerate(shares)]
    return rows


# Figures


@panels.drawn_from("diagnostics", TEXTS, NUMBERS)
def mixing(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw split R-hat and bulk ESS of every quantity; None before chains are diagnosed, and of too few draws."""
    table = table[np.isfinite(table[["bulk_ess", "r_hat"]]).any(axis=1)]
    if not len(table):
        return None
    silent = [a.label for a in run.comparison.arms if a.name not in set(table["arm"])]
    caption = (
        "One dot per quantity and repeat: coordinates or projections of θ, the log density or what networks predict. "
        f"Left: split R-hat (rank-normalised), dashed: {R_HAT}; dots at the left edge are at or below {1 + LEAST:g}. "
        f"Right: bulk effective sample size of all chains together, dashed: {ESS}."
    )
    if (table["unit"] == CYCLE).any() or table["notice"].str.contains("cycles").any():
        caption += (
            " Under a cyclical step size a chain's draws are no stationary chain; open dots take every cycle of every "
            "chain as a chain of its own."
        )
    if silent:
        caption += f" Too few draws for numbers: {', '.join(silent)}."
    return Drawing(
        name="mixing",
        title="Agreement of chains and effective sample sizes",
        caption=caption,
        alt="Split R-hat and bulk effective sample size of each quantity in every arm, with thresholds",
        draw=_mixing(run, table),
        data=table[[*TEXTS.split(), *NUMBERS.split()]].to_dict("records"),
    )


def _mixing(run: RunData, table: pd.DataFrame) -> Chart:
    arms, cycles = run.comparison.arms, bool((table["unit"] == CYCLE).any())
    left: list[Mark] = [Rule(at=R_HAT - 1, upright=True)]
    right: list[Mark] = [Rule(at=ESS, upright=True)]
    for (line, arm), unit in itertools.product(enumerate(arms), (CHAIN, CYCLE)):
        mine = table[(table["arm"] == arm.name) & (table["unit"] == unit)]
        style = {"color": run.arm_styles[arm].colour, **({**HOLLOW, "alpha": 0.9} if unit == CYCLE else {})}
        left.append(dots(line, np.maximum(mine["r_hat"] - 1, LEAST), style))
        right.append(dots(line, mine["bulk_ess"], style))
    most, ess = np.nanmax(table["r_hat"].fillna(0)) - 1, table["bulk_ess"].dropna()
    ends = {"low": min(0.8 * ess.min(), ESS / 2), "high": max(1.25 * ess.max(), ESS * 2)} if len(ess) else {}
    high, text = max(1.3 * most, 0.05), lambda value: f"{1 + value:g}"
    x = Axis(label="Split R-hat   ← better", scale="log", low=LEAST * 0.8, high=high, text=text)
    sizes = Axis(label="Bulk effective sample size   → better", scale="log", **ends)
    legend = [
        ("chains as they ran", DOT),
        *[("every cycle as a chain", {**DOT, **HOLLOW})] * cycles,
        ("threshold", DASHED),
    ]
    return in_lines([a.label for a in arms], [(x, left), (sizes, right)], legend=legend)


@panels.drawn_from("traces", "arm variable quantity", "repeat chain draw cycle value")
def traces(run: RunData, found: pd.DataFrame) -> Drawing | None:
    """Draw traces and autocorrelation; None before chains are diagnosed, and where no chain has more than a few
    draws."""
    found = found[found["variable"] == THETA]
    long = found.groupby("arm")["draw"].transform("nunique") >= FEWEST
    shown = _shown(found[long], run.comparison.arms)
    if not shown:
        return None
    lags = panels.table(run, "autocorrelation", "arm variable quantity", "repeat lag value")
    lags = found.iloc[:0] if lags is None else lags[lags["variable"] == THETA]
    more = max(len(arm.chains[0]) for arm in run.comparison.arms) > MOST_CHAINS
    most = f", of at most {MOST_CHAINS} chains an arm" if more else ""
    drawn = {(arm.name, q) for arm, quantities in shown for q in quantities}
    return Drawing(
        name="traces",
        title="Traces and autocorrelation",
        caption=(
            f"The first repeat{most}: a line per chain, along its kept draws. Right: autocorrelation of the same "
            "quantities, the mean over the chains, each about its own mean; 0 at once is independence. Draws of a "
            "cyclical schedule start anew in every cycle."
        ),
        alt="Traces of two quantities for each arm's chains, and their autocorrelation against the lag",
        draw=_traces(shown, found, lags),
        data=[r for r in found.to_dict("records") if (r["arm"], r["quantity"]) in drawn],
    )


def _shown(found: pd.DataFrame, arms: Sequence[Arm]) -> list[tuple[Arm, list[str]]]:
    """Return arms with the quantities that are drawn, in the table's order."""
    of = [(arm, list(dict.fromkeys(found[found["arm"] == arm.name]["quantity"]))) for arm in arms]
    return [(arm, names[:QUANTITIES]) for arm, names in of if names]


def _chains(shown: Sequence[tuple[Arm, list[str]]], found: pd.DataFrame) -> list[tuple[str, Style]]:
    """Return the legend's entries of the chains that are drawn."""
    drawn = found[found["arm"].isin([arm.name for arm, _ in shown]) & (found["chain"] < MOST_CHAINS)]
    return [(f"chain {c + 1}", {"color": hue(c), "linewidth": 1.6}) for c in sorted(set(drawn["chain"].astype(int)))]


def _of_chains(rows: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the first chains' rows."""
    for c in sorted(rows["chain"].unique())[:MOST_CHAINS]:
        yield int(c), rows[rows["chain"] == c]


@panels.drawn_from("ranks", "arm variable quantity", "repeat chain bin value")
def ranks(run: RunData, found: pd.DataFrame) -> Drawing | None:
    """Draw histograms of the chains' ranks; None before several chains are diagnosed."""
    found = found[found["variable"] == THETA]
    shown = _shown(found, run.comparison.arms)
    if not shown:
        return None
    drawn = {(arm.name, q) for arm, quantities in shown for q in quantities}
    return Drawing(
        name="ranks",
        title="Ranks of the chains' draws",
        caption=(
            f"The first repeat, at most {MOST_CHAINS} chains an arm: a line per chain, the number of its draws in "
            f"each of {RANK_BINS} bins of their ranks among the draws of all chains, over the number that it has when "
            "all chains draw from one law (dashed: 1). A chain that stays elsewhere is high at one end; one that moves "
            "less is high in the middle."
        ),
        alt="Rank histograms of two quantities for each arm's chains, beside the uniform one",
        draw=_ranks(shown, found),
        data=[r for r in found.to_dict("records") if (r["arm"], r["quantity"]) in drawn],
    )


def _ranks(shown: list[tuple[Arm, list[str]]], found: pd.DataFrame) -> Chart:
    columns, made = max(len(names) for _, names in shown), list[Panel | None]()
    edges = np.repeat(np.linspace(0, 1, RANK_BINS + 1), 2)[1:-1]
    for arm, names in shown:
        for i, name in enumerate(names):
            of = found[(found["arm"] == arm.name) & (found["quantity"] == name)]
            marks: list[Mark] = [Rule(at=1)]
            for c, mine in _of_chains(of):
                heights = np.repeat(mine.sort_values("bin")["value"], 2)  # stairs
                marks.append(Line(x=edges, y=heights, style={"color": hue(c), "linewidth": 1, "alpha": 0.8}))
            y = Axis(label=name, low=0, high=max(2.0, 1.05 * of["value"].max()), ticks=4)
            x = Axis(label="Rank among all draws" if arm is shown[-1][0] else "", low=0, high=1)
            made.append(Panel(marks=marks, x=x, y=y, title="" if i else arm.label))
        made += [None] * (columns - len(names))
    legend = [*_chains(shown, found), ("chains of one law", DASHED)]
    return Chart(panels=made, columns=columns, height=1.55, legend=legend, legend_columns=4)


def _traces(shown: list[tuple[Arm, list[str]]], traces: pd.DataFrame, lags: pd.DataFrame) -> Chart:
    most, made = max(len(names) for _, names in shown), list[Panel | None]()
    for arm, names in shown:
        last = arm is shown[-1][0]
        for i, name in enumerate(names):
            marks: list[Mark] = []
            for c, rows in _of_chains(traces[(traces["arm"] == arm.name) & (traces["quantity"] == name)]):
                mine = rows.sort_values("draw")
                look = {"marker": "o", "markersize": 3, "linewidth": 1.3} if len(mine) <= 60 else {"linewidth": 0.7}
                marks.append(Line(x=mine["draw"], y=mine["value"], style={"color": hue(c), "alpha": 0.8, **look}))
            x, y = Axis(label="Kept draw" if last else "", ticks=4, whole=True), Axis(label=name, ticks=4)
            made.append(Panel(marks=marks, x=x, y=y, title="" if i else arm.label))
        made += [None] * (most - len(names))
        made.append(_correlation(lags[lags["arm"] == arm.name], names, "Lag (draws)" if last else ""))
    of = [(f"of the {word} trace", {"color": MUTED, "linestyle": LINES[i]}) for i, word in enumerate(("left", "right"))]
    legend = [*_chains(shown, traces), *of[:most]]
    widths = [1.5] * most + [1.0]
    return Chart(panels=made, columns=most + 1, height=1.55, widths=widths, legend=legend, legend_columns=4)


def _correlation(rows: pd.DataFrame, names: Sequence[str], label: str) -> Panel:
    marks: list[Mark] = [Rule(at=0, style={"color": MUTED, "linewidth": 0.7})]
    last = 1.0
    for i, name in enumerate(names):
        mine = rows[rows["quantity"] == name].sort_values("lag")
        if len(mine):
            style = {"color": INK, "linestyle": LINES[i % len(LINES)], "linewidth": 1.2}
            marks.append(Line(x=mine["lag"], y=mine["value"], style=style))
            last = max(last, _settled(mine["lag"].to_numpy(), mine["value"].to_numpy()))
    ticks = {-0.5: "−0.5", 0.0: "0", 0.5: "0.5", 1.0: "1"}
    y = Axis(label="Autocorrelation", low=-0.55, high=1.05, ticks=ticks)
    return Panel(marks=marks, x=Axis(label=label, low=0, high=last, ticks=3, whole=True), y=y)


def _settled(lags: Any, values: Any) -> float:
    """Return the end of the axis: three times the first lag of little autocorrelation, or the last lag."""
    below = np.flatnonzero(np.abs(values) < 0.1)
    return float(min(lags[-1], max(10, 3 * lags[below[0]]))) if len(below) else float(lags[-1])


MEASURE = Measure(
    name="diagnostics",
    section="Diagnostics",
    about="effective sample sizes, split R-hat, autocorrelation, traces, ranks, mode masses, temperatures",
    tables=tables,
    figures={
        "mixing": mixing,
        "traces": traces,
        "ranks": ranks,
        "modes": modes.figure,
        "temperatures": temperatures.figure,
    },
)
