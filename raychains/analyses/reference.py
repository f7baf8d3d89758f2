"""How far a density's draws are from what is known of it: moments, W₂ between fitted Gaussians, Stein discrepancy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from raychains.analyses import blocks
from raychains.analyses.base import Analysis, Context, Tables
from raychains.analyses.followed import finished
from raychains.analyses.target import Target, target_of
from raychains.evaluation import diagnostics, discrepancy, stein
from raychains.evaluation.base import Array
from raychains.spec import ChainSpec
from raychains.tasks import Task

REPLICATES = 199
"""Of the bootstrap: the smallest p-value is 1/200."""
FEWEST = 20
"""Draws that the Stein discrepancy's test needs, after thinning."""
LOOKED_AT = 10_000
"""Draws of a chain of which the Stein discrepancy thins, evenly spread."""
COORDINATES = 20
"""Whose effective sample size says how far, evenly spread."""
BLIND = "blind to mode weights"
Row = dict[str, Any]


def tables(context: Context) -> Tables:
    """``reference``: one row per arm and repeat, θ of all of its chains together.

    Columns: arm, group, repeat, chains, draws; temperature (of the reference: the chain's, 1 for an optimiser), source (of
    the moments); mean_error (largest, in the reference's sd), sd_ratio (median over coordinates of the draws' sd over the
    reference's), sd_ratio_smallest, sd_ratio_largest, covariance_error (relative, Frobenius), gaussian_w2 (between the
    *fitted Gaussians*, in the unit of θ); ksd, ksd_squared (unbiased), ksd_p (wild bootstrap; blind to mode weights),
    ksd_draws (after thinning, at most 2,000), ksd_unit (length of the kernel: the
    reference's sd, but 1 for mixtures and without a reference); notice (why a number lacks, which is nan).
    """
    rows: list[Row] = []
    seed = int(context.settings.get("seed", 0))
    for done, (a, g) in enumerate(context.groups):
        context.progress("reference", done, len(context.groups))
        arm = context.comparison.arms[a]
        chains = arm.chains[g]
        about = {"arm": arm.name, "group": g}
        for lane, row in enumerate(compared(context, chains, seed)):
            rows.append({**about, "repeat": g * chains[0].lanes + lane, **row})
    context.progress("reference", len(context.groups), len(context.groups))
    return {"reference": rows}


def compared(context: Context, chains: Sequence[ChainSpec], seed: int) -> Iterator[Row]:
    """One row per lane of a group of chains."""
    root = context.store.root
    drawn = [blocks.read(root, spec).values for _, spec in finished(root, chains)]
    target = target_of(context.task, chains[0])
    least = min(len(d) for d in drawn)
    values = np.stack([d[len(d) - least :] for d in drawn])
    for lane in range(values.shape[2]):
        yield distances(values[:, :, lane].astype(np.float64), target, seed=seed)


def distances(theta: Array, target: Target, *, seed: int = 0) -> Row:
    """The numbers of one row, from draws [chains, draws, dim]."""
    chains, draws, dim = theta.shape
    exact = target.exact
    flat = theta.reshape(-1, dim)
    nan = float("nan")
    row: Row = {"chains": chains, "draws": chains * draws, "temperature": target.asked, "source": ""}
    names = ("mean_error", "sd_ratio", "sd_ratio_smallest", "sd_ratio_largest", "covariance_error", "gaussian_w2")
    row |= dict.fromkeys(names, nan)
    notices = []
    if exact is None:
        notices.append("no exact moments of this target")
    elif len(flat) < 2:
        notices.append("moments need 2 draws")
    else:
        fitted = discrepancy.fit(flat)
        found = discrepancy.moment_distances(fitted, exact.moments)
        ratios = fitted.sd / exact.moments.sd
        numbers = (found.mean_error, found.sd_ratio, ratios.min(), ratios.max(), found.covariance_error, found.w2)
        row |= {"source": exact.source, **dict(zip(names, map(float, numbers), strict=True))}
    unit = exact.moments.sd if exact is not None and exact.modes is None else np.ones(dim)
    test, why = stein_row(theta, target, unit, seed)
    return {**row, **test, "notice": "; ".join([*notices, *([why] if why else [])])}


def stein_row(theta: Array, target: Target, unit: Array, seed: int) -> tuple[Row, str]:
    """The Stein discrepancy's columns for draws [chains, draws, dim], and why they lack (nan).

    Dependence reads as a misfit, so each chain is thinned to half of its own effective sample size, the worst coordinate's
    of the *score*: where the score forgets, so does the Stein kernel, also while the chain stays in one mode. (With θ's
    own, chains that seldom change modes would have no test; thinned to the whole effective sample size an AR(1) of ρ .97
    was rejected in 10 % of 120 repetitions at the level of 5 %, at half of it in 7 %.)
    """
    draws = theta.shape[1]
    nothing: Row = {"ksd": float("nan"), "ksd_squared": float("nan"), "ksd_p": float("nan"), "ksd_draws": 0}
    nothing["ksd_unit"] = "sd" if target.exact is not None and target.exact.modes is None else "1"
    if draws < diagnostics.FEWEST_FOR_ESS:
        return nothing, f"{draws} draw{'s' * (draws != 1)} a chain: no Stein discrepancy"
    points, scores = [], []
    for chain in (spread(chain, LOOKED_AT) for chain in theta):
        found = target.potential(chain)
        if found is None:
            return nothing, "the task has no potential()"
        score = -found[1] / target.asked
        kept = min(stein.MOST // len(theta), int(independent(score) / 2))
        points.append(spread(chain, kept))
        scores.append(spread(score, kept))
    n = sum(len(p) for p in points)
    if n < FEWEST:
        return nothing, f"too dependent for the Stein discrepancy: {n} independent draws, {FEWEST} are needed"
    with one_thread():
        measured = stein.stein_discrepancy(
            np.concatenate(points), np.concatenate(scores), scale=unit, replicates=REPLICATES, seed=seed
        )
    return {
        **nothing,
        "ksd": measured.ksd,
        "ksd_squared": measured.unbiased,
        "ksd_p": measured.p_value,
        "ksd_draws": measured.draws,
    }, ""


def spread(values: Array, most: int) -> Array:
    """At most ``most`` entries along axis 0, each from the middle of its share: a chain's first draw stands for no more
    than the others."""
    if len(values) <= most:
        return values
    return values[((np.arange(most) + 0.5) * len(values) / max(most, 1)).astype(int)]


def independent(series: Array) -> float:
    """Effective sample size of ``series`` [draws, dim], the worst coordinate's; 0 where one never moves."""
    at = np.unique(np.linspace(0, series.shape[1] - 1, COORDINATES).round().astype(int))
    looked = series[:, at]
    if not np.isfinite(looked).all() or (looked.min(0) == looked.max(0)).any():
        return 0.0
    return float(diagnostics.ess(looked[None], "mean").min())


def one_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: the products are small, and chains may run on the other cores."""
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn
    except ImportError:
        return nullcontext()
    limited: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limited


def why_not(context: Context) -> str | None:
    """None where the task's target is known in some way."""
    task = context.task
    if not task.low_dimensional:
        return f"task {context.comparison.task} is a network: its posterior is not known exactly"
    if type(task).reference is Task.reference and type(task).potential is Task.potential:
        return f"task {context.comparison.task} says nothing of its target: it has neither reference() nor potential()"
    return None


ANALYSIS = Analysis(
    name="reference",
    about="distance of a density's draws from the exact target: moments, Gaussian W₂, kernel Stein discrepancy "
    f"({BLIND})",
    tables=tables,
    why_not=why_not,
)
