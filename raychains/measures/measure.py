"""The interface of a measure of a finished run: its context, its tables in the run's folder, its figures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from raychains.core.errors import UserError
from raychains.data.fetch import without_downloads
from raychains.planning import Comparison
from raychains.store import RunStore

if TYPE_CHECKING:
    from raychains.inference.predictive import Selection
    from raychains.inference.run_data import RunData
    from raychains.planning.points import Point
    from raychains.planning.views import Request, ViewResult
    from raychains.plotting.style import Drawing
    from raychains.tasks import Task

log = logging.getLogger(__name__)

T = TypeVar("T")


def _networks(*about: Any) -> NoReturn:
    raise UserError("measures: this one reads networks, and the task is a density")


Row = dict[str, Any]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by the name of their table: STORE/runs/NAME/<table>.parquet."""
Figure = Callable[["RunData"], "Drawing | None"]
"""Draws one figure from the run's tables; None where they show nothing."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A run whose chains are finished, and the cluster's evaluators. Everything but ``store`` is read on demand."""

    store: RunStore
    """The run's folder."""
    comparison: Comparison
    split: str
    """The split that the run is evaluated on."""
    task: Task
    groups: Sequence[tuple[int, int]]
    """(arm, group of repeats) that can be measured: all of their chains finished, or were dropped."""
    select: Callable[[int, int], Selection] = _networks
    """The samples of one arm and group in the order of views, first draws of all chains first. Networks only."""
    evaluate: Callable[[str, Sequence[Request]], list[ViewResult]] = _networks
    """Views on a split, by the distributed evaluators; predictions are kept in the store and not made twice."""
    predictions: Callable[[int, int], Iterator[np.ndarray[Any, Any]]] = _networks
    """Each sample's log-probabilities [examples, classes] on ``split``, in the order of `select`, read from the
    store."""
    measure: Callable[[str, Sequence[Point]], list[dict[str, float]]] = _networks
    """Metrics of networks between or around samples on a split, by the distributed evaluators, in the points' order."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Called with what is measured, and how much of how much is done."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The user's settings of measures (bins, seed, reference …)."""

    @property
    def seed(self) -> int:
        """The setting ``seed``, 0 by default."""
        return int(self.settings.get("seed", 0))

    def counted(self, what: str, items: Sequence[T]) -> Iterator[T]:
        """Yield the items, with the progress of ``what``."""
        for done, item in enumerate(items):
            self.progress(what, done, len(items))
            yield item
        self.progress(what, len(items), len(items))

    def arm_name(self, arm: int) -> str:
        """Return the name of the arm at a position."""
        return self.comparison.arms[arm].name

    def key(self, arm: int, group: int) -> Row:
        """Return the columns that say which predictive of the run a row is about."""
        return {"arm": self.arm_name(arm), "group": group, "repeat": group}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure, chosen by name: ``raychains evaluate RUN --measures NAME``."""

    name: str
    about: str
    """One line for people."""
    section: str = "Measures"
    """The heading of the run's page under which its figures stand."""
    tables: Callable[[Context], Tables]
    why_not: Callable[[Context], str | None] = field(default=lambda context: None)
    """The reason for which it does not apply to a run ("task gaussian is a density …"); None where it does."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """By name; each is drawn from the measure's tables."""
    in_words: Callable[[RunData], Sequence[str]] = field(default=lambda run: ())
    """Lines with its numbers, by which a command ends."""
    takes_reference: bool = False
    """True if it compares with the setting ``reference``."""


def no_classes(context: Context) -> str | None:
    """Return the reason where the run's task is no classification of whole examples."""
    from raychains.inference.families import family_of  # and torch with it

    family, name = family_of(context.task), context.comparison.task
    if context.task.low_dimensional or family.numbers:
        return f"task {name} is no classification"
    return None if family.one_label else f"task {name} has labels per position, and this needs one label per example"


def class_weights(context: Context) -> str | None:
    """Return the reason where chains sample a loss with class weights, of which a split's log p knows nothing."""
    weighted = getattr(getattr(context.task, "likelihood", None), "weights", None) is not None
    return f"task {context.comparison.task} has class weights, which its log p on a split has not" if weighted else None


def not_labelled(context: Context) -> str | None:
    """Return the reason where there is neither confidence nor correctness on the run's split."""
    if reason := no_classes(context):
        return reason
    return f"the inputs of the split {context.split} have no labels" if context.split.startswith("ood:") else None


def networks_only(context: Context) -> str | None:
    """Return the reason where the run's samples are no networks."""
    name = context.comparison.task
    return f"task {name} is a density, its draws are no networks" if context.task.low_dimensional else None


def two_samples(context: Context, purpose: str) -> str | None:
    """Return the reason where no arm has two networks ``purpose`` (to compare, …)."""
    if reason := networks_only(context):
        return reason
    some = any(len(context.select(a, g).records) > 1 for a, g in context.groups)
    return None if some else f"no arm has two samples {purpose}"


def offered_splits(context: Context, prefix: str) -> list[str]:
    """Return the names of the task's splits that begin with ``prefix``, whether their data are there or not."""
    return [name for name in context.task.splits() if name.startswith(prefix)]


def available_splits(context: Context, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return those of the splits whose data are there, and the reasons of the others; nothing is downloaded."""
    available: list[str] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            with without_downloads():
                context.task.splits()[name]
            available.append(name)
        except UserError as error:
            missing[name] = str(error)
            log.warning("split %s is left out: %s", name, error)
    return available, missing
