"""Views: which of an arm's samples one predictive is formed from, and with which weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.core.errors import UserError, require
from raychains.core.sample import SampleMeta

KINDS = ("all", "chains", "cycles", "stages", "samples", "variables", "without-chain", "first:N")
"""Kinds of views: ``first:N`` takes the N samples that come first, the first draws of all chains first."""

Key = tuple[str, str, int]
"""(chain digest, variable, index): a sample of a run."""
Member = tuple[int, SampleMeta]
"""A sample of an arm and group of repeats with its chain's position in the arm, from 0."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A named selection of one arm's samples in one group of repeats; a None field does not filter."""

    name: str = "all"
    kind: str = "all"
    chain: int | None = None
    """Position of the chain in the arm that is taken, from 0."""
    without: int | None = None
    """Position of the chain that is left out."""
    cycle: int | None = None
    stage: str | None = None
    variable: str | None = None
    """``theta``, or another variable that the sampler draws."""
    sample: Key | None = None
    first: int | None = None
    """Number of samples taken of those that the other fields select."""

    def takes(self, position: int, meta: SampleMeta) -> bool:
        """Return whether a sample of the arm's chain at ``position`` belongs to the view, ``first`` aside."""
        return (
            self.chain in (None, position)
            and self.without != position
            and self.cycle in (None, meta.cycle)
            and self.stage in (None, meta.stage)
            and self.variable in (None, meta.variable)
            and self.sample in (None, key_of(meta))
        )

    def of(self, samples: Sequence[Member]) -> list[SampleMeta]:
        """The view's samples, in the order of ``samples``."""
        return [meta for position, meta in samples if self.takes(position, meta)][: self.first]


ALL = View()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One view of one arm and group of repeats, and how its samples are weighted."""

    arm: int
    group: int
    view: View = ALL
    weighting: str = "equal"
    """Name of the weights, for people and tables."""
    weights: Mapping[Key, float] | None = field(default=None, compare=False)
    """Weight of each sample, normalised over the view; None gives all the same."""
    rows: bool = True
    """True if the rows of all examples are returned beside the metrics."""

    def weights_of(self, samples: Sequence[SampleMeta]) -> list[float] | None:
        """Weights of the view's samples, sum 1; None where all are the same.

        Raises:
            UserError: a sample has none, one is negative or not finite, or all are 0.
        """
        if self.weights is None:
            return None
        found = []
        for meta in samples:
            weight = self.weights.get(key_of(meta))
            if weight is None:
                raise UserError(
                    f"weights of view {self.view.name!r} must name every sample of it, got none of sample {meta.index} "
                    f"({meta.variable}) of chain {meta.digest[:12]}"
                )
            found.append(float(weight))
        for weight in found:
            require(math.isfinite(weight) and weight >= 0, "weights", weight, "be finite and not negative")
        largest = max(found, default=0.0)
        require(largest > 0, "weights", largest, f"not all be 0 in view {self.view.name!r}")
        scaled = [weight / largest for weight in found]
        total = math.fsum(scaled)
        return [weight / total for weight in scaled] if len(set(found)) > 1 else None


def key_of(meta: SampleMeta) -> Key:
    """Return the key of a sample among those of a run."""
    return (meta.digest, meta.variable, meta.index)


def check(kinds: Sequence[str]) -> None:
    """Refuse names that are no kinds of views.

    Raises:
        UserError: one is not.
    """
    for kind in kinds:
        if kind not in KINDS[:-1] and not re.fullmatch(r"first:[1-9]\d{0,8}", kind):
            raise UserError(f"views must be of {', '.join(KINDS)}, got {kind!r}")


def expand(kinds: Sequence[str], samples: Sequence[Member]) -> list[View]:
    """The views of one arm and group of repeats.

    Args:
        samples: each sample with its chain's position in the arm, the first draws of all chains first.

    Raises:
        UserError: an unknown kind, ``first:N`` of more samples than there are, or cycles of a density.
    """
    check(kinds)
    return [view for kind in dict.fromkeys(kinds) for view in _of_kind(kind, samples)]


def _of_kind(kind: str, samples: Sequence[Member]) -> list[View]:
    chains = sorted({position for position, _ in samples})
    match kind:
        case "all":
            return [ALL]
        case "chains":
            return [View(name=f"chain:{c}", kind=kind, chain=c) for c in chains]
        case "without-chain":
            return [View(name=f"without-chain:{c}", kind=kind, without=c) for c in chains if len(chains) > 1]
        case "cycles":
            if any(meta.draws > 1 for _, meta in samples):
                raise UserError(
                    f"views must be others than {kind!r} for a density, whose draws are kept in blocks that span "
                    "cycles: `measures=diagnostics` takes each cycle by itself"
                )
            cycles = sorted({meta.cycle for _, meta in samples})
            return [View(name=f"cycle:{c}", kind=kind, cycle=c) for c in cycles]
        case "stages":
            return [
                View(name=f"stage:{s}", kind=kind, stage=s) for s in dict.fromkeys(meta.stage for _, meta in samples)
            ]
        case "variables":
            variables = dict.fromkeys(meta.variable for _, meta in samples)
            return [View(name=f"variable:{v}", kind=kind, variable=v) for v in variables]
        case "samples":
            return [
                View(name=f"sample:{position}:{meta.index}:{meta.variable}", kind=kind, sample=key_of(meta))
                for position, meta in samples
            ]
    n = int(kind.partition(":")[2])
    require(n <= len(samples), "views: first:N", kind, f"have an N in [1, {len(samples)}], the arm's samples")
    return [View(name=kind, kind="first", first=n)]


@dataclass(frozen=True)
class ViewKey:
    """One arm's group of repeats: what one predictive is formed from."""

    arm: int
    group: int


@dataclass(frozen=True, kw_only=True)
class ViewResult:
    """The result of `EvaluationWorker.summarise`."""

    key: ViewKey
    request: Request
    """The request: the equally weighted view of all samples unless the caller asked for others."""
    samples: int
    chains: int
    """Chains that it is formed from: without those that were dropped."""
    metrics: list[dict[str, float]]
    """One dict per repeat."""
    curves: list[dict[str, list[float]]]
    """Per repeat, metrics of the view's first 1, 2, … samples."""
    rows: Mapping[str, Any]
    """Columns [examples]; empty where the request does not want them."""
