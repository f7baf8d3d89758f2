"""What a run comes to: results of views, seconds of chains, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.planning.views import Request


@dataclass(frozen=True)
class ViewKey:
    """One arm's group of repeats: what one predictive is formed from."""

    arm: int
    group: int


@dataclass(frozen=True, kw_only=True)
class ViewResult:
    """What `EvaluationWorker.summarise` found."""

    key: ViewKey
    request: Request
    """What was asked for: the equally weighted view of all samples unless the caller asked for others."""
    samples: int
    chains: int
    """Chains that it is formed from: without those that were dropped."""
    metrics: list[dict[str, float]]
    """One dict per repeat."""
    curves: list[dict[str, list[float]]]
    """Per repeat, metrics of the view's first 1, 2, … samples."""
    rows: Mapping[str, Any]
    """Columns [examples]; empty where the request does not want them."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to."""

    views: dict[tuple[int, int], ViewResult] = field(default_factory=dict)
    """Results by (arm, group): of the view of all samples. Empty where the caller asked for certain views."""
    requested: Sequence[ViewResult] = ()
    """Results of the views that the caller asked for, in that order."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Chain seconds by digest, of the whole chain."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why each chain that was given up failed, or was dropped."""
    stopped: bool = False
    """Whether the person stopped the run before its end."""
    samples: int = 0
    evaluated_while_sampling: float | None = None
    """Share of the predictions that were made before the last sample came; None when no chain ran."""
