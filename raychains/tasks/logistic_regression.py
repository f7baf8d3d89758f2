"""Bayesian logistic regression on three UCI data sets (cSG-MCMC, App. A.2, Table 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.data import declared, uci
from raychains.errors import require
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.discrepancy import Gaussian
from raychains.evaluation.exact import Exact
from raychains.evaluation.sampled import SampledMoments
from raychains.schedules.base import is_number, positive_int
from raychains.tasks.base import Task
from raychains.tasks.logistic_posterior import LogisticPosterior
from raychains.tasks.mixture import Position

MOST_MINIBATCH, VARIANCES = 100_000, (1e-6, 1e9)
"""Bounds of settings: beyond them a posterior is the prior or, of separable data, nothing that could be sampled."""


class LogisticRegression(Task):
    """p(y = 1 | x) = 1/(1 + exp(−xᵀθ)) with θ ~ N(0, vI); features of mean 0 and sd 1, before them a constant 1.

    Mean and standard deviation are those of all examples; θ's first coordinate is the intercept. The mean loss is
    −log p(y | x). A lane is a repeat; lanes start at independent draws of N(0, I).

    The task defines its target alone: it adds the prior's θ/(vN) to the gradient itself, and a sampler's
    ``weight_decay`` must be 0.

    Args:
        minibatch: examples per step and lane, drawn with replacement; None for all of them, without any noise.
        prior_variance: v, the intercept's too. The paper does not say its prior; 100 is that of Girolami & Calderhead
            2011, who brought these data sets in.

    Raises:
        UserError: a setting out of range, or a data set that is not in the data root.
    """

    dataset: ClassVar[str]
    low_dimensional = True
    supports_lanes = True
    own_prior = True

    def __init__(self, minibatch: int | None = None, prior_variance: float = 100.0) -> None:
        if minibatch is not None:
            positive_int("minibatch", minibatch)
            require(minibatch <= MOST_MINIBATCH, "minibatch", minibatch, f"be at most {MOST_MINIBATCH}")
        ok = is_number(prior_variance) and VARIANCES[0] <= prior_variance <= VARIANCES[1]
        require(ok, "prior_variance", prior_variance, f"lie in [{VARIANCES[0]:g}, {VARIANCES[1]:g}]")
        data = uci.load(self.dataset)
        self.prior_variance, self.fingerprint = float(prior_variance), data.fingerprint
        self.data_notes = (declared.NOTE.format(name=self.dataset),) if data.stand_in else ()
        self.num_data = len(data.labels)
        self.whole, self.minibatch = minibatch is None, self.num_data if minibatch is None else minibatch
        inputs = design(data.features)
        self.dim = inputs.shape[1]
        self.posterior = LogisticPosterior(inputs, data.labels, self.prior_variance)
        """The density itself, in double precision."""
        self._inputs, self._labels = torch.from_numpy(inputs), torch.from_numpy(data.labels)

    def settings(self) -> dict[str, Any]:
        return {"minibatch": None if self.whole else self.minibatch, "prior_variance": self.prior_variance}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        return Position(torch.empty(lanes, self.dim, dtype=torch.float64).normal_(generator=generator))

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """One step: minibatches are drawn anew by `backward`, without passes over the data."""
        return (None,)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Gradient of mean loss plus prior per lane; the loss that is returned is the mean over lanes, without prior."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        inputs, labels = self._inputs.to(theta), self._labels.to(theta)
        if self.whole:
            logits = theta @ inputs.T
            gradient = (torch.sigmoid(logits) - labels) @ inputs
        else:
            size = (len(theta), self.minibatch)
            chosen = torch.randint(self.num_data, size, generator=generator, device=theta.device)
            rows, labels = inputs[chosen], labels[chosen]
            logits = torch.einsum("lbd,ld->lb", rows, theta)
            gradient = torch.einsum("lbd,lb->ld", rows, torch.sigmoid(logits) - labels)
        gradient = gradient / logits.shape[1]
        model.theta.grad = gradient.add_(theta, alpha=1 / (self.prior_variance * self.num_data))
        return nn.functional.binary_cross_entropy_with_logits(logits, labels.expand_as(logits))

    def to(self, device: torch.device) -> None:
        self._inputs, self._labels = self._inputs.to(device), self._labels.to(device)

    @cached_property
    def _target(self) -> SampledMoments:
        # Rounded: a mode's last bits differ between machines, and blocks are sums about it.
        centre = np.round(self.posterior.mode, 6)
        data = hashlib.sha256(self.posterior.inputs.round(9).tobytes()).hexdigest()
        identity = f"logistic regression/{self.fingerprint}/{data}/{self.prior_variance!r}"
        return SampledMoments(centre=centre, identity=identity, reference=self.posterior.reference)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": self._target}

    def potential(self, theta: Array) -> tuple[Array, Array]:
        """Of all examples and the prior."""
        points = np.asarray(theta, dtype=np.float64)
        return self.posterior.potential(points), self.posterior.gradient(points)

    def reference(self) -> Exact:
        """The moments of a long exact chain, drawn when first asked for (seconds)."""
        found = self._target.reference
        moments = Gaussian(mean=found.mean, covariance=found.covariance)
        return Exact(moments=moments, source=f"HMC, {found.chains} chains of {found.draws} draws")


class Australian(LogisticRegression):
    """Statlog's Australian credit approval: 690 examples, 15 coefficients."""

    dataset = "australian"


class German(LogisticRegression):
    """Statlog's German credit, numeric version: 1,000 examples, 25 coefficients."""

    dataset = "german"


class Heart(LogisticRegression):
    """Statlog's heart disease: 270 examples, 14 coefficients."""

    dataset = "heart"


def design(features: Array) -> Array:
    """[n, 1 + features]: a column of ones, then every feature with mean 0 and sd 1 (0 where it is constant)."""
    away = features - features.mean(0)
    sd = away.std(0)
    scaled = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0)
    return np.concatenate([np.ones((len(features), 1)), scaled], axis=1)
