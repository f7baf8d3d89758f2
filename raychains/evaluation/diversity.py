"""How different samples are: distances and angles in weight space, clusters, a map of them, the line between two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.vectors import combined

CHUNK = 1 << 17
"""Coordinates compared at a time in double precision: 1 MB."""
CLEAR = 0.5
"""A mean silhouette above this speaks for clusters (Kaufman & Rousseeuw 1990: "reasonable structure")."""
MOST_CLUSTERS = 6


@dataclass(frozen=True, kw_only=True)
class Pairwise:
    """Samples against each other in weight space."""

    distance: Array
    """‖θ_i − θ_j‖₂, [samples, samples], 0 on the diagonal."""
    cosine: Array
    """θ_i·θ_j/(‖θ_i‖‖θ_j‖), [samples, samples], 1 on the diagonal; nan for a vector of zeros."""
    norm: Array
    """‖θ_i‖₂, [samples]."""


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """How many groups the samples form."""

    count: int
    """The number with the largest silhouette above .5; 1 when none is above."""
    labels: Array
    """The cluster of each sample, [samples], numbered by first appearance; all 0 when there is one."""
    silhouettes: Mapping[int, float]
    """Mean silhouette for each number of clusters that was tried."""


def pairwise(read: Callable[[int], Array], count: int, *, hold: int = 8) -> Pairwise:
    """Distances and cosines of ``count`` flat vectors, of which at most ``hold`` + 1 are in memory at once.

    Sums run in float64 over chunks of the coordinates, of differences and not of products, so that close vectors lose
    no digits. Vectors are read about count²/(2·hold) + count/2 times in all; with ``hold`` ≥ count each once.

    Args:
        read: gives vector i, [d], the same at each call (`vectors.flat` of a sample read from the store).
        count: how many there are.
        hold: how many to hold besides the one that they are compared with.

    Raises:
        UserError: ``count`` or ``hold`` below 1, or vectors of different lengths.
    """
    require(count >= 1, "count", count, "be at least 1")
    require(hold >= 1, "hold", hold, "be at least 1")
    squared, dot = np.zeros((count, count)), np.zeros((count, count))
    for start in range(0, count, hold):
        block = range(start, min(start + hold, count))
        held = [np.asarray(read(i)) for i in block]
        for j in range(start, count):
            other = held[j - start] if j in block else np.asarray(read(j))
            for i, one in zip(block, held, strict=True):
                if i <= j:
                    squared[i, j], dot[i, j] = squared[j, i], dot[j, i] = _compare(one, other)
            del other, one  # before the next is read
        del held
    norm = np.sqrt(np.diagonal(dot))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.clip(dot / np.outer(norm, norm), -1, 1)
    np.fill_diagonal(cosine, np.where(norm > 0, 1.0, np.nan))
    return Pairwise(distance=np.sqrt(squared), cosine=cosine, norm=norm)


def mds(distance: Any, *, dimensions: int = 2, seed: int = 0, starts: int = 4) -> tuple[Array, float]:
    """Points whose distances match ``distance`` as well as points can (metric MDS by SMACOF of scikit-learn; Fig. 3a).

    The best of ``starts`` random configurations and the classical solution. Axes are turned to the principal ones, signs
    fixed by each axis' largest coordinate, so that the same distances give the same picture; axes have no meaning.

    Args:
        distance: [samples, samples], symmetric, in the unit of θ.
        dimensions: of the points.
        seed: of the random configurations.
        starts: how many of them.

    Returns:
        The points [samples, dimensions], centred, in the unit of θ; and Kruskal's stress-1, √(Σ(d̂−d)²/Σd²): below .05
        the picture can be read as distances, above .2 it says little (Kruskal 1964).

    Raises:
        UserError: no distance matrix.
    """
    import warnings

    from sklearn.manifold import smacof

    d = _distances(distance)
    require(dimensions >= 1, "dimensions", dimensions, "be at least 1")
    unit = d.max()
    if unit == 0:
        return np.zeros((len(d), dimensions)), 0.0
    best, least = np.empty(0), np.inf
    rng = np.random.RandomState(seed)
    inits = [classical(d / unit, dimensions), *(rng.uniform(size=(len(d), dimensions)) for _ in range(starts))]
    for init in inits:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of defaults that are all given here
            points, _ = smacof(
                d / unit, n_components=dimensions, init=init, n_init=1, max_iter=500, eps=1e-9, normalized_stress=False
            )
        found = stress(points, d / unit)
        if found < least:
            best, least = points, found
    best = best - best.mean(0)
    best = best @ np.linalg.svd(best, full_matrices=True)[2].T
    best *= np.where(best[np.abs(best).argmax(0), np.arange(dimensions)] < 0, -1.0, 1.0)
    return best * unit, least


def classical(distance: Array, dimensions: int) -> Array:
    """Torgerson's scaling: the leading eigenvectors of the doubly centred −d²/2, [samples, dimensions]."""
    n = len(distance)
    centring = np.eye(n) - 1 / n
    eigenvalues, axes = np.linalg.eigh(-centring @ distance**2 @ centring / 2)
    out = np.zeros((n, dimensions))
    k = min(dimensions, n)
    out[:, :k] = (axes * np.sqrt(np.maximum(eigenvalues, 0)))[:, ::-1][:, :k]
    return out


