"""Distance of a density's draws from the exact target: moments, W₂ between fitted Gaussians, kernel Stein
discrepancy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raychains.evaluation import mcmc_diagnostics, moments
from raychains.evaluation.evaluation import Array, finite
from raychains.inference.run_data import RunData
from raychains.measures import draws, panels
from raychains.measures.draws import Target, target_of
from raychains.measures.measure import Context, Measure, Row, Tables
from raychains.plotting.charts import DASHED, DOT, Axis, Chart, Mark, Rule, dots, in_lines, span
from raychains.plotting.style import Drawing
from raychains.tasks import Task

FEWEST = 20
"""Draws that the Stein discrepancy needs, after thinning."""
LOOKED_AT = 10_000
"""Draws of a chain from which the Stein discrepancy's are thinned, evenly spread."""
COORDINATES = 20
"""Coordinates of the score whose effective sample size decides the thinning, evenly spread."""
BLIND = "blind to mode weights"
MOMENTS = ["mean_error", "sd_ratio", "sd_ratio_smallest", "sd_ratio_largest", "covariance_error", "gaussian_w2"]
MOST = 2000
"""Draws that are compared."""
ROWS = 128
"""Rows of the Stein kernel's matrix that are held at a time."""
BETA, C = -0.5, 1.0
"""β and c of the inverse multiquadric kernel (c² + ‖x−y‖²)^β (Gorham & Mackey 2017)."""


def tables(context: Context) -> Tables:
    """``reference``: one row per arm and repeat, θ of all of its chains together.

    Columns: arm, group, repeat, chains, draws; temperature (of the reference: the chain's, 1 for an optimiser), source
    (of the moments); mean_error (largest, in the reference's sd), sd_ratio (median over coordinates of the draws' sd
    over the reference's), sd_ratio_smallest, sd_ratio_largest, covariance_error (relative, Frobenius), gaussian_w2
    (between the *fitted Gaussians*, in the unit of θ); ksd, ksd_squared (unbiased), ksd_draws (after thinning, at most
    2,000), ksd_unit (length of the kernel: the reference's sd, but 1 for mixtures and without a reference); notice (why
    a number lacks, which is nan).
    """
    rows: list[Row] = []
    for a, g in context.counted("reference", context.groups):
        chains = context.comparison.arms[a].chains[g]
        values, target = draws.stacked(context.store.root, chains), target_of(context.task, chains[0])
        for lane in range(values.shape[2]):
            about = {"arm": context.arm_name(a), "group": g, "repeat": g * chains[0].lanes + lane}
            rows.append({**about, **distances(values[:, :, lane].astype(np.float64), target)})
    return {"reference": rows}


def distances(theta: Array, target: Target) -> Row:
    """Return the numbers of one row, from draws [chains, draws, dim]."""
    chains, count, dim = theta.shape
    exact = target.exact
    flat = theta.reshape(-1, dim)
    row: Row = {"chains": chains, "draws": chains * count, "temperature": target.reference_temperature, "source": ""}
    row |= dict.fromkeys(MOMENTS, float("nan"))
    notices = []
    if exact is None:
        notices.append("no exact moments of this target")
    elif len(flat) < 2:
        notices.append("moments need 2 draws")
    else:
        row |= {"source": exact.source, **moments.moment_distances(moments.fit(flat), exact.moments)}
    unit = exact.moments.sd if exact is not None and exact.modes is None else np.ones(dim)
    test, why = stein_row(theta, target, unit)
    return {**row, **test, "notice": "; ".join([*notices, *([why] if why else [])])}


