"""Bayesian logistic regression on three UCI data sets (cSG-MCMC, App. A.2, Table 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from raychains.core.errors import RaychainsError, require
from raychains.core.validation import is_number, positive_int
from raychains.data import standin_manifest, tabular
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.exact import Exact
from raychains.evaluation.hmc import reference
from raychains.evaluation.moments import Gaussian, Reference, SampledMoments
from raychains.tasks.defaults import Defaults, density, density_rates
from raychains.tasks.linear_regression import LinearPredictor

MOST_MINIBATCH, VARIANCES = 100_000, (1e-6, 1e9)
"""Bounds of settings: beyond them a posterior is the prior or, of separable data, nothing that could be sampled."""
GRADIENT, ROUNDING = 1e-12, 1e-8
"""Norm of U's gradient at which a search ends, and twice the distance of U from its minimum at which one step more is
the mode."""


def _defaults(sgld: float, sghmc: float) -> Defaults:
    """cSG-MCMC's 5,000 draws after 1,000 steps of burn-in, or of exploration.

    The rest is ours: steps whose draws have the posterior's spread to about 10 % (docs/reference/blr.md), five times as
    long where they fall to a tenth.
    """
    own = {("cyclical", "sghmc"): sghmc, ("decreasing", "sghmc"): 5 * sghmc}
    return density(
        0.05,
        run="sgld",
        lr={**density_rates(sgld, decreasing=5 * sgld, gradient=0.05), **own},
        steps=6_000,
        exploration=1 / 6,
        non_cyclical={"gamma": 0.55, "decay": 10.0, "epochs_per_sample": 1.2},
    )


class LogisticRegression(LinearPredictor):
    """p(y = 1 | x) = 1/(1 + exp(−xᵀθ)) with θ ~ N(0, vI); features of mean 0 and sd 1, before them a constant 1.

    Mean and standard deviation are those of all examples; θ's first coordinate is the intercept. The mean loss is
    −log p(y | x). A lane is a repeat; lanes start at independent draws of N(0, I).

    Args:
        minibatch: examples per step and lane, drawn with replacement; None for all of them, without any noise.
        prior_variance: v, the intercept's too. The paper does not say its prior; 100 is that of Girolami & Calderhead
            2011, who brought these data sets in.

    Raises:
        UserError: a setting out of range, or a data set that is not in the data root.
    """

    dataset: ClassVar[str]

    def __init__(self, minibatch: int | None = None, prior_variance: float = 100.0) -> None:
        if minibatch is not None:
            positive_int("minibatch", minibatch)
            require(minibatch <= MOST_MINIBATCH, "minibatch", minibatch, f"be at most {MOST_MINIBATCH}")
        ok = is_number(prior_variance) and VARIANCES[0] <= prior_variance <= VARIANCES[1]
        require(ok, "prior_variance", prior_variance, f"lie in [{VARIANCES[0]:g}, {VARIANCES[1]:g}]")
        data = tabular.load(self.dataset)
        self.prior_variance, self.fingerprint = float(prior_variance), data.fingerprint
        self.data_notes = (standin_manifest.NOTE.format(name=self.dataset),) if data.stand_in else ()
        inputs = design(data.features)
        super().__init__(inputs, data.targets, minibatch, 1 / (self.prior_variance * len(inputs)))
        self.posterior = LogisticPosterior(inputs, data.targets, self.prior_variance)
        """The density itself, in double precision."""

    def settings(self) -> dict[str, Any]:
        return {"minibatch": None if self.whole else self.minibatch, "prior_variance": self.prior_variance}

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.sigmoid(outputs) - targets

    def mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets.expand_as(outputs))

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
        """Return U of all examples and the prior."""
        points = np.asarray(theta, dtype=np.float64)
        return self.posterior.potential(points), self.posterior.gradient(points)

    def reference(self) -> Exact:
        """Return the moments of a long exact chain, drawn when first asked for (seconds)."""
        found = self._target.reference
        moments = Gaussian(mean=found.mean, covariance=found.covariance)
        return Exact(moments=moments, source=f"HMC, {found.chains} chains of {found.draws} draws")


class Australian(LogisticRegression):
    """Statlog's Australian credit approval: 690 examples, 15 coefficients."""

    name = "blr-australian"
    dataset = "australian"
    defaults = _defaults(4.0, 8.0)


