"""The papers' bounds on W₂ with every constant computed: cSG-MCMC's theorem 2 and appendix G, Dalalyan & Karagulyan's.

The printed equations are damaged in the texts at hand. Each is derived again below from the lemmas that it cites; where
the derivation and the readable parts differ, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raychains.errors import require


@dataclass(frozen=True, kw_only=True)
class General:
    """Assumption 3 of cSG-MCMC in numbers, and the constants C₀ … C₄ of theorem 2 that follow from it.

    Smoothness ‖∇U(w) − ∇U(v)‖ ≤ L‖w − v‖; dissipativity ⟨w, ∇U(w)⟩ ≥ m‖w‖² − b; gradient noise with mean 0 and
    E‖∇Ũ(w) − ∇U(w)‖² ≤ 2δ(L²‖w‖² + B²), ‖∇U(0)‖ ≤ B; κ₀ = log E exp‖θ₀‖². Theorem 2, for S = Σα_k and Q = Σα_k²:

        W₂(μ_K, ν_∞) ≤ C₃·exp(−S/C₄) + √(6 + C₂S)·[D^(1/2) + (D/2)^(1/4)],   D = C₁Q + δC₀S.

    Derivation (Raginsky, Rakhlin & Telgarsky 2017, inverse temperature 1):

    * Lemma 3.2: α_k ≤ min(1, m/(4L²)) gives E‖θ_{k+1}‖² ≤ (1 − 2αm + 4α²L²)E‖θ_k‖² + 2α(b + 2αB² + d), so that
      E‖θ_k‖² ≤ κ₀ + 2·max(1, 1/m)·(b + 2B² + d) for *any* such sequence of steps. The paper gets here by α_min and
      has the factor α₀/α_min in C₀, which does not depend on α₀ but grows like (K/M)²; the lemma does not need it.
      C₀ = L²·(that) + B².
    * Lemma 3.6: D(μ_K ‖ ν_S) ≤ ½Σ∫E‖∇U(θ(s)) − ∇U(θ_k)‖² + ½ΣαE‖∇U − ∇Ũ‖² ≤ L²(6C₀ + 3d)·Q + δC₀·S;
      the paper's C₁ = 6L²(C₀ + d) is a little larger and used here.
    * Bolley & Villani 2005, corollary 2.3, with λ = 1: W₂(μ, ν) ≤ √(6 + 4·log E_ν exp‖θ‖²)·[D^(1/2) + (D/2)^(1/4)], and
      lemma 3.3: log E exp‖θ(t)‖² ≤ κ₀ + 2(b + d)t, which needs m ≥ 2 (a condition that the paper's text does not
      state). For S ≥ 1 the factor is at most √(6 + C₂S) with C₂ = 4(κ₀ + 2b + 2d); for smaller S take S = 1 there. The
      main text has 6, appendix D 12 (which belongs to W₂² ≤ (12 + 8(…)S)(D + √D)); both have C₂ = κ₀ + 2b + 2d.
    * (3.17): W₂(ν_t, ν_∞) ≤ √(2c·D(ν_0 ‖ ν_∞))·exp(−t/c) under a logarithmic Sobolev inequality with constant c. For U
      that is m-strongly convex c = 1/m (Bakry & Émery), so that C₃ = √(2D₀/m) and C₄ = 1/m.

    The bound grows with S beyond its minimum, and its special case α₀ = O(K^(−β)) with β > 1 is vacuous (S → 0: the
    chain does not move and exp(−S/C₄) → 1); nothing is claimed about that case.

    Raises:
        UserError: m below 2, or δ outside [0, 1).
    """

    smooth: float
    """L."""
    dissipative: float
    """m."""
    offset: float
    """b."""
    gradient_at_0: float
    """B."""
    noise: float
    """δ."""
    kappa: float
    """κ₀."""
    dim: int
    """d."""
    divergence: float
    """D(μ_0 ‖ ν_∞)."""

    def __post_init__(self) -> None:
        require(
            self.dissipative >= 2, "dissipative", self.dissipative, "be at least 2: exponential moments need it (λ = 1)"
        )
        require(0 <= self.noise < 1, "noise", self.noise, "lie in [0, 1)")

    @property
    def largest_lr(self) -> float:
        """Step sizes up to this are covered: min(1, m/(4L²))."""
        return min(1.0, self.dissipative / (4 * self.smooth**2))

    @property
    def c0(self) -> float:
        spread = self.offset + 2 * self.gradient_at_0**2 + self.dim
        second = self.kappa + 2 * max(1.0, 1 / self.dissipative) * spread
        return self.smooth**2 * second + self.gradient_at_0**2

    @property
    def c1(self) -> float:
        return 6 * self.smooth**2 * (self.c0 + self.dim)

    @property
    def c2(self) -> float:
        return 4 * (self.kappa + 2 * self.offset + 2 * self.dim)

    @property
    def c3(self) -> float:
        return math.sqrt(2 * self.divergence / self.dissipative)

    @property
    def c4(self) -> float:
        return 1 / self.dissipative

    def __call__(self, total: float, squares: float) -> float:
        """The bound for S = ``total`` and Q = ``squares``."""
        entropy = self.c1 * squares + self.noise * self.c0 * total
        numerical = math.sqrt(6 + self.c2 * max(total, 1.0)) * (math.sqrt(entropy) + (entropy / 2) ** 0.25)
        return self.c3 * math.exp(-total / self.c4) + numerical

    def cyclical(self, lr: float, steps: int) -> float:
        """The bound as theorem 2 prints it: S = Kα₀/2 and Q = 3Kα₀²/8.

        The exact sums of Eq. 1 are larger by Mα₀/2 and Mα₀²/2: Σcos(πj/L) over a cycle is 1, not 0.
        """
        return self(steps * lr / 2, 3 * steps * lr**2 / 8)

    def decreasing(self, lr: float, steps: int) -> float:
        """Appendix E for α_k = h₀/k: S = h₀ΣK 1/k and Q ≤ h₀²π²/6."""
        return self(lr * math.fsum(1 / k for k in range(1, steps + 1)), (lr * math.pi) ** 2 / 6)


@dataclass(frozen=True, kw_only=True)
class Convex:
    """Assumption 5 of cSG-MCMC (appendix G), that of Dalalyan & Karagulyan 2019, in numbers.

    U is ``convex``-strongly convex (m) and its gradient ``smooth``-Lipschitz (M) in ``dim`` dimensions (d); the
    gradient's noise has E‖E[ζ]‖² ≤ δ²d (``bias``) and E‖ζ − E[ζ]‖² ≤ σ²d (``sd``).
    """

    convex: float
    smooth: float
    dim: int
    bias: float = 0.0
    sd: float = 0.0

    def step(self, distance: float, lr: float) -> float:
        """One step's bound on W₂ (their proposition 2; Eq. 38), for α < 2/M:

        W₂(μ_{k+1}, π)² ≤ {ρW₂(μ_k, π) + 1.65·M·(α³d)^(1/2) + αδ√d}² + α²σ²d,   ρ = max(1 − mα, Mα − 1).
        """
        rho = max(1 - self.convex * lr, self.smooth * lr - 1)
        root = math.sqrt(self.dim)
        drift = 1.65 * self.smooth * lr**1.5 * root + lr * self.bias * root
        return math.hypot(rho * distance + drift, lr * self.sd * root)

    def iterated(self, start: float, lrs: Iterable[float]) -> float:
        """Eq. 38 applied step after step, with each step's own size."""
        for lr in lrs:
            start = self.step(start, lr)
        return start

    def __call__(self, start: float, lrs: Sequence[float]) -> float:
        """Eq. 36 and 37 after all the steps, W₂(μ_0, π) = ``start``.

        Their lemma 2 turns y² ← {(1−A)y + C}² + B² into y_k ≤ (1−A)^k·y_0 + C/A + B²/(C + √A·B), with
        C = 1.65·M·(α₀³d)^(1/2) + α₀δ√d and B = α₀σ√d of the largest step α₀. A is mα_min of the smallest where
        mα_min + Mα₀ ≤ 2 (Eq. 36), else 2 − Mα₀ (Eq. 37). Eq. 36 with a constant step is `constant`. For a cyclical step
        α_min falls like α₀(πM/2K)², so that C/A grows with K: the bound holds and says little; `iterated` is the sharp
        form.

        Raises:
            UserError: a step that is not below min(2/M, 1/m).
        """
        largest, smallest = max(lrs), min(lrs)
        limit = min(2 / self.smooth, 1 / self.convex)
        require(largest < limit, "lr", largest, f"be below min(2/M, 1/m) = {limit:g}")
        a = min(self.convex * smallest, 2 - self.smooth * largest)
        root = math.sqrt(self.dim)
        c = 1.65 * self.smooth * largest**1.5 * root + largest * self.bias * root
        b = largest * self.sd * root
        return (1 - a) ** len(lrs) * start + c / a + b**2 / (c + math.sqrt(a) * b)

    def constant(self, start: float, lr: float, steps: int) -> float:
        """Theorem 4 of Dalalyan & Karagulyan, for α ≤ 2/(m + M):

        (1−mα)^K·W₂(μ_0, π) + 1.65·(M/m)·(αd)^(1/2) + δ√d/m + σ²(αd)^(1/2)/(1.65·M + σ√m).

        Raises:
            UserError: a larger step.
        """
        limit = 2 / (self.convex + self.smooth)
        require(lr <= limit, "lr", lr, f"be at most 2/(m+M) = {limit:g}")
        root = math.sqrt(lr * self.dim)
        first = (1 - self.convex * lr) ** steps * start
        noise = self.sd**2 * root / (1.65 * self.smooth + self.sd * math.sqrt(self.convex))
        bias = self.bias * math.sqrt(self.dim) / self.convex
        return first + 1.65 * self.smooth / self.convex * root + bias + noise
