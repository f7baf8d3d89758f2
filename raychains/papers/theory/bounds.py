"""The papers' bounds on W₂ with every constant computed: cSG-MCMC's theorem 2 and appendix G; docs/reference/theory.md
derives them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class General:
    """Assumption 3 of cSG-MCMC in numbers, and the constants C₀ … C₄ of theorem 2 that follow from it.

    Smoothness ‖∇U(w) − ∇U(v)‖ ≤ L‖w − v‖; dissipativity ⟨w, ∇U(w)⟩ ≥ m‖w‖² − b; gradient noise with mean 0 and
    E‖∇Ũ(w) − ∇U(w)‖² ≤ 2δ(L²‖w‖² + B²), ‖∇U(0)‖ ≤ B; κ₀ = log E exp‖θ₀‖². Theorem 2, for S = Σα_k and Q = Σα_k²:

        W₂(μ_K, ν_∞) ≤ C₃·exp(−S/C₄) + √(6 + C₂S)·[D^(1/2) + (D/2)^(1/4)],   D = C₁Q + δC₀S.

    It holds for m ≥ 2 and δ < 1.
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
    """KL(μ_0 ‖ ν_∞)."""

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
        """Return the bound for S = ``total`` and Q = ``squares``."""
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
    gradient's noise ζ has the mean 0 and E‖ζ‖² ≤ σ²d (``sd``).
    """

    convex: float
    smooth: float
    dim: int
    sd: float

    def __call__(self, start: float, lrs: Sequence[float]) -> float:
        """Eq. 36 and 37 after all the steps, each below min(2/M, 1/m), with W₂(μ_0, π) = ``start``."""
        largest, smallest = max(lrs), min(lrs)
        a = min(self.convex * smallest, 2 - self.smooth * largest)
        root = math.sqrt(self.dim)
        c = 1.65 * self.smooth * largest**1.5 * root
        b = largest * self.sd * root
        return (1 - a) ** len(lrs) * start + c / a + b**2 / (c + math.sqrt(a) * b)

    def constant(self, start: float, lr: float, steps: int) -> float:
        """Theorem 4 of Dalalyan & Karagulyan, for α ≤ 2/(m + M):

        (1−mα)^K·W₂(μ_0, π) + 1.65·(M/m)·(αd)^(1/2) + σ²(αd)^(1/2)/(1.65·M + σ√m).
        """
        root = math.sqrt(lr * self.dim)
        noise = self.sd**2 * root / (1.65 * self.smooth + self.sd * math.sqrt(self.convex))
        return (1 - self.convex * lr) ** steps * start + 1.65 * self.smooth / self.convex * root + noise