class German(LogisticRegression):
    """Statlog's German credit, numeric version: 1,000 examples, 25 coefficients."""

    name = "blr-german"
    dataset = "german"
    defaults = _defaults(2.5, 5.0)


class Heart(LogisticRegression):
    """Statlog's heart disease: 270 examples, 14 coefficients."""

    name = "blr-heart"
    dataset = "heart"
    defaults = _defaults(4.0, 6.0)


def design(features: Array) -> Array:
    """Return [n, 1 + features]: a column of ones, then every feature with mean 0 and sd 1 (0 where it is constant)."""
    away = features - features.mean(0)
    sd = away.std(0)
    scaled = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0)
    return np.concatenate([np.ones((len(features), 1)), scaled], axis=1)


class LogisticPosterior:
    """U(θ) = Σᵢ log(1 + exp(−sᵢ·xᵢᵀθ)) + ‖θ‖²/(2v), s = ±1: every datum's likelihood and the prior N(0, vI).

    U is strictly convex, so that it has one mode.
    """

    def __init__(self, inputs: Any, labels: Any, prior_variance: float) -> None:
        self.inputs = np.asarray(inputs, dtype=np.float64)
        self.labels = np.asarray(labels, dtype=np.float64)
        self.prior_variance = float(prior_variance)

    def potential(self, theta: Array) -> Array:
        """Return U [...] at ``theta`` [..., dim]."""
        logits = theta @ self.inputs.T
        # log(1 + e^t) − y·t is −log p(y) and overflows nowhere.
        losses = np.logaddexp(0.0, logits) - self.labels * logits
        return np.asarray(losses.sum(-1) + (theta**2).sum(-1) / (2 * self.prior_variance))

    def gradient(self, theta: Array) -> Array:
        """Return ∇U [..., dim] at ``theta`` [..., dim]."""
        errors = sigmoid(theta @ self.inputs.T) - self.labels
        return np.asarray(errors @ self.inputs + theta / self.prior_variance)

    def hessian(self, theta: Array) -> Array:
        """Return ∇²U, [dim, dim], at ``theta`` [dim]."""
        p = sigmoid(self.inputs @ theta)
        curvature = (self.inputs * (p * (1 - p))[:, None]).T @ self.inputs
        return curvature + np.eye(len(theta)) / self.prior_variance

    @cached_property
    def mode(self) -> Array:
        """The minimum of U, [dim].

        Raises:
            RaychainsError: it was not found, which convexity rules out for finite inputs of ordinary size.
        """
        derivatives: Any = {"jac": self.gradient, "hess": self.hessian}
        start = np.zeros(self.inputs.shape[1])
        found = minimize(self.potential, start, method="trust-exact", options={"gtol": GRADIENT}, **derivatives)
        gradient = self.gradient(found.x)
        step = np.linalg.solve(self.hessian(found.x), gradient)
        if not gradient @ step < ROUNDING:
            raise RaychainsError("the posterior's mode was not found")
        return np.asarray(found.x - step)  # so near that the potential's last bits decide nothing

    def reference(self, seed: int = 0, **settings: Any) -> Reference:
        """Return mean and covariance by Hamiltonian Monte Carlo around the mode; ``settings`` are `reference`'s."""
        covariance = np.linalg.inv(self.hessian(self.mode))
        return reference(self.potential, self.gradient, centre=self.mode, covariance=covariance, seed=seed, **settings)


def sigmoid(t: Array) -> Array:
    """Return 1/(1 + e^−t) without overflow."""
    small = np.exp(-np.abs(t))
    return np.where(t >= 0, 1.0, small) / (1 + small)
