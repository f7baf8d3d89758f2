"""Conjugate Bayesian linear regression with minibatches: the exact posterior of a problem that has real data noise."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.core.errors import require
from raychains.core.validation import integer, positive, positive_int
from raychains.evaluation import exact
from raychains.evaluation.evaluation import Array
from raychains.tasks.base import LogDensity, Position
from raychains.tasks.defaults import density, density_rates

MOST_DIM, MOST_NUMBERS = 1_000, 10_000_000
"""Largest dimension and largest number of inputs' entries: the inputs are made anew in every process."""


class LinearPredictor(LogDensity):
    """Base of the posteriors of θ in p(y | xᵀθ) with the prior N(0, I/α), given examples; every lane has its own
    minibatches.

    A minibatch is drawn with replacement at every step, so that the gradient's error is independent of the past. The
    task defines its target alone: it adds the prior's αθ/N to the gradient itself. A sampler's ``weight_decay`` must
    therefore be 0: any other value λ would be a second prior, with the target of α + Nλ, and a chain refuses it.

    ``inputs`` are x [n, dim], ``targets`` y [n]; ``minibatch`` None takes all of them, without any noise; ``decay`` is
    α/N, the prior's weight decay.
    """

    own_prior = True
    dispersion = 1.0
    """The divisor of the gradient −error·x of an example's log-likelihood."""

    def __init__(self, inputs: Array, targets: Array, minibatch: int | None, decay: float) -> None:
        self.num_data, self.dim = inputs.shape
        self.whole, self.minibatch = minibatch is None, self.num_data if minibatch is None else minibatch
        self._decay = decay
        self._inputs, self._targets = torch.from_numpy(inputs), torch.from_numpy(targets)

    @abstractmethod
    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the derivative of an example's loss by its output xᵀθ, times the dispersion."""

    @abstractmethod
    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of outputs xᵀθ [lanes, n], without the prior."""

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Write the gradient of mean loss plus prior per lane; the loss that is returned is the mean over lanes,
        without prior."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        rows, outputs, targets = self._read(theta, generator)
        if rows is None:
            gradient = self.errors(outputs, targets) @ self._inputs.to(theta)
        else:
            gradient = torch.einsum("lbd,lb->ld", rows, self.errors(outputs, targets))
        gradient = gradient / (outputs.shape[1] * self.dispersion)
        model.theta.grad = gradient.add_(theta, alpha=self._decay)
        return self.mean_loss(outputs, targets)

    def objective(self, model: nn.Module, batch: Any, generator: torch.Generator, loss: Tensor | None) -> Tensor:
        """Return the mean loss plus prior of each lane, [lanes], on the minibatch that `backward` read."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        _, outputs, targets = self._read(theta, generator)
        each = [
            self.mean_loss(o[None], t if t.ndim == 1 else t[None])
            for o, t in zip(outputs, targets if targets.ndim == 2 else [targets] * len(outputs), strict=True)
        ]
        return torch.stack(each) + 0.5 * self._decay * theta.square().sum(dim=1)

    def _read(self, theta: Tensor, generator: torch.Generator) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return each lane's drawn inputs [lanes, n, dim], None for all; outputs xᵀθ [lanes, n]; and targets."""
        inputs, targets = self._inputs.to(theta), self._targets.to(theta)
        if self.whole:
            return None, theta @ inputs.T, targets
        size = (len(theta), self.minibatch)
        chosen = torch.randint(self.num_data, size, generator=generator, device=theta.device)
        rows = inputs[chosen]
        return rows, torch.einsum("lbd,ld->lb", rows, theta), targets[chosen]

    def to(self, device: torch.device) -> None:
        self._inputs, self._targets = self._inputs.to(device), self._targets.to(device)


class LinearRegression(LinearPredictor):
    """y = xᵀθ + σε with θ ~ N(0, I/α), on synthetic data made from ``seed``; mean loss ½(y − xᵀθ)²/σ².

    The posterior is N(m, P⁻¹) with P = XᵀX/σ² + αI and Pm = Xᵀy/σ².

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

    name = "linear-regression"
    defaults = density(0.002, lr=density_rates(0.01, decreasing=0.05, gradient=1), steps=20_000)  # ours

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
        integer("seed", seed)
        self.noise, self.prior_precision, self.seed = float(noise), float(prior_precision), seed
        self.dispersion = self.noise**2
        inputs, targets = make_data(num_data, dim, self.noise, seed)
        super().__init__(inputs, targets, minibatch, self.prior_precision / num_data)
        self.fingerprint = hashlib.sha256(inputs.tobytes() + targets.tobytes()).hexdigest()
        self.mean, self.covariance = posterior(inputs, targets, self.noise, self.prior_precision)

    def settings(self) -> dict[str, Any]:
        names = ("num_data", "dim", "noise", "prior_precision", "seed")
        minibatch = None if self.whole else self.minibatch
        return {"minibatch": minibatch, **{name: getattr(self, name) for name in names}}

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        return super().starts(lanes, generator) / self.prior_precision**0.5

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean() / (2 * self.dispersion)

    def potential(self, theta: Array) -> tuple[Array, Array]:
        """Return U of all examples and the prior: a quadratic about the posterior's mean."""
        return exact.quadratic(theta, self.mean, np.linalg.inv(self.covariance))

    def reference(self) -> exact.Exact:
        return exact.gaussian(self.mean, self.covariance)


def make_data(num_data: int, dim: int, noise: float, seed: int) -> tuple[Array, Array]:
    """Return inputs [num_data, dim] and targets [num_data], equal to the last bit on every machine."""
    rng = np.random.default_rng(seed)
    coefficients = rng.standard_normal(dim)
    inputs = rng.standard_normal((num_data, dim))
    targets = noise * rng.standard_normal(num_data)
    for j in range(dim):  # a matrix product's order of summation, and so its last bits, differ between machines
        targets = targets + inputs[:, j] * coefficients[j]
    return inputs, targets


def posterior(inputs: Array, targets: Array, noise: float, prior_precision: float) -> tuple[Array, Array]:
    """Return mean [dim] and covariance [dim, dim] of the exact posterior."""
    precision = inputs.T @ inputs / noise**2 + prior_precision * np.eye(inputs.shape[1])
    covariance = np.linalg.inv(precision)
    covariance = (covariance + covariance.T) / 2
    return covariance @ (inputs.T @ targets) / noise**2, covariance
