"""Points: networks between and around stored samples, as plain data that tells any process how to make them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raychains.core.errors import require
from raychains.core.spec import ChainSpec, digest_of
from raychains.store import SampleRecord, initial_states

NORMALISE = ("filter", "none")


@dataclass(frozen=True, kw_only=True)
class Term:
    """A stored sample with its coefficient."""

    coefficient: float
    digest: str
    """Digest of the chain's spec."""
    file: str
    """In the chain's folder."""
    sha256: str
    """Hash of the sample's tensors, checked when it is read."""
    start: str | None = None
    """The tensors that complete a sample that holds only some of the network's parameters."""

    def __post_init__(self) -> None:
        require(math.isfinite(self.coefficient), "coefficient", self.coefficient, "be finite")


@dataclass(frozen=True, kw_only=True)
class Point:
    """θ = Σ_i c_i·θ_i + Σ_j a_j·d_j: a linear combination of samples, moved along seeded random directions.

    Parameters that the samples do not hold, since they were not sampled, are not moved.
    """

    samples: tuple[Term, ...]
    directions: tuple[tuple[float, int], ...] = ()
    """(a_j, seed of d_j). Directions are standard normal, scaled as ``normalise`` says."""
    normalise: str = "filter"
    """``filter``: every filter (row of a linear layer) of d_j has the norm that it has in Σ_i c_i·θ_i, and tensors of
    one axis (biases, normalisation layers) do not move (Li et al. 2018). ``none``: d_j as drawn, in the unit of θ."""
    reestimate: bool = False
    """BatchNorm's running statistics from one pass over the training data; nothing where the network has none."""
    fisher: int = 0
    """Above 0: instead of the split's metrics, the spectrum of the diagonal empirical Fisher on this many training
    examples (`raychains.evaluation.loss_landscape.spectrum`)."""

    def __post_init__(self) -> None:
        require(len(self.samples) > 0, "samples", self.samples, "be at least one term")
        require(self.normalise in NORMALISE, "normalise", self.normalise, f"be one of {', '.join(NORMALISE)}")
        require(self.fisher >= 0, "fisher", self.fisher, "be 0 or more training examples")
        require(all(math.isfinite(a) for a, _ in self.directions), "directions", self.directions, "be finite")

    @property
    def key(self) -> str:
        """sha256 of what the network is made of: equal tensors under other file names are the same point."""
        made_of: dict[str, Any] = {"samples": [[t.coefficient, t.sha256, t.start] for t in self.samples]}
        if self.directions:
            made_of |= {"directions": [list(d) for d in self.directions], "normalise": self.normalise}
        if self.reestimate:
            made_of["reestimate"] = True
        if self.fisher:
            made_of["fisher"] = self.fisher
        return digest_of(made_of)


def combination(parts: Sequence[tuple[float, ChainSpec, SampleRecord]], **settings: Any) -> Point:
    """The point Σ_i c_i·θ_i of (coefficient, its chain, its record); coefficients of 0 fall out."""
    terms = [
        Term(coefficient=float(c), digest=s.digest, file=r.file, sha256=r.sha256, start=initial_states.needed(s))
        for c, s, r in parts
        if c != 0
    ]
    return Point(samples=tuple(terms), **settings)