def stress(points: Array, distance: Array) -> float:
    """Kruskal's stress-1 of ``points`` [samples, k] for ``distance`` [samples, samples]."""
    found = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    return float(np.sqrt(((found - distance) ** 2).sum() / (distance**2).sum()))


def clusters(distance: Any, *, most: int = MOST_CLUSTERS, clear: float = CLEAR) -> Clusters:
    """The number of clusters with the largest mean silhouette, k in 2…``most``; 1 when none exceeds ``clear``.

    Average linkage on the distances themselves, not on a map of them. A silhouette compares a sample's mean distance
    to its own cluster with that to the nearest other one; in many dimensions independent draws of one mode are all
    equally far apart and it is near 0. A chain that drifts without ever stopping may pass for two clusters.

    Args:
        distance: [samples, samples], symmetric.
        most: largest number tried (at most samples − 1).
        clear: what a silhouette must exceed.

    Raises:
        UserError: no distance matrix.

    Source: Rousseeuw 1987; computed by scikit-learn.
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    d = _distances(distance)
    found: dict[int, float] = {}
    labels: dict[int, Array] = {}
    for k in range(2, min(most, len(d) - 1) + 1):
        labels[k] = AgglomerativeClustering(n_clusters=k, metric="precomputed", linkage="average").fit_predict(d)
        found[k] = float(silhouette_score(d, labels[k], metric="precomputed")) if d.any() else 0.0
    best = max(found, key=lambda k: found[k], default=1)
    if best == 1 or not found[best] > clear:
        return Clusters(count=1, labels=np.zeros(len(d), dtype=int), silhouettes=found)
    _, first, inverse = np.unique(labels[best], return_index=True, return_inverse=True)
    return Clusters(count=best, labels=np.argsort(np.argsort(first))[inverse], silhouettes=found)


def between(
    one: Mapping[str, Any], other: Mapping[str, Any], share: float, *, parameters: Collection[str] | None = None
) -> dict[str, Any]:
    """The sample at (1 − share)·θ₁ + share·θ₂ (Fig. 3b), named tensors as in either; at 0 and 1 the very samples.

    Buffers are no parameters: BatchNorm's running means and variances at the point are not those between the ends'. The
    floating ones are put on the line all the same, as a start; for an error that means something have them estimated
    anew (`models.batchnorm.reestimate`) at *every* point, the ends included, or use a network without BatchNorm. Else
    a spike in the middle may be the statistics' and not the loss surface's. Integer buffers are ``one``'s below a share
    of 1.

    Args:
        one: θ₁ with its buffers.
        other: θ₂, of the same names, shapes and types.
        share: of θ₂, in [0, 1]; beyond it extrapolates.
        parameters: names to put on the line; what is not named is as in ``one``. Default: every floating tensor.

    Raises:
        UserError: samples of different names or shapes, or a share that is not finite.
    """
    same = list(one) == list(other) and all(tuple(one[n].shape) == tuple(other[n].shape) for n in one)
    require(same, "samples", "other names or shapes", "be of the same network")
    require(bool(np.isfinite(share)), "share", share, "be finite")
    if share in (0, 1):
        return dict(other if share == 1 else one)
    line = combined([(1 - share, one), (share, other)])
    return line if parameters is None else {n: line[n] if n in parameters else a for n, a in one.items()}


def _compare(one: Array, other: Array) -> tuple[float, float]:
    """‖one − other‖² and one·other, in float64."""
    require(one.shape == other.shape, "vectors", other.shape, f"have the same shape, {one.shape}")
    squared = dot = 0.0
    for at in range(0, len(one), CHUNK):
        a, b = one[at : at + CHUNK].astype(np.float64), other[at : at + CHUNK].astype(np.float64)
        dot += float(a @ b)
        a -= b
        squared += float(a @ a)
    return squared, dot


def _distances(distance: Any) -> Array:
    d = np.asarray(distance, dtype=np.float64)
    good = d.ndim == 2 and d.shape[0] == d.shape[1] and len(d) > 0
    require(good, "distance", d.shape, "have the shape [samples, samples]")
    fine = bool(np.isfinite(d).all() and (d >= 0).all() and np.allclose(d, d.T) and not np.diagonal(d).any())
    require(fine, "distance", "another matrix", "be finite, symmetric, not negative and 0 on the diagonal")
    return (d + d.T) / 2
