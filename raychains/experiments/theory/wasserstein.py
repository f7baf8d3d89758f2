"""Theorem 2 of cSG-MCMC and its convex bound: W₂(μ_K, ν_∞) on a Gaussian, the bounds above it, and lanes.

μ_K is the law of the state after K steps, K a multiple of the cycles, with noise throughout as in the paper's analysis.
On U = ½θᵀΛθ with Gaussian gradient noise it is a Gaussian whose mean and covariance `recursion.laws` gives, so that W₂
is known to rounding. Three step sizes are checked: the cyclical one of Eq. 1, h₀/k of appendix E, and h₀k^(−.55), the form
of the paper's experiments; to the last two the same general bound applies with their own Σα and Σα².

The bounds are the general one with its constants computed (`bounds.General`), as derived and as printed, and the convex
one (`bounds.Convex`), as printed and iterated step by step; `lanes` are runs of the public SGLD, whose W₂ is to agree
with the exact one. So that a check can fail there is a control whose step size lies outside the assumptions and past
stability: its W₂ grows exponentially and leaves the bound, which grows like a power of K. The bounds are far from sharp
(on the default plan the general one is 70 to 10⁸ times W₂, and grows with K where W₂ falls; Eq. 38 iterated is 1.3 to 300
times W₂). The bound's special case with β > 1 is not claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian, w2
from raychains.experiments.theory import recursion
from raychains.experiments.theory.bounds import Convex, General
from raychains.experiments.theory.drive import drive, seeds
from raychains.samplers import SGLD
from raychains.schedules import Cyclical, Decreasing
from raychains.schedules.base import Schedule

CYCLICAL, HARMONIC, POLYNOMIAL, CONTROL = "cyclical", "harmonic", "polynomial", "outside"
SCHEDULES = (CYCLICAL, HARMONIC, POLYNOMIAL)
BOUNDS = ("bound", "printed", "convex", "iterated")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How theorem 2 is checked; all that the numbers depend on."""

    eigenvalues: tuple[float, ...] = (2.0, 2.5, 3.0)
    """Of Λ, which is diagonal; none below 2 (see `bounds.General`)."""
    start: float = 1.0
    """Every coordinate of the mean of θ₀."""
    start_variance: float = 0.2
    """Of every coordinate of θ₀, below 1/2."""
    gradient_sd: float = 1.0
    """Of the gradient's noise in every coordinate."""
    noise: float = 0.5
    """δ of assumption 3; B follows from it and ``gradient_sd``."""
    lr: float = 0.05
    """α₀ of the cyclical step, h₀ of the decreasing ones: at most min(1, m/(4L²))."""
    cycles: int = 4
    """M."""
    steps: tuple[int, ...] = (20, 60, 200, 600, 2000)
    """K of the lanes."""
    far_steps: tuple[int, ...] = (6000, 20_000)
    """K at which only the exact law and the bounds are taken."""
    outside_lr: float = 2.0
    """α₀ of the control."""
    outside_steps: tuple[int, ...] = (8, 16, 32, 64)
    """K of the control."""
    lanes: int = 20_000
    groups: int = 20
    """Of lanes, for the intervals."""
    seed: int = 0

    def __post_init__(self) -> None:
        ok = self.groups >= 2 and self.lanes % self.groups == 0
        require(ok, "groups", self.groups, f"be at least 2 and divide the number of lanes ({self.lanes})")
        require(0 < self.start_variance < 0.5, "start_variance", self.start_variance, "lie in (0, 1/2): κ₀ is finite")
        limit = self.general.largest_lr
        require(0 < self.lr <= limit, "lr", self.lr, f"be at most min(1, m/(4L²)) = {limit:g}")

    @property
    def precision(self) -> Array:
        """Λ."""
        return np.diag(self.eigenvalues)

    @property
    def first(self) -> Gaussian:
        """The law of θ₀."""
        dim = len(self.eigenvalues)
        return Gaussian(mean=np.full(dim, self.start), covariance=self.start_variance * np.eye(dim))

    @property
    def general(self) -> General:
        """The constants of theorem 2 for this target.

        ⟨w, Λw⟩ ≥ m‖w‖² with b = 0; ∇U(0) = 0, so any B ≥ 0 will do: the one with σ²d = 2δB². For θ₀ ~ N(μ, s²I)
        κ₀ = ‖μ‖²/(1 − 2s²) − (d/2)·log(1 − 2s²).
        """
        dim, left = len(self.eigenvalues), 1 - 2 * self.start_variance
        return General(
            smooth=max(self.eigenvalues),
            dissipative=min(self.eigenvalues),
            offset=0.0,
            gradient_at_0=self.gradient_sd * math.sqrt(dim / (2 * self.noise)),
            noise=self.noise,
            kappa=dim * self.start**2 / left - dim / 2 * math.log(left),
            dim=dim,
            divergence=recursion.divergence(self.first, self.precision),
        )

    @property
    def convex(self) -> Convex:
        """The constants of appendix G for this target."""
        return Convex(
            convex=min(self.eigenvalues),
            smooth=max(self.eigenvalues),
            dim=len(self.eigenvalues),
            sd=self.gradient_sd,
        )

    def schedule(self, name: str, steps: int) -> Schedule:
        if name in (CYCLICAL, CONTROL):
            lr = self.lr if name == CYCLICAL else self.outside_lr
            return Cyclical(lr=lr, steps=steps, cycles=self.cycles, exploration=0.0)
        return Decreasing(a=self.lr, b=0.0, gamma=1.0 if name == HARMONIC else 0.55, steps=steps)


