"""What an analysis of a run is given, and what it gives: tables in the run's folder, which the report draws from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from raychains.planning import Comparison
from raychains.store import RunStore

if TYPE_CHECKING:
    from raychains.orchestration.outcome import ViewResult
    from raychains.planning.points import Point
    from raychains.planning.views import Request
    from raychains.predictive import Selection
    from raychains.tasks import Task

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by the name of their table: STORE/runs/NAME/<table>.parquet."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A run whose chains are finished, and the cluster's evaluators. Everything but ``store`` is asked for lazily."""

    store: RunStore
    """The run's folder."""
    comparison: Comparison
    split: str
    """The split that the run is evaluated on."""
    task: Task
    groups: Sequence[tuple[int, int]]
    """(arm, group of repeats) that can be analysed: all of their chains finished, or were dropped."""
    select: Callable[[int, int], Selection]
    """The samples of one arm and group in the order of views, first draws of all chains first. Networks only."""
    evaluate: Callable[[str, Sequence[Request]], list[ViewResult]]
    """Views on a split, by the distributed evaluators; predictions are kept in the store and not made twice."""
    predictions: Callable[[int, int], Iterator[np.ndarray[Any, Any]]]
    """What each sample of `select` predicts on ``split``: log-probabilities [examples, classes]. Read from the store."""
    measure: Callable[[str, Sequence[Point]], list[dict[str, float]]]
    """Metrics of networks between or around samples on a split, by the distributed evaluators, in the points' order."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Told what is done of how much."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the analyses that the person gave (bins, seed …)."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One kind of measures, asked for by name: ``raychains evaluate RUN --measures NAME``."""

    name: str
    about: str
    """One line for people."""
    tables: Callable[[Context], Tables]
    why_not: Callable[[Context], str | None] = field(default=lambda context: None)
    """Why it says nothing about this run ("task gaussian is a density …"); None where it does."""
