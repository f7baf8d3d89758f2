"""W₂ between draws and a Gaussian, with intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian, fit, w2
from raychains.experiments.theory.slopes import Estimate

Squared = Callable[[Array, Gaussian], float]


def by_moments(draws: Array, reference: Gaussian) -> float:
    """W₂² between the Gaussian fitted to ``draws`` [draws, dim] and the reference."""
    return w2(fit(draws), reference) ** 2


def by_quantiles(draws: Array, reference: Gaussian) -> float:
    """Σ over the reference's principal axes of the one-dimensional W₂² of draws and reference, a lower bound on W₂².

    In one dimension the optimal map is monotone: W₂² = ∫(F⁻¹(u) − G⁻¹(u))² du. With the draws sorted, the Gaussian's
    quantile function averaged exactly over each interval of length 1/n (for the cross term) and its second moment
    exact, it has no discretisation error. No shape is assumed of the draws. It is the whole of W₂² where draws and
    reference are independent along these axes.
    """
    eigenvalues, axes = np.linalg.eigh(reference.covariance)
    require(float(eigenvalues[0]) > 0, "reference", f"eigenvalue {eigenvalues[0]}", "vary in every direction")
    along = np.sort((draws - reference.mean) @ axes, axis=0)
    edges = stats.norm.pdf(stats.norm.ppf(np.linspace(0, 1, len(draws) + 1)))
    quantiles = -np.diff(edges)[:, None] * np.sqrt(
        eigenvalues
    )  # ∫ of z over each interval is minus the density's change
    return float((along**2).mean(0).sum() + eigenvalues.sum() - 2 * (along * quantiles).sum())


def estimate(squared: Squared, draws: Array, reference: Gaussian, *, groups: int = 20, level: float = 0.95) -> Estimate:
    """W₂² from draws [draws, dim] with the jackknife's correction of its bias and its t-interval.

    A distance of noisy moments is biased upward by O(1/draws): the delete-one-group jackknife removes that term.

    Raises:
        UserError: groups that do not divide the draws.
    """
    n = len(draws)
    require(groups >= 2 and n % groups == 0, "groups", groups, f"be at least 2 and divide the number of draws ({n})")
    size = n // groups
    without = [squared(np.delete(draws, slice(g * size, (g + 1) * size), axis=0), reference) for g in range(groups)]
    whole, leaves = squared(draws, reference), np.array(without)
    value = groups * whole - (groups - 1) * float(leaves.mean())
    error = float(np.sqrt((groups - 1) / groups * ((leaves - leaves.mean()) ** 2).sum()))
    reach = float(stats.t.ppf((1 + level) / 2, groups - 1)) * error
    return Estimate(value, value - reach, value + reach)


def off(squared: Squared, draws: Array, reference: Gaussian, law: Gaussian, *, replicates: int, seed: int) -> float:
    """How far W₂ of ``draws`` lies from what as many independent draws of ``law`` give, in standard errors.

    Where the law is close to the reference an estimate of W₂² is a square of noise, and the jackknife's own error is as
    noisy as the estimate. So the mean and the standard deviation of the very statistic, W₂ of so many draws, are taken
    from ``replicates`` fresh sets: the result has nearly the t distribution with ``replicates`` − 1 degrees of freedom.
    """
    generator = np.random.default_rng(seed)
    values, axes = np.linalg.eigh(law.covariance)
    spread = np.sqrt(np.maximum(values, 0))[:, None] * axes.T
    made = (law.mean + generator.standard_normal(draws.shape) @ spread for _ in range(replicates))
    found = np.array([root(squared(fresh, reference)) for fresh in made])
    return float((root(squared(draws, reference)) - found.mean()) / (found.std(ddof=1) * np.sqrt(1 + 1 / replicates)))


def root(value: float) -> float:
    """√ of an estimate of W₂², whose noise may bring it below 0."""
    return float(np.sqrt(max(value, 0.0)))