def stein_row(theta: Array, target: Target, unit: Array) -> tuple[Row, str]:
    """Return the Stein discrepancy's columns for draws [chains, draws, dim], and why they lack (nan).

    Dependence reads as a misfit, so each chain is thinned to half of its own effective sample size, the worst
    coordinate's of the *score*: where the score forgets, so does the Stein kernel, also while the chain stays in one
    mode.
    """
    count = theta.shape[1]
    nothing: Row = {"ksd": float("nan"), "ksd_squared": float("nan"), "ksd_draws": 0}
    nothing["ksd_unit"] = "sd" if target.exact is not None and target.exact.modes is None else "1"
    if count < mcmc_diagnostics.FEWEST_FOR_ESS:
        return nothing, f"{count} draw{'s' * (count != 1)} a chain: no Stein discrepancy"
    points, scores = [], []
    for chain in (spread(chain, LOOKED_AT) for chain in theta):
        found = target.potential(chain)
        if found is None:
            return nothing, "the task has no potential()"
        score = -found[1] / target.reference_temperature
        kept = min(MOST // len(theta), int(independent(score) / 2))
        points.append(spread(chain, kept))
        scores.append(spread(score, kept))
    n = sum(len(p) for p in points)
    if n < FEWEST:
        return nothing, f"too dependent for the Stein discrepancy: {n} independent draws, {FEWEST} are needed"
    return {**nothing, **stein_discrepancy(np.concatenate(points), np.concatenate(scores), unit)}, ""


def spread(values: Array, most: int) -> Array:
    """Return at most ``most`` entries along axis 0, each from the middle of its share: a chain's first draw stands for
    no more than the others."""
    if len(values) <= most:
        return values
    return values[((np.arange(most) + 0.5) * len(values) / max(most, 1)).astype(int)]


def independent(series: Array) -> float:
    """Return the effective sample size of ``series`` [draws, dim], the worst coordinate's; 0 where one never moves."""
    some = series[:, draws.evenly(series.shape[1], COORDINATES)]
    if not np.isfinite(some).all() or (some.min(0) == some.max(0)).any():
        return 0.0
    return float(mcmc_diagnostics.ess(some[None], "mean").min())


def why_not(context: Context) -> str | None:
    """Return the reason where nothing is known of the task's target."""
    task = context.task
    if not task.low_dimensional:
        return f"task {context.comparison.task} is a network: its posterior is not known exactly"
    if type(task).reference is Task.reference and type(task).potential is Task.potential:
        return (
            f"task {context.comparison.task} does not describe its target: it has neither reference() nor potential()"
        )
    return None


def stein_discrepancy(draws: Array, score: Array, scale: Array) -> dict[str, float]:
    """Return the KSD of ``draws`` to the density p whose score is ∇ln p.

    With the kernel k(x, y) = (1 + ‖x−y‖²)^(−½) (inverse multiquadric, β −½, c 1) and s = ∇ln p,
    u(x, y) = s(x)·s(y) k + s(x)·∇_y k + s(y)·∇_x k + tr ∇_x∇_y k has mean 0 under p in either argument; KSD² is the
    mean of u over pairs of draws. This kernel's KSD → 0 only if the draws converge to p (unlike a Gaussian kernel's
    from three dimensions on).

    **Blind to mode weights**: between modes that lie apart ln p's gradient says nothing of their masses, so draws of
    one mode alone, or of two in the wrong shares, pass. Print mode masses beside it.

    The kernel's length is 1 in the unit of ``scale``: pass the target's standard deviations (or those of a trusted
    run) where they are far from 1. Draws must be all but independent: dependence among them reads as a misfit. Memory:
    128 rows of the matrix of pairs, not all of it. Cost: n²·dim.

    Args:
        draws: θ, [draws, dim], one chain's in their order.
        score: ∇ln p at each, [draws, dim]: −∇U/T of the sampled law, over the whole data.
        scale: length unit of the kernel, [dim].

    Returns:
        ksd: √ of the mean of u over all pairs of draws, each with itself too: 0 only in the limit n → ∞.
        ksd_squared: its square without the pairs of a draw with itself: mean 0 under the target, and then sometimes
            negative.
        ksd_draws: the number of draws.

    Raises:
        UserError: values that are not finite.

    Source: Gorham & Mackey 2017; Liu, Lee & Jordan 2016.
    """
    x, s = finite(draws, "draws") / scale, finite(score, "score") * scale
    n, total, diagonal = len(x), 0.0, 0.0
    for rows, u in stein_rows(x, s):
        total += float(u.sum())
        diagonal += float(u[np.arange(len(u)), rows].sum())
    ksd = float(np.sqrt(max(total, 0.0)) / n)
    return {"ksd": ksd, "ksd_squared": (total - diagonal) / (n * (n - 1)), "ksd_draws": n}


def stein_rows(x: Array, s: Array) -> Iterator[tuple[Array, Array]]:
    """Yield rows of the matrix u(x_i, x_j): their numbers [rows] and values [rows, n], ROWS at a time.

    Args:
        x: points, [n, dim].
        s: scores there, [n, dim].
    """
    dim = x.shape[1]
    x = x - x.mean(0)  # only differences matter: less to cancel
    squares, own = (x**2).sum(1), (s * x).sum(1)
    for start in range(0, len(x), ROWS):
        rows = np.arange(start, min(start + ROWS, len(x)))
        a, b = x[rows], s[rows]
        distance = np.maximum(squares[rows, None] + squares - 2 * a @ x.T, 0.0)
        distance[np.arange(len(rows)), rows] = 0.0
        base = C**2 + distance
        kernel = base**BETA
        slope = 2 * BETA * kernel / base  # ∇_x k = slope·(x − y) = −∇_y k
        # s(y)·(x − y) − s(x)·(x − y)
        across = (a @ s.T - own) - (own[rows, None] - b @ x.T)
        curl = -dim * slope - 2 * (BETA - 1) * slope * distance / base
        yield rows, (b @ s.T) * kernel + slope * across + curl


# The figure


@dataclass(frozen=True)
class Panel:
    """One measure."""

    column: str
    label: str
    log: bool = False
    right: float | None = None
    """The right value, drawn as a dashed line."""


PANELS = (
    Panel("mean_error", "Largest error of the mean (reference sd)   ← better", log=True),
    Panel("sd_ratio", "Draws' sd over the reference's (median)", right=1.0),
    Panel("gaussian_w2", "W₂ between fitted Gaussians   ← better", log=True),
    Panel("ksd", "Kernel Stein discrepancy (blind to mode weights)   ← better", log=True),
)


@panels.drawn_from(
    "reference",
    "arm",
    "repeat chains draws temperature mean_error sd_ratio sd_ratio_smallest sd_ratio_largest gaussian_w2 ksd ksd_draws",
)
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw the distances; None of a task without a reference, and before it was measured."""
    shown = [p for p in PANELS if np.isfinite(table[p.column]).any()]
    if not shown:
        return None
    return Drawing(
        name="reference",
        title="Distance from the exact target",
        caption=(
            "A dot per repeat, all chains of the arm together, burn-in included where it was kept. Means and standard "
            "deviations are of all kept draws. W₂ is the closed form between the Gaussians fitted to draws and "
            "target: it sees nothing but mean and covariance. Kernel Stein discrepancy: inverse multiquadric kernel, "
            "β −½, c 1, at most 2,000 thinned draws; large where draws do not follow the target's gradient, which "
            "knows nothing of how mass divides between modes that lie apart. Bars: smallest and largest ratio over "
            "coordinates. Dashed: 1."
        ),
        alt="Errors of mean and standard deviation, W2 between fitted Gaussians and Stein discrepancy for every arm "
        "and repeat",
        draw=_chart(run, table, shown),
        data=table.to_dict("records"),
    )


def _chart(run: RunData, table: pd.DataFrame, shown: list[Panel]) -> Chart:
    arms, made = run.comparison.arms, []
    for panel in shown:
        marks: list[Mark] = [Rule(at=panel.right, upright=True)] if panel.right is not None else []
        for line, arm in enumerate(arms):
            mine = table[table["arm"] == arm.name].sort_values("repeat")
            colour = {"color": run.arm_styles[arm].colour}
            marks.append(dots(line, mine[panel.column], colour))
            if panel.column == "sd_ratio" and len(mine):
                marks.append(span(line, mine["sd_ratio_smallest"].min(), mine["sd_ratio_largest"].max(), colour))
        made.append((Axis(label=panel.label, scale="log" if panel.log else "linear", ticks=6), marks))
    legend = [("a repeat", DOT), ("the right value", DASHED)]
    return in_lines([arm.label for arm in arms], made, legend=legend)


MEASURE = Measure(
    name="reference",
    section="Diagnostics",
    about="distance of a density's draws from the exact target: moments, Gaussian W₂, kernel Stein discrepancy "
    f"({BLIND})",
    tables=tables,
    why_not=why_not,
    figures={"reference": figure},
)
