"""How far the draws' moments are from those of a target that only an exact sampler knows."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, gather
from raychains.evaluation.hmc import Reference
from raychains.evaluation.moments import GaussianMoments


class SampledMoments(Evaluation):
    """`GaussianMoments` against a reference's mean and covariance, which are drawn when they are first needed.

    Blocks are sums about ``centre``, which is known exactly; so they do not depend on the reference, and predicting
    needs none. With the metrics comes ``sd_ratio``: the median over coordinates of max(r, 1/r), r the draws' standard
    deviation over the reference's; 1 is right.

    Args:
        centre: [dim], e.g. the mode.
        identity: names the target: equal for equal ones, on all machines.
        reference: draws it; called once.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        *GaussianMoments.metrics,
        Metric(name="sd_ratio", label="Standard deviation off by (factor, median)", better="lower"),
    )

    def __init__(self, *, centre: Any, identity: str, reference: Callable[[], Reference]) -> None:
        self._centre = np.asarray(centre, dtype=np.float64)
        self._blocks = GaussianMoments(mean=self._centre, covariance=np.eye(len(self._centre)))
        self._identity, self._draw, self._lock = identity, reference, threading.Lock()
        self._exact: tuple[Reference, GaussianMoments] | None = None

    @property
    def fingerprint(self) -> str:
        return f"sampled-moments/{hashlib.sha256(self._identity.encode()).hexdigest()}"

    @property
    def shards(self) -> int:
        return 1

    @property
    def reference(self) -> Reference:
        """What draws are compared with."""
        return self._known()[0]

    def warm(self) -> None:
        self._known()

    def _known(self) -> tuple[Reference, GaussianMoments]:
        with self._lock:  # `warm` runs beside the first question
            if self._exact is None:
                found = self._draw()
                self._exact = found, GaussianMoments(mean=found.mean, covariance=found.covariance)
            return self._exact

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Sums [lanes, 1 + dim + dim²] about the centre, float64: of 1, of z = θ − centre and of zzᵀ."""
        return self._blocks.predict(tensors, shard)

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        reference, exact = self._known()
        return exact.reduce([moved(b, reference.mean - self._centre) for b in blocks], shard, weights)

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        reference, exact = self._known()
        ratios = _sd_ratios(gather(parts)["sums"], reference.sd)
        return [{**m, "sd_ratio": float(r)} for m, r in zip(exact.summarise(parts), ratios, strict=True)]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        return self._known()[1].curve(parts)


def moved(sums: Array, away: Array) -> Array:
    """Sums [..., 1 + dim + dim²] of 1, z and zzᵀ as those of z − ``away``."""
    dim = len(away)
    count, first = sums[..., :1], sums[..., 1 : 1 + dim]
    second = sums[..., 1 + dim :].reshape(*sums.shape[:-1], dim, dim)
    crossed = first[..., :, None] * away
    second = second - crossed - np.swapaxes(crossed, -1, -2) + count[..., None] * np.outer(away, away)
    return np.concatenate([count, first - count * away, second.reshape(*sums.shape[:-1], dim * dim)], axis=-1)


def sd_ratio(draws: Any, sd: Array) -> Array:
    """Median over coordinates of max(r, 1/r) for draws [draws, ..., dim]: [...]; ``sd`` is the reference's, [dim].

    Infinite for draws that never move, nan where one is not finite.
    """
    values = np.asarray(draws, dtype=np.float64)
    return _off(values.std(axis=0) / sd)


def _sd_ratios(sums: Array, sd: Array) -> Array:
    dim = len(sd)
    mean = sums[..., 1 : 1 + dim] / sums[..., :1]
    squares = np.diagonal(
        (sums[..., 1 + dim :] / sums[..., :1]).reshape(*sums.shape[:-1], dim, dim), axis1=-2, axis2=-1
    )
    return _off(np.sqrt(np.maximum(squares - mean**2, 0.0)) / sd)


def _off(ratios: Array) -> Array:
    """Median over the last axis of max(r, 1/r)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.median(np.maximum(ratios, 1 / ratios), axis=-1))
