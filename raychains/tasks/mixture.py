"""The mixture of 25 Gaussians of cSG-MCMC §5.1 and A.1: the test of whether a chain moves between modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.errors import require
from raychains.evaluation import exact
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.modes import ModeCoverage
from raychains.schedules.base import is_number
from raychains.tasks.base import Task

AXIS = (-4.0, -2.0, 0.0, 2.0, 4.0)
"""The means are AXIS × AXIS."""
VARIANCE = 0.03
BOX = 10.0
"""Chains start uniformly in [−BOX, BOX]²."""
RADIUS, MORE_THAN = 0.25, 100
"""A mode is covered when more than 100 draws lie within .25 of its mean (A.1)."""


class Position(nn.Module):
    """A point per lane: parameter ``theta`` of shape [lanes, dim]."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta)


class Mixture25(Task):
    """−log of 25 equally weighted Gaussians, means {−4, −2, 0, 2, 4}², covariance .03·I.

    Means and covariance are a product over the two axes, so the density factorises and the gradient is elementwise:
    U′(x) = Σ_j w_j(x)·(x − μ_j)/σ², w = softmax(−(x − μ)²/2σ²).

    Args:
        gradient_noise: standard deviation of Gaussian noise added to the gradient (the authors' code adds 1).
    """

    low_dimensional = True
    supports_lanes = True
    num_data = 1
    fingerprint = "closed form"

    def __init__(self, gradient_noise: float = 0.0) -> None:
        ok = is_number(gradient_noise) and gradient_noise >= 0
        require(ok, "gradient_noise", gradient_noise, "be a finite number of at least 0")
        self.gradient_noise = float(gradient_noise)
        self._axis = torch.tensor(AXIS)

    def settings(self) -> dict[str, Any]:
        return {"gradient_noise": self.gradient_noise} if self.gradient_noise else {}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        return Position(torch.empty(lanes, 2, dtype=torch.float64).uniform_(-BOX, BOX, generator=generator))

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return (None,)

    def gradient(self, theta: Tensor) -> Tensor:
        """∇U at ``theta`` of shape [lanes, 2], same shape."""
        away = theta.unsqueeze(-1) - self._axis
        weights = torch.softmax(away.square() * (-0.5 / VARIANCE), dim=-1)
        return (weights * away).sum(-1).div_(VARIANCE)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        assert isinstance(model, Position)
        gradient = self.gradient(model.theta.detach())
        if self.gradient_noise:
            gradient.add_(torch.empty_like(gradient).normal_(generator=generator), alpha=self.gradient_noise)
        model.theta.grad = gradient
        return None

    def to(self, device: torch.device) -> None:
        self._axis = self._axis.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        centres = [(x, y) for x in AXIS for y in AXIS]
        return {"target": ModeCoverage(centres=centres, radius=RADIUS, more_than=MORE_THAN)}

    def potential(self, theta: Array) -> tuple[Array, Array]:
        away = np.asarray(theta, dtype=np.float64)[..., None] - np.asarray(AXIS)
        exponents = -(away**2) / (2 * VARIANCE)
        most = exponents.max(-1, keepdims=True)
        terms = np.exp(exponents - most)
        total = terms.sum(-1)
        energy = -(np.log(total) + most[..., 0]).sum(-1)
        return energy, (terms * away).sum(-1) / (total * VARIANCE)

    def reference(self) -> exact.Exact:
        centres = [(x, y) for x in AXIS for y in AXIS]
        n = len(centres)
        return exact.mixture(
            exact.Modes(
                names=tuple(f"({x:g}, {y:g})" for x, y in centres),
                centres=np.array(centres),
                scales=np.full(n, VARIANCE**0.5),
                weights=np.full(n, 1 / n),
            )
        )