SMOKE = Plan(steps=(20, 60, 100), far_steps=(400,), lanes=2_000)


def lanes(plan: Plan, schedule: Schedule, seed: int) -> Array:
    """The last state of lanes that start at independent draws of `Plan.first`, [lanes, dim]."""
    values = torch.tensor(plan.eigenvalues, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seeds(seed, 1))
    fresh = torch.randn(plan.lanes, len(values), generator=generator, dtype=torch.float64)
    sampler = drive(
        lambda p, noise: SGLD([p], lr=plan.lr, num_data=1, seed=noise, lanes=plan.lanes),
        plan.start + math.sqrt(plan.start_variance) * fresh,
        schedule=schedule,
        gradient=lambda theta: theta * values,
        gradient_sd=plan.gradient_sd,
        seed=seed,
    )
    return sampler.parameters()[0].numpy()


def table(plan: Plan) -> list[dict[str, object]]:
    """One row per schedule and K: the exact W₂ and the bounds (None where one does not apply)."""
    rows = [_row(plan, name, k) for name in SCHEDULES for k in (*plan.steps, *plan.far_steps)]
    return rows + [_row(plan, CONTROL, k) for k in plan.outside_steps]


def _row(plan: Plan, name: str, steps: int) -> dict[str, object]:
    schedule, reference = plan.schedule(name, steps), recursion.target(plan.precision)
    lrs = [schedule.at(k).lr for k in range(1, steps + 1)]
    path = recursion.laws(plan.first, plan.precision, lrs, gradient_covariance=plan.gradient_sd**2)
    law = next(islice(path, steps - 1, None))
    row: dict[str, object] = {"schedule": name, "steps": steps, "w2": w2(law, reference), **dict.fromkeys(BOUNDS)}
    row["bound"] = plan.general(math.fsum(lrs), math.fsum(lr * lr for lr in lrs))
    if name in (CYCLICAL, CONTROL):
        row["printed"] = plan.general.cyclical(lrs[0], steps)
    elif name == HARMONIC:
        row["printed"] = plan.general.decreasing(lrs[0], steps)
    if name != CONTROL:
        away = w2(plan.first, reference)
        row |= {"convex": plan.convex(away, lrs), "iterated": plan.convex.iterated(away, lrs)}
    return row
