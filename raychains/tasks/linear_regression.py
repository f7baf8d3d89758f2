"""Conjugate Bayesian linear regression with minibatches: the exact posterior of a problem that has real data noise."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.errors import require
from raychains.evaluation import exact
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.moments import GaussianMoments
from raychains.schedules.base import positive, positive_int
from raychains.tasks.base import Task
from raychains.tasks.mixture import Position

MOST_DIM, MOST_NUMBERS = 1_000, 10_000_000
"""Of coefficients, and of inputs, which are made anew in every process."""


class LinearRegression(Task):
    """y = xᵀθ + σε with θ ~ N(0, I/α), on synthetic data made from ``seed``; mean loss ½(y − xᵀθ)²/σ².

    The posterior is N(m, P⁻¹) with P = XᵀX/σ² + αI and Pm = Xᵀy/σ². Every step each lane draws its own minibatch with
    replacement, so that the gradient's error is independent of the past.

    The task defines its target alone: it adds the prior's αθ/N to the gradient itself. A sampler's ``weight_decay``
    must therefore be 0: any other value λ would be a second prior, with the target of α + Nλ, and a chain refuses it.

    Args:
        num_data: N, examples.
        dim: coefficients; inputs are standard normal, coefficients of the data standard normal.
        minibatch: examples per step, drawn with replacement; None for all of them, without any noise.
        noise: σ, standard deviation of y given x, known to the model.
        prior_precision: α of the prior N(0, I/α). Chains start at draws from it.
        seed: of the data.

    Raises:
        UserError: a setting out of range.
    """

    low_dimensional = True
    supports_lanes = True
    own_prior = True

    def __init__(
        self,
        num_data: int = 500,
        dim: int = 5,
        minibatch: int | None = 50,
        noise: float = 1.0,
        prior_precision: float = 1.0,
        seed: int = 0,
    ) -> None:
        positive_int("num_data", num_data)
        positive_int("dim", dim)
        require(dim <= MOST_DIM, "dim", dim, f"be at most {MOST_DIM}")
        require(num_data * dim <= MOST_NUMBERS, "num_data × dim", num_data * dim, f"be at most {MOST_NUMBERS}")
        if minibatch is not None:
            positive_int("minibatch", minibatch)
            require(minibatch * dim <= MOST_NUMBERS, "minibatch", minibatch, f"be at most {MOST_NUMBERS // dim}")
        positive("noise", noise)
        positive("prior_precision", prior_precision)
        ok = isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0
        require(ok, "seed", seed, "be an integer of at least 0")
        self.num_data, self.dim, self.seed = num_data, dim, seed
        self.minibatch = num_data if minibatch is None else minibatch
        self.whole = minibatch is None
        self.noise, self.prior_precision = float(noise), float(prior_precision)
        inputs, targets = make_data(num_data, dim, self.noise, seed)
        self.fingerprint = hashlib.sha256(inputs.tobytes() + targets.tobytes()).hexdigest()
        self.mean, self.covariance = posterior(inputs, targets, self.noise, self.prior_precision)
        self._inputs, self._targets = torch.from_numpy(inputs), torch.from_numpy(targets)

    def settings(self) -> dict[str, Any]:
        names = ("num_data", "dim", "noise", "prior_precision", "seed")
        minibatch = None if self.whole else self.minibatch
        return {"minibatch": minibatch, **{name: getattr(self, name) for name in names}}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        start = torch.empty(lanes, self.dim, dtype=torch.float64).normal_(generator=generator)
        return Position(start / self.prior_precision**0.5)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """One step: minibatches are drawn anew by `backward`, without passes over the data."""
        return (None,)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Gradient of mean loss plus prior per lane; the loss that is returned is the mean over lanes, without prior."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        inputs, targets = self._inputs.to(theta), self._targets.to(theta)
        if self.whole:
            residuals = theta @ inputs.T - targets
            gradient = residuals @ inputs
        else:
            size = (len(theta), self.minibatch)
            chosen = torch.randint(self.num_data, size, generator=generator, device=theta.device)
            rows = inputs[chosen]
            residuals = torch.einsum("lbd,ld->lb", rows, theta) - targets[chosen]
            gradient = torch.einsum("lbd,lb->ld", rows, residuals)
        gradient = gradient / (residuals.shape[1] * self.noise**2)
        model.theta.grad = gradient.add_(theta, alpha=self.prior_precision / self.num_data)
        return residuals.square().mean() / (2 * self.noise**2)

    def to(self, device: torch.device) -> None:
        self._inputs, self._targets = self._inputs.to(device), self._targets.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": GaussianMoments(mean=self.mean, covariance=self.covariance)}

    def potential(self, theta: Array) -> tuple[Array, Array]:
        """Of all examples and the prior: a quadratic about the posterior's mean."""
        return exact.quadratic(theta, self.mean, np.linalg.inv(self.covariance))

    def reference(self) -> exact.Exact:
        return exact.gaussian(self.mean, self.covariance)


def make_data(num_data: int, dim: int, noise: float, seed: int) -> tuple[Array, Array]:
    """Inputs [num_data, dim] and targets [num_data], equal to the last bit on every machine."""
    rng = np.random.default_rng(seed)
    coefficients = rng.standard_normal(dim)
    inputs = rng.standard_normal((num_data, dim))
    targets = noise * rng.standard_normal(num_data)
    for j in range(dim):  # a matrix product's order of summation, and so its last bits, differ between machines
        targets = targets + inputs[:, j] * coefficients[j]
    return inputs, targets


def posterior(inputs: Array, targets: Array, noise: float, prior_precision: float) -> tuple[Array, Array]:
    """Mean [dim] and covariance [dim, dim] of the exact posterior."""
    precision = inputs.T @ inputs / noise**2 + prior_precision * np.eye(inputs.shape[1])
    covariance = np.linalg.inv(precision)
    covariance = (covariance + covariance.T) / 2
    return covariance @ (inputs.T @ targets) / noise**2, covariance
