"""Hamiltonian Monte Carlo with Metropolis' correction: exact draws of a smooth density, to measure others against."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.core.errors import RaychainsError
from raychains.evaluation.evaluation import Array
from raychains.evaluation.mcmc_diagnostics import ess, r_hat
from raychains.evaluation.moments import Reference

Function = Callable[[Array], Array]
"""A function of points [chains, dim]: U = −log density + const, [chains], or its gradient, [chains, dim]."""

SPREAD = 2.0
"""Chains start this many times as far from the centre as the metric's Gaussian lies."""
ACCEPTANCE = 0.9
"""Mean probability of acceptance that the step size is tuned for."""
QUARTER = math.pi / 2
"""Mean length of a trajectory: on a standard Gaussian a quarter turn forgets where it began."""
MOST_LEAPS = 1_000
"""Leapfrog steps of one trajectory, for as long as the step size is badly tuned."""
MOST_DRAWS = 64_000
"""Per chain: a density that needs more is not for this sampler."""


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Draws of `sample`."""

    values: Array
    """[chains, draws, dim]"""
    acceptance: float
    """Mean probability of acceptance of the kept draws."""
    step: float
    """Length of a leapfrog step in z."""


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Chains amid their warm-up, with all that decides their further draws."""

    draws: int
    """Made of each chain so far."""
    z: Array
    """[chains, dim]"""
    energy: Array
    """U at those points, [chains]."""
    slope: Array
    """Its gradient in z, [chains, dim]."""
    tuning: dict[str, Any]
    """The numbers by which the step size is found; as JSON, like ``generator``."""
    generator: dict[str, Any]


def reference(
    potential: Function,
    gradient: Function,
    *,
    centre: Any,
    covariance: Any,
    seed: int = 0,
    chains: int = 8,
    draws: int = 2_000,
    least_ess: float = 2_000.0,
    most_r_hat: float = 1.01,
) -> Reference:
    """Return the density's moments from `sample`, with twice the draws until every coordinate's diagnostics are good
    enough.

    Args:
        potential: as for `sample`, like ``gradient``, ``centre``, ``covariance``, ``seed`` and ``chains``.
        draws: per chain, at first.
        least_ess: bulk effective sample size that each coordinate must have.
        most_r_hat: what each coordinate's split R-hat must be below.

    Raises:
        RaychainsError: not even `MOST_DRAWS` draws a chain were enough.
    """
    while True:
        found = sample(potential, gradient, centre=centre, covariance=covariance, chains=chains, draws=draws, seed=seed)
        sizes, agreement = ess(found.values), r_hat(found.values)
        if sizes.min() >= least_ess and agreement.max() < most_r_hat:
            break
        if 2 * draws > MOST_DRAWS:
            raise RaychainsError(
                f"the reference sampler did not converge: {chains} chains of {draws} draws have an effective sample "
                f"size of {sizes.min():.0f} and an R-hat of {agreement.max():.3f}"
            )
        draws *= 2
    values = found.values.reshape(-1, found.values.shape[-1])
    return Reference(
        mean=values.mean(0),
        covariance=np.cov(values.T, bias=True).reshape(values.shape[1], values.shape[1]),
        ess=sizes,
        r_hat=agreement,
        chains=chains,
        draws=draws,
    )


