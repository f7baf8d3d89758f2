"""A smooth one-dimensional target with two modes, on which the posterior average is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import integrate
from torch import Tensor

from raychains.evaluation.base import Array


@dataclass(frozen=True)
class DoubleWell:
    """U(θ) = θ²/2 − log cosh(aθ): the equal mixture of N(−a, 1) and N(a, 1), since e^{−U} ∝ e^{−θ²/2}·cosh(aθ).

    U is not convex for a > 1, its gradient θ − a·tanh(aθ) is Lipschitz, and it is dissipative. The average of θ² is
    1 + a². θ² is even and U is too: hopping between the modes does not matter to its average, so what is left of the
    error at a large K is the step size's.
    """

    a: float = 1.5

    def potential(self, theta: Array) -> Array:
        """U, up to a constant."""
        x = np.abs(self.a * theta)
        return theta**2 / 2 - (x + np.log1p(np.exp(-2 * x)))

    def gradient(self, theta: Tensor) -> Tensor:
        """∇U of a tensor."""
        return theta - self.a * torch.tanh(self.a * theta)

    def slope(self, theta: Array) -> Array:
        """∇U of an array."""
        return theta - self.a * np.tanh(self.a * theta)

    def average(self, test: Callable[[Array], Array]) -> float:
        """∫φ e^{−U} / ∫e^{−U} by adaptive quadrature, to some 1e-10."""
        reach = self.a + 12.0
        low = float(self.potential(np.asarray(self.a)))  # keeps the exponent near 0

        def over(weight: Callable[[float], float]) -> float:
            parts = ((-reach, -self.a), (-self.a, self.a), (self.a, reach))
            return sum(integrate.quad(weight, *part, epsabs=1e-12, epsrel=1e-12)[0] for part in parts)

        def density(x: float) -> float:
            return math.exp(low - float(self.potential(np.asarray(x))))

        return over(lambda x: float(test(np.asarray(x))) * density(x)) / over(density)
