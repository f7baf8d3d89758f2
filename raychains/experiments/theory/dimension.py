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
(two independent copies), with gradient noise on θ only. A run of the public Entropy-MCMC checks the recursion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from scipy import stats

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.discrepancy import Gaussian, w2
from raychains.experiments.theory import distance, recursion
from raychains.experiments.theory.bounds import Convex
from raychains.experiments.theory.drive import Tell, drive, seeds, silent
from raychains.experiments.theory.slopes import FAILS, HOLDS
from raychains.samplers import EntropyMCMC
from raychains.schedules import Constant

BOUNDS = ("sgld_bound", "printed", "corrected")


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
    replicates: int = 40
    """Sets of independent draws of the exact law that the lanes' W₂ is compared with."""
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


@dataclass(frozen=True)
class Result:
    """What a run of the plan gave."""

    plan: Plan
    draws: Mapping[float, Array]
    """Mean of θ₀ -> (θ, θₐ) of every lane at the largest α and the second-smallest time, [lanes, 2d]."""
    rows: list[dict[str, object]]
    """One per start, α and time: exact distances and bounds."""
    sampled: list[dict[str, object]]
    """The run of the public sampler against the recursion."""


def run(plan: Plan, tell: Tell = silent) -> Result:
    """All tables."""
    draws = simulate(plan, tell)
    rows = [row(plan, start, lr, time) for start in plan.starts for lr in plan.lrs for time in plan.times]
    return Result(plan, draws, rows, agreement(plan, draws))


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
    """One row of `Result.rows`."""
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


def simulate(plan: Plan, tell: Tell = silent) -> dict[float, Array]:
    """`Result.draws`."""
    lr = max(plan.lrs)
    steps, found = plan.steps(lr, sorted(plan.times)[1]), {}
    values = torch.tensor(plan.eigenvalues, dtype=torch.float64)
    for index, start in enumerate(plan.starts):
        seed = seeds(plan.seed, index)
        generator = torch.Generator().manual_seed(seeds(seed, 1))
        fresh = torch.randn(plan.lanes, len(values), generator=generator, dtype=torch.float64)
        sampler = drive(
            lambda p, noise: EntropyMCMC([p], lr=lr, eta=plan.eta, num_data=1, seed=noise, lanes=plan.lanes),
            start + math.sqrt(plan.start_variance) * fresh,
            schedule=Constant(lr=lr, steps=steps),
            gradient=lambda theta: theta * values,
            gradient_sd=plan.gradient_sd,
            seed=seed,
        )
        found[start] = torch.cat([tensors[0] for _, tensors in sampler.draws()], dim=1).numpy()
        tell(index + 1, len(plan.starts))
    return found


def agreement(plan: Plan, draws: Mapping[float, Array]) -> list[dict[str, object]]:
    """`Result.sampled` from the draws alone: W₂ of the pair from lanes and exactly."""
    lr = max(plan.lrs)
    rows: list[dict[str, object]] = []
    steps = plan.steps(lr, sorted(plan.times)[1])
    for start, pairs in draws.items():
        law, reference = laws(plan, start, lr, steps)["joint"]
        it, exact = distance.estimate(distance.by_moments, pairs, reference, groups=plan.groups), w2(law, reference)
        seed = seeds(plan.seed, steps, len(rows))
        off = distance.off(distance.by_moments, pairs, reference, law, replicates=plan.replicates, seed=seed)
        row: dict[str, object] = {"start": start, "lr": lr, "steps": steps, "lanes": len(pairs), "w2": exact}
        row |= dict(zip(("w2_moments", "low", "high"), map(distance.root, (it.value, it.low, it.high)), strict=True))
        rows.append(row | {"off": off})
    return rows


def claims(plan: Plan, result: Result) -> list[dict[str, object]]:
    """Each claim with its verdict and what decides it.

    ``corrected`` and ``sgld_bound`` hold where they are at least the exact W₂ everywhere; ``printed`` is the paper's
    statement by the same rule, and is not expected to. The last two lines are the sizes behind "the only difference":
    how much slower the pair contracts, and its W₂ at the largest time over SGLD's in 2d.
    """
    found: list[dict[str, object]] = []
    for name, exact in zip(BOUNDS, ("sgld_w2", "joint_w2", "joint_w2"), strict=True):
        ratios = [float(r[name]) / float(r[exact]) for r in result.rows]  # type: ignore[arg-type]
        about = f"smallest {name}/{exact} of {len(ratios)}"
        found.append(_claim(f"{name} ≥ exact W₂", min(ratios), 1.0, about, min(ratios) >= 1))
    offs = [abs(float(r["off"])) for r in result.sampled]  # type: ignore[arg-type]
    most = float(stats.t.ppf(1 - 0.025 / len(offs), plan.replicates - 1))
    about = f"largest difference of {len(offs)}, in standard errors"
    found.append(_claim("W₂ from lanes = exact W₂", max(offs), most, about, max(offs) <= most))
    rate = plan.joint_constants[0] / min(plan.eigenvalues)
    found.append(_claim("the pair contracts as fast as SGLD", rate, 1.0, "m′/m", rate >= 1))
    late = {lr: plan.steps(lr, max(plan.times)) for lr in plan.lrs}
    near = [r for r in result.rows if r["start"] == min(plan.starts)]
    last = [r for r in near if r["steps"] == late[r["lr"]]]  # type: ignore[index]
    ratio = max(float(r["joint_w2"]) / float(r["sgld_2d_w2"]) for r in last)  # type: ignore[arg-type]
    found.append(_claim("the pair ends no farther off than SGLD in 2d", ratio, 1.0, "largest ratio of W₂", ratio <= 1))
    return found


def _claim(name: str, value: float, limit: float, about: str, holds: bool) -> dict[str, object]:
    return {"claim": name, "value": value, "limit": limit, "about": about, "verdict": HOLDS if holds else FAILS}
