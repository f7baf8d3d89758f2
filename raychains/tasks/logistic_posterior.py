"""The posterior density of Bayesian logistic regression: potential, gradient, curvature, mode and exact moments."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from raychains.errors import RaychainsError
from raychains.evaluation.base import Array
from raychains.evaluation.hmc import Reference, reference

NEWTON_STEPS, SMALLEST = 100, 1e-10
"""At most so many, none shortened to less than that share."""
EXACT, ROUNDING = 1e-20, 1e-8
"""Twice the distance of U from its minimum at which a point is the mode, and at which one whole step more is."""


class LogisticPosterior:
    """U(θ) = Σᵢ log(1 + exp(−sᵢ·xᵢᵀθ)) + ‖θ‖²/(2v), s = ±1: every datum's likelihood and the prior N(0, vI).

    U is strictly convex, so that it has one mode.

    Args:
        inputs: x, [n, dim].
        labels: [n], 0 or 1.
        prior_variance: v.
    """

    def __init__(self, inputs: Any, labels: Any, prior_variance: float) -> None:
        self.inputs = np.asarray(inputs, dtype=np.float64)
        self.labels = np.asarray(labels, dtype=np.float64)
        self.prior_variance = float(prior_variance)

    def potential(self, theta: Array) -> Array:
        """U [...] at ``theta`` [..., dim]."""
        logits = theta @ self.inputs.T
        # log(1 + e^t) − y·t is −log p(y) and overflows nowhere.
        losses = np.logaddexp(0.0, logits) - self.labels * logits
        return np.asarray(losses.sum(-1) + (theta**2).sum(-1) / (2 * self.prior_variance))

    def gradient(self, theta: Array) -> Array:
        """∇U [..., dim] at ``theta`` [..., dim]."""
        errors = sigmoid(theta @ self.inputs.T) - self.labels
        return np.asarray(errors @ self.inputs + theta / self.prior_variance)

    def hessian(self, theta: Array) -> Array:
        """∇²U, [dim, dim], at ``theta`` [dim]."""
        p = sigmoid(self.inputs @ theta)
        curvature = (self.inputs * (p * (1 - p))[:, None]).T @ self.inputs
        return curvature + np.eye(len(theta)) / self.prior_variance

    @cached_property
    def mode(self) -> Array:
        """The minimum of U, [dim], by Newton's method with halved steps.

        Raises:
            RaychainsError: it was not found, which convexity rules out for finite inputs of ordinary size.
        """
        theta = np.zeros(self.inputs.shape[1])
        for _ in range(NEWTON_STEPS):
            energy, gradient = self.potential(theta), self.gradient(theta)
            step = np.linalg.solve(self.hessian(theta), gradient)
            gain = float(gradient @ step)
            if gain < EXACT:
                return theta
            size = 1.0
            while size > SMALLEST and self.potential(theta - size * step) > energy - 1e-4 * size * gain:
                size /= 2
            if size <= SMALLEST and gain < ROUNDING:
                return theta - step  # so near that the potential's last bits decide nothing
            theta = theta - size * step
        raise RaychainsError("the posterior's mode was not found")

    def reference(self, seed: int = 0, **settings: Any) -> Reference:
        """Mean and covariance by Hamiltonian Monte Carlo around the mode; ``settings`` are `reference`'s."""
        covariance = np.linalg.inv(self.hessian(self.mode))
        return reference(self.potential, self.gradient, centre=self.mode, covariance=covariance, seed=seed, **settings)


def sigmoid(t: Array) -> Array:
    """1/(1 + e^−t) without overflow."""
    small = np.exp(-np.abs(t))
    return np.where(t >= 0, 1.0, small) / (1 + small)
