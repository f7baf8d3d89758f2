"""Theorem 1 of cSG-MCMC: bias and mean squared error of cSGLD's average of a test function against the steps K.

What is stated. With S_K = Σα_k and a first-order integrator, Chen et al. (2015, theorems 2 and 3; the paper's lemma 1)
have

    |E φ̂ − φ̄| = O(1/S_K + Σα_k²/S_K),   E(φ̂ − φ̄)² = O(Σ(α_k/S_K)²·E‖ΔV_k‖² + 1/S_K + (Σα_k²)²/S_K²).

The cyclical step of Eq. 1 has S_K = α₀(K+M)/2 and Σα_k² = α₀²(3K/8 + M/2) for cycles of at least 3 steps (the paper
leaves out the two terms with M), so that the bias is O(1/(α₀K) + α₀) and the MSE O(1/(α₀K) + α₀²). The text at hand
does not say how α₀ goes with K (the equations are damaged there). For α₀ ∝ K^(−p) the exponents are −min(p, 1−p) and
−min(2p, 1−p): the best bias K^(−1/2) is at p = 1/2, the best MSE K^(−2/3) at p = 1/3, and at a fixed α₀ neither
vanishes, which is the control.

Which average. The main text writes the plain mean (1/K)Σφ(θ_k). The lemma that the proof rests on is about the weighted
one, Σα_kφ(θ_k)/S_K: summing E[φ(θ_k)] − φ̄ by the Poisson equation gives telescoping differences only with each α_k as
a weight. The theorem is therefore checked on the weighted average, and the plain one is shown beside it. There the MSE's
exponent differs for a fixed number of cycles M. Near the end of a cycle of L = K/M steps the remaining diffusion time
with j steps left is about α₀π²j³/(12L²); once it is below the relaxation time, j < L·(α₀L)^(−1/3) up to a constant, the
chain stands still. A share (α₀L)^(−1/3) of all terms is then one draw per cycle, with a variance of the order
(α₀K)^(−2/3) instead of (α₀K)^(−1): K^(−4/9) at p = 1/3. (A heuristic derived here; the operator's exact values and the
lanes show the slower fall.)

As in the paper's analysis there is no exploration stage: noise throughout, β = 0. The test function is θ² on
`DoubleWell`; noise on the gradient (``gradient_sd``) makes the step size's bias visible. Slopes are those of a finite
range of K, so terms of the next order count: at the default setting they make the bias's slope at p = 1/2 some −.51;
starting farther out, at 4, makes it −.49.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.experiments.theory import operator
from raychains.experiments.theory.double_well import DoubleWell
from raychains.experiments.theory.drive import Tell, drive, silent
from raychains.samplers import SGLD
from raychains.schedules import Cyclical

WEIGHTED, PLAIN = "weighted", "plain"
AVERAGES = (WEIGHTED, PLAIN)
CONTROL = "fixed"
POWERS: Mapping[str, float] = {"root": 1 / 2, "third": 1 / 3, CONTROL: 0.0}
"""Name of a sweep -> p in α₀ ∝ K^(−p)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How theorem 1 is checked; all that the numbers depend on.

    Raises:
        UserError: lanes that the groups do not divide, or fewer than 4 different numbers of steps.
    """

    steps: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    """K, ascending multiples of ``cycles``."""
    lanes: int = 20_000
    groups: int = 20
    """Of lanes, for the intervals."""
    cycles: int = 4
    """M."""
    first_lr: float = 0.25
    """α₀ at the smallest K, in every sweep."""
    a: float = 1.5
    """Half the distance of the two modes."""
    start: float = 2.0
    """θ₀ of every lane."""
    gradient_sd: float = 2.0
    """Of the noise on the gradient."""
    seed: int = 0
    exact_until: int = 16384
    """The largest K for which the transition operator gives exact values as well (1 ms a step)."""
    powers: tuple[tuple[str, float], ...] = tuple(POWERS.items())
    """Sweeps: name and p."""

    def __post_init__(self) -> None:
        ok = self.groups >= 2 and self.lanes % self.groups == 0
        require(ok, "groups", self.groups, f"be at least 2 and divide the number of lanes ({self.lanes})")
        good = len(self.steps) >= 4 and list(self.steps) == sorted(set(self.steps))
        require(good, "steps", self.steps, "be at least 4 ascending numbers: slopes are fitted to them")

    def lr(self, power: float, steps: int) -> float:
        """α₀(K)."""
        return self.first_lr * (steps / self.steps[0]) ** -power

    def schedule(self, power: float, steps: int) -> Cyclical:
        return Cyclical(lr=self.lr(power, steps), steps=steps, cycles=self.cycles, exploration=0.0)


SMOKE = Plan(steps=(32, 64, 128, 256), lanes=400, exact_until=64)


def averages(plan: Plan, power: float, steps: int, seed: int, tell: Tell = silent) -> tuple[Array, Array]:
    """(weighted, plain) averages of θ² over one cSGLD run of each lane, [lanes] each."""
    schedule = plan.schedule(power, steps)
    weighted, plain = torch.zeros(2, plan.lanes, dtype=torch.float64)
    whole = 0.0

    def add(lr: float, theta: torch.Tensor) -> None:
        nonlocal whole
        whole += lr
        weighted.addcmul_(theta, theta, value=lr)
        plain.addcmul_(theta, theta)

    drive(
        lambda p, noise: SGLD([p], lr=schedule.lr, num_data=1, seed=noise, lanes=plan.lanes),
        torch.full((plan.lanes,), plan.start, dtype=torch.float64),
        schedule=schedule,
        gradient=DoubleWell(plan.a).gradient,
        gradient_sd=plan.gradient_sd,
        seed=seed,
        visit=add,
        tell=tell,
    )
    return (weighted / whole).numpy(), (plain / steps).numpy()


def exact(plan: Plan, power: float, steps: int) -> dict[str, tuple[float, float]]:
    """Average -> bias and MSE by `operator.errors`, without lanes."""
    target, schedule = DoubleWell(plan.a), plan.schedule(power, steps)
    lrs = np.array([schedule.at(k).lr for k in range(1, steps + 1)])
    weights = np.stack([lrs / lrs.sum(), np.full(steps, 1 / steps)])
    mean = target.average(np.square)
    found = operator.errors(target, lrs.tolist(), weights, start=plan.start, gradient_sd=plan.gradient_sd, average=mean)
    return dict(zip(AVERAGES, found, strict=True))
