"""The mixture of 25 Gaussians of cSG-MCMC §5.1 and A.1: the test of whether a chain moves between modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core.validation import at_least_0
from raychains.evaluation import exact
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.exact import ModeCoverage
from raychains.tasks.base import LogDensity
from raychains.tasks.defaults import density, density_rates

AXIS = (-4.0, -2.0, 0.0, 2.0, 4.0)
CENTRES = [(x, y) for x in AXIS for y in AXIS]
VARIANCE = 0.03
BOX = 10.0
"""Chains start uniformly in [−BOX, BOX]²."""
RADIUS, MORE_THAN = 0.25, 100
"""A mode is covered when more than 100 draws lie within .25 of its mean (A.1)."""


class Mixture25(LogDensity):
    """−log of 25 equally weighted Gaussians, means {−4, −2, 0, 2, 4}², covariance .03·I.

    Means and covariance are a product over the two axes, so the density factorises and the gradient is elementwise:
    U′(x) = Σ_j w_j(x)·(x − μ_j)/σ², w = softmax(−(x − μ)²/2σ²).

    Args:
        gradient_noise: standard deviation of Gaussian noise added to the gradient (the authors' code adds 1).
    """

    name = "mixture25"
    dim = 2
    pointwise = True
    # cSG-MCMC §5.1 for SGLD; the other methods' step sizes are ours.
    defaults = density(
        0.5,
        samplers=("sgld",),
        lr=density_rates(0.09, decreasing=0.05, gradient=6),
        steps=50_000,
        cycles=30,
        exploration=0.25,
    )

    def __init__(self, gradient_noise: float = 0.0) -> None:
        at_least_0("gradient_noise", gradient_noise)
        self.gradient_noise = float(gradient_noise)
        self._axis = torch.tensor(AXIS)

    def settings(self) -> dict[str, Any]:
        return self._changed({"gradient_noise": self.gradient_noise})

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        return torch.empty(lanes, 2, dtype=torch.float64).uniform_(-BOX, BOX, generator=generator)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇U at ``theta`` of shape [lanes, 2], same shape."""
        away = theta.unsqueeze(-1) - self._axis
        weights = torch.softmax(away.square() * (-0.5 / VARIANCE), dim=-1)
        return (weights * away).sum(-1).div_(VARIANCE)

    def packed_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇U with the modes on the first axis: operations run along the points, a third of the time at thousands
        of them."""
        away = theta.reshape(1, -1) - self._axis.to(theta.dtype).unsqueeze(-1)
        both = away.new_empty(len(AXIS), 2, away.shape[1])
        terms = both[:, 0].copy_(away).square_().mul_(-0.5 / VARIANCE)
        terms.sub_(terms.amax(0)).exp_()
        both[:, 1].copy_(away).mul_(terms)
        first, *others = both.unbind(0)
        for other in others:  # a reduction's order may depend on a point's place
            first += other
        total, found = first
        return found.div_(total.mul_(VARIANCE)).view(theta.shape)

    def to(self, device: torch.device) -> None:
        self._axis = self._axis.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": ModeCoverage(centres=CENTRES, radius=RADIUS, more_than=MORE_THAN)}

    def potential(self, theta: Array) -> tuple[Array, Array]:
        away = np.asarray(theta, dtype=np.float64)[..., None] - np.asarray(AXIS)
        exponents = -(away**2) / (2 * VARIANCE)
        most = exponents.max(-1, keepdims=True)
        terms = np.exp(exponents - most)
        total = terms.sum(-1)
        energy = -(np.log(total) + most[..., 0]).sum(-1)
        return energy, (terms * away).sum(-1) / (total * VARIANCE)

    def reference(self) -> exact.Exact:
        names, n = tuple(f"({x:g}, {y:g})" for x, y in CENTRES), len(CENTRES)
        scales, weights = np.full(n, VARIANCE**0.5), np.full(n, 1 / n)
        return exact.mixture(exact.Modes(names=names, centres=np.array(CENTRES), scales=scales, weights=weights))
