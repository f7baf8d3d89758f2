"""Distances of an ensemble's predictive to a reference's, example by example, from averages to which each sample adds
its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch

from raychains.evaluation.classification import Average
from raychains.evaluation.evaluation import Array
from raychains.evaluation.regression import moments
from raychains.measures.agreement import same_top, variations

METRICS = ("agreement", "total_variation", "w2", "sd_ratio")
LINE_BINS, REACH = 100, 5.0
"""A real target's line is cut into so many bins of equal width, within so many of the reference's standard
deviations."""


class Distance(ABC):
    """A distance between predictives: the numbers of a sample's block that are averaged, and how far two averages are
    apart."""

    metrics: ClassVar[tuple[str, ...]]
    """Those of `METRICS` that it has."""
    reference: Array
    """The reference's average, [examples, numbers]."""

    @abstractmethod
    def summary(self, block: Array) -> Array:
        """Return what is averaged of one sample's block, [examples, numbers], float64."""

    @abstractmethod
    def between(self, mean: Array, other: Array) -> Array:
        """Return the metrics of an average beside another one for each example, [examples, metrics]."""

    def points(self, mean: Array) -> Array:
        """Return the metrics of an average beside the reference for each example, [examples, metrics]; nan where it is
        not finite."""
        found = np.full((len(mean), len(self.metrics)), np.nan)
        ok = np.isfinite(mean).all(axis=1)
        found[ok] = self.between(mean[ok], self.reference[ok])
        return found

    def average(self, blocks: Iterable[Array]) -> Array:
        """Return the average of samples' blocks, [examples, numbers]."""
        total: Any = 0.0
        count = 0
        for block in blocks:
            total, count = total + self.summary(block), count + 1
        return np.asarray(total / count)


class OfClasses(Distance):
    """Distances between probabilities of classes: the same top class, and total variation ½ Σ_c |p_c − q_c|.

    Args:
        reference: probabilities [examples, classes].
    """

    metrics = ("agreement", "total_variation")

    def __init__(self, reference: Array) -> None:
        self.reference = reference

    def summary(self, block: Array) -> Array:
        return np.exp(block.astype(np.float64))

    def between(self, mean: Array, other: Array) -> Array:
        return np.stack([same_top(mean, other), variations(mean, other)], axis=1)


class OfDensities(Distance):
    """Distances between predictive densities of one real target, p(y | x) = (1/S) Σ_s N(y; μ_s, σ_s²).

    ``total_variation``: ½ Σ |p − q| over the probabilities of `LINE_BINS` bins and of what lies beyond, at most and
    nearly ½∫|p − q|.
    ``w2``: Wasserstein's distance between Gaussians of the same means and standard deviations,
    √((m − m′)² + (s − s′)²), in s′, the reference's standard deviation. ``sd_ratio``: the standard deviation of the μ_s
    over the reference's, 1 for draws of the posterior and 0 for one network.

    Args:
        draws: the reference's blocks [draws, examples, 2], μ and σ.
    """

    metrics = ("total_variation", "w2", "sd_ratio")

    def __init__(self, draws: Array) -> None:
        mean, std = moments(list(draws.astype(np.float64)))
        self._edges = mean + std * np.linspace(-REACH, REACH, LINE_BINS + 1)
        self.reference = self.average(draws)

    def summary(self, block: Array) -> Array:
        mu, sigma = np.split(block.astype(np.float64), [1], axis=1)
        below = torch.special.ndtr(torch.from_numpy((self._edges - mu) / sigma)).numpy()
        return np.concatenate([np.diff(below, axis=1, prepend=0.0, append=1.0), mu, mu**2, sigma**2], axis=1)

    def between(self, mean: Array, other: Array) -> Array:
        variation = variations(mean[:, :-3], other[:, :-3])
        (m, spread, std), (m_other, spread_other, std_other) = _moments(mean), _moments(other)
        w2 = np.sqrt((m - m_other) ** 2 + (std - std_other) ** 2) / std_other
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = spread / spread_other
        return np.stack([variation, w2, ratio], axis=1)


def to_draws(blocks: Array, classes: bool) -> Distance:
    """Return the distance to the predictive of a reference's blocks [draws, examples, …], of classes or of
    Gaussians."""
    if not classes:
        return OfDensities(blocks)
    average = Average.of(blocks)
    assert average is not None
    return OfClasses(average.mean)


def _moments(mean: Array) -> tuple[Array, Array, Array]:
    """Return the mean, the standard deviation of the μ_s and that of the whole predictive, each [examples]."""
    mu, squares, noise = mean[:, -3:].T
    between = np.maximum(squares - mu**2, 0.0)
    return mu, np.sqrt(between), np.sqrt(between + noise)
