"""Entropy-MCMC's theorem 1 against SGLD's bound: is doubling the dimension the only difference?

What is stated (Li & Zhang 2024, section 5; its formulas are missing from the text at hand and follow from its
sentences). Let U be M-smooth and m-strongly convex on ℝᵈ. Lemma 2: for m ≤ 1/η ≤ M the joint energy
U(θ) + ‖θ−θₐ‖²/(2η) is M-smooth and m-strongly convex as well. Theorem 1 then applies theorem 4 of Dalalyan & Karagulyan
in 2d dimensions: for α ≤ 2/(m+M)

    W₂(μ_K, π_joint) ≤ (1−mα)^K·W₂(μ_0, π_joint) + 1.65·(M/m)·(2αd)^(1/2) + σ²(2αd)^(1/2)/(1.65·M + σ√m),

"the only difference is the doubling of the dimension", at most a constant factor √2 in the last two terms.

What is true. The appendix obtains lemma 2 by a row reduction of the joint Hessian [[H + I/η, −I/η], [−I/η, I/η]], which
does not keep eigenvalues. For an eigenvalue h of H the joint ones are (h + 2/η ∓ √(h² + 4/η²))/2. So the joint energy
is m′-strongly convex and M′-smooth with

    m′ = (m + 2/η − √(m² + 4/η²))/2 < m/2,   M′ = (M + 2/η + √(M² + 4/η²))/2 > M,

for every η: m′ comes near m/2 only for η → 0, where M′ grows like 2/η. (θ and θₐ move together: only one of the two
feels U.) The dimension doubles *and* the rate of contraction at least halves. With m′ and M′ the bound is a theorem;
with m and M it is not, and on a Gaussian it is broken wherever the start's distance still matters: far from the target
at small steps.

Here U = ½θᵀΛθ, so that all W₂ are exact (`recursion`): of the pair, of θ alone, and of SGLD in d and in 2d dimensions
(two independent copies), with gradient noise on θ only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np

from raychains.errors import require
from raychains.evaluation.discrepancy import Gaussian, w2
from raychains.experiments.theory import recursion
from raychains.experiments.theory.bounds import Convex


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the statement is checked; all that the numbers depend on."""

    eigenvalues: tuple[float, ...] = (2.0, 2.5, 3.0)
    """Of Λ, which is diagonal: m is the smallest, M the largest, d their number."""
    eta: float = 0.4
    """η, with m ≤ 1/η ≤ M as lemma 2 asks."""
    starts: tuple[float, ...] = (1.0, 30.0)
    """Every coordinate of the mean of θ₀, near and far."""
    start_variance: float = 0.2
    """Of every coordinate of θ₀; θₐ starts as its copy."""
    gradient_sd: float = 1.0
    """σ, of the noise on θ's gradient in every coordinate."""
    lrs: tuple[float, ...] = (0.001, 0.01, 0.1)
    """α, constant; at most 2/(m′+M′)."""
    times: tuple[float, ...] = (0.3, 1.0, 2.0, 4.0, 8.0, 16.0)
    """αK: diffusion times at which the distances are taken."""
    lanes: int = 20_000
    groups: int = 20
    """Of lanes, for the interval."""
    seed: int = 0

    def __post_init__(self) -> None:
        ok = self.groups >= 2 and self.lanes % self.groups == 0
        require(ok, "groups", self.groups, f"be at least 2 and divide the number of lanes ({self.lanes})")
        low, high = min(self.eigenvalues), max(self.eigenvalues)
        require(low <= 1 / self.eta <= high, "eta", self.eta, f"have m ≤ 1/η ≤ M: lie in [{1 / high:g}, {1 / low:g}]")
        limit = 2 / sum(self.joint_constants)
        require(max(self.lrs) <= limit, "lrs", self.lrs, f"be at most 2/(m′+M′) = {limit:g}")

    @property
    def joint_constants(self) -> tuple[float, float]:
        """(m′, M′)."""
        pull = 1 / self.eta
        low, high = min(self.eigenvalues), max(self.eigenvalues)
        return (low + 2 * pull - math.hypot(low, 2 * pull)) / 2, (high + 2 * pull + math.hypot(high, 2 * pull)) / 2

    def steps(self, lr: float, time: float) -> int:
        """K = ⌈time/α⌉."""
        return math.ceil(time / lr - 1e-9)


SMOKE = Plan(lrs=(0.01, 0.1), times=(0.3, 1.0), lanes=2_000)


def pair(plan: Plan, start: float) -> Gaussian:
    """The law of (θ₀, θₐ₀), in which the second half is a copy of the first: of rank d."""
    dim = len(plan.eigenvalues)
    covariance = np.kron(np.ones((2, 2)), plan.start_variance * np.eye(dim))
    return Gaussian(mean=np.full(2 * dim, start), covariance=covariance)


def laws(plan: Plan, start: float, lr: float, steps: int) -> dict[str, tuple[Gaussian, Gaussian]]:
    """Name -> (law after the steps, target): ``sgld`` in d, ``sgld_2d`` of two copies, ``joint``, and its ``theta``."""
    dim, precision = len(plan.eigenvalues), np.diag(plan.eigenvalues)
    single = Gaussian(mean=np.full(dim, start), covariance=plan.start_variance * np.eye(dim))
    double = Gaussian(mean=np.full(2 * dim, start), covariance=plan.start_variance * np.eye(2 * dim))
    joint = recursion.joint_precision(precision, plan.eta)
    noise = plan.gradient_sd**2
    only_theta = np.diag([noise] * dim + [0.0] * dim)
    found: dict[str, tuple[Gaussian, Gaussian]] = {}
    for name, first, form, gradient in (
        ("sgld", single, precision, noise),
        ("sgld_2d", double, np.kron(np.eye(2), precision), noise),
        ("joint", pair(plan, start), joint, only_theta),
    ):
        path = recursion.laws(first, form, [lr] * steps, gradient_covariance=gradient)
        found[name] = next(islice(path, steps - 1, None)), recursion.target(form)
    law = found["joint"][0]
    found["theta"] = (
        Gaussian(mean=law.mean[:dim], covariance=law.covariance[:dim, :dim]),
        recursion.target(precision),
    )
    return found


def row(plan: Plan, start: float, lr: float, time: float) -> dict[str, object]:
    """The exact distances and the bounds after ⌈time/α⌉ steps."""
    dim, steps = len(plan.eigenvalues), plan.steps(lr, time)
    m, smooth = min(plan.eigenvalues), max(plan.eigenvalues)
    exact = {name: w2(*ends) for name, ends in laws(plan, start, lr, steps).items()}
    one = Convex(convex=m, smooth=smooth, dim=dim, sd=plan.gradient_sd)
    two = Convex(convex=m, smooth=smooth, dim=2 * dim, sd=plan.gradient_sd)
    true = Convex(convex=plan.joint_constants[0], smooth=plan.joint_constants[1], dim=2 * dim, sd=plan.gradient_sd)
    precision = np.diag(plan.eigenvalues)
    single = Gaussian(mean=np.full(dim, start), covariance=plan.start_variance * np.eye(dim))
    far = w2(single, recursion.target(precision))
    far_joint = w2(pair(plan, start), recursion.target(recursion.joint_precision(precision, plan.eta)))
    found: dict[str, object] = {"start": start, "lr": lr, "steps": steps, "time": lr * steps}
    found |= {f"{name}_w2": value for name, value in exact.items()}
    return found | {
        "sgld_bound": one.constant(far, lr, steps),
        "printed": two.constant(far_joint, lr, steps),
        "corrected": true.constant(far_joint, lr, steps),
    }