def sample(
    potential: Function,
    gradient: Function,
    *,
    centre: Any,
    covariance: Any,
    chains: int = 8,
    draws: int = 2_000,
    warmup: int = 500,
    seed: int = 0,
    spread: float = SPREAD,
    goes_on: Draws | WarmUp | None = None,
    keep: Callable[[WarmUp], None] = lambda state: None,
    every: int = 100,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Draws:
    """Draw from exp(−U) by several chains side by side; equal arguments give equal draws on one machine.

    The metric is constant: trajectories run in z with θ = centre + Lz, LLᵀ = ``covariance``. Their length is drawn anew
    for every draw, uniform within half of a quarter turn, so that no coordinate can be in step with it. The step size
    is tuned by dual averaging during the warm-up and fixed from then on. A point where U is not finite is never taken.

    Args:
        potential: U, asked for at the ends of trajectories.
        gradient: ∇U, asked for at every leapfrog step.
        centre: [dim], near the density's centre, such as its mode.
        covariance: [dim, dim], or [dim] of a diagonal one, near the density's covariance, such as the inverse Hessian
            at the mode. Both decide the efficiency alone, never the law.
        chains: how many; they start at independent draws of N(centre, ``spread``²·covariance).
        draws: kept per chain.
        warmup: draws per chain before, left out.
        seed: of starts, momenta, lengths and acceptance.
        spread: of the starts.
        goes_on: draws of an earlier call, at whose last ones the chains go on, with their step size and no warm-up; or
            a state that ``keep`` had: the draws are then those of the call that it is of, to the last bit.
        keep: called with the chains' state after every so many draws of the warm-up.
        every: how many.
        tell: called after each draw with (done, total).

    Source: Neal 2011, https://arxiv.org/abs/1206.1901; the tuning is Hoffman & Gelman 2014, §3.2.
    """
    middle, metric = np.asarray(centre, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    diagonal = metric.ndim == 1
    root = np.sqrt(metric) if diagonal else np.linalg.cholesky(metric)

    def point(z: Array) -> Array:
        return middle + (z * root if diagonal else z @ root.T)

    def energy_at(z: Array) -> Array:
        return potential(point(z))

    def slope_at(z: Array) -> Array:
        slope = gradient(point(z))
        return slope * root if diagonal else slope @ root

    rng, begin = np.random.default_rng(seed), 0
    tuning = _DualAveraging(step=goes_on.step if isinstance(goes_on, Draws) else len(middle) ** -0.25)
    if isinstance(goes_on, WarmUp):
        z, energy, slope, begin, chains = goes_on.z, goes_on.energy, goes_on.slope, goes_on.draws, len(goes_on.z)
        vars(tuning).update(goes_on.tuning)
        rng.bit_generator.state = goes_on.generator
    else:
        if goes_on is None:
            z = spread * rng.standard_normal((chains, len(middle)))
        else:
            off = goes_on.values[:, -1] - middle
            z, warmup, chains = (off / root if diagonal else np.linalg.solve(root, off.T).T), 0, len(off)
        energy, slope = energy_at(z), slope_at(z)
    kept, accepted = np.empty((draws, chains, len(middle))), 0.0
    for k in range(begin, warmup + draws):
        step = tuning.step if k < warmup else tuning.final
        length = QUARTER * rng.uniform(0.5, 1.5)
        leaps = min(MOST_LEAPS, max(1, round(length / step)))
        momentum = rng.standard_normal((chains, len(middle)))
        with np.errstate(invalid="ignore", over="ignore"):  # what runs away is rejected
            there, slope_there, end = _leapfrog(slope_at, z, slope, momentum, step, leaps)
            energy_there = energy_at(there)
            lost = energy_there - energy + 0.5 * ((end**2).sum(1) - (momentum**2).sum(1))
        # nan: both or a momentum ran away. A start of infinite energy is left for any point that has less.
        probability = np.where(np.isnan(lost), 0.0, np.exp(-np.maximum(lost, 0.0)))
        take = rng.random(chains) < probability
        z = np.where(take[:, None], there, z)
        slope = np.where(take[:, None], slope_there, slope)
        energy = np.where(take, energy_there, energy)
        if k < warmup:
            tuning.learn(float(probability.mean()))
            if (k + 1) % every == 0:
                own, generator = dict(vars(tuning)), dict(rng.bit_generator.state)
                keep(WarmUp(draws=k + 1, z=z, energy=energy, slope=slope, tuning=own, generator=generator))
        else:
            kept[k - warmup] = z
            accepted += float(probability.mean()) / draws
        tell(k + 1, warmup + draws)
    return Draws(values=point(kept.swapaxes(0, 1)), acceptance=accepted, step=tuning.final)


def _leapfrog(
    slope_at: Function, z: Array, slope: Array, momentum: Array, step: float, leaps: int
) -> tuple[Array, Array, Array]:
    """Return point, gradient and momentum after ``leaps`` steps."""
    momentum = momentum - step / 2 * slope
    for leap in range(leaps):
        z = z + step * momentum
        slope = slope_at(z)
        momentum = momentum - (step if leap < leaps - 1 else step / 2) * slope
    return z, slope, momentum


class _DualAveraging:
    """The step size whose mean probability of acceptance is `ACCEPTANCE` (Hoffman & Gelman 2014, Algorithm 5)."""

    GAMMA, T0, KAPPA = 0.05, 10.0, 0.75

    def __init__(self, step: float) -> None:
        self.step = step
        """To be tried next."""
        self._anchor, self._excess, self._average, self._count = math.log(10 * step), 0.0, math.log(step), 0

    @property
    def final(self) -> float:
        """The average of all tried, later ones counting more."""
        return math.exp(self._average)

    def learn(self, probability: float) -> None:
        """Take in the mean probability of acceptance that `step` had."""
        self._count += 1
        share = 1 / (self._count + self.T0)
        self._excess = (1 - share) * self._excess + share * (ACCEPTANCE - probability)
        tried = self._anchor - math.sqrt(self._count) / self.GAMMA * self._excess
        weight = self._count**-self.KAPPA
        self._average = weight * tried + (1 - weight) * self._average
        self.step = math.exp(tried)
