"""Which chain comes next: the points of a plan one after another, or what Optuna asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from raychains.errors import UserError
from raychains.orchestration.tuning.quiet import Unkept
from raychains.planning.space import Range
from raychains.planning.sweeping import Point, SweepPlan, Values
from raychains.spec import ChainSpec

TRIES = 100
"""Points in a row that Optuna may choose and that do not fit."""
Chain = tuple[Point, int]
"""A point and which of its repeats."""


class Search(Unkept, Searcher):
    """Hands chains to Tune, each once: points that come to the same chain share its trial.

    Args:
        ended: whether a chain needs no trial, given its digest.
        most: chains at once; None for no limit.
    """

    def __init__(self, ended: Callable[[str], bool], most: int | None) -> None:
        super().__init__()
        self._ended, self._most = ended, most
        self._running: dict[str, str] = {}
        """Digests by trial."""
        self.chains: dict[str, list[Chain]] = {}
        """All chains so far, with whose they are."""
        self.given_up: set[str] = set()
        """Chains whose trials broke down."""
        self._waiting: list[ChainSpec] = []
        self._lengths: dict[str, int] = {}

    def queue(self, points: Sequence[Point]) -> None:
        """Take points up: all first repeats come before all second ones."""
        for repeat in range(max((len(p.specs) for p in points), default=0)):
            for point in points:
                spec = point.specs[repeat]
                known = spec.digest in self.chains
                self.chains.setdefault(spec.digest, []).append((point, repeat))
                self._lengths[spec.digest] = point.length
                if not known and not self._ended(spec.digest):
                    self._waiting.append(spec)

    def suggest(self, trial_id: str) -> Any:
        """The next trial's config; None while nothing may start, FINISHED when nothing will."""
        if self._most is not None and len(self._running) >= self._most:
            return None
        if not self._waiting:
            self.more()
        if not self._waiting:
            return Searcher.FINISHED if self.complete else None
        spec = self._waiting.pop(0)
        self._running[trial_id] = spec.digest
        return {"digest": spec.digest, "spec": spec.to_json(), "length": self._lengths[spec.digest]}

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """A chain ended, however."""
        digest = self._running.pop(trial_id, None)
        if digest is not None:
            self.given_up |= {digest} if error else set()
            self.learn(digest)

    def more(self) -> None:
        """Queue further points, if there are any yet."""

    @property
    def complete(self) -> bool:
        """Whether `more` will never queue anything again."""
        return True

    def learn(self, digest: str) -> None:
        """A chain ended."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the sweep's folder has all of it."""

    def restore(self, checkpoint_path: str) -> None:
        """The same."""


class Asked(Search):
    """Points that Optuna's TPE sampler chooses, each by the results so far.

    Args:
        ended: as for `Search`.
        most: the same.
        plan: of the sweep.
        space: its ranges.
        make: the point of values, by number.
        asked: values of the points that earlier drivers of the sweep asked for.
        note: makes a point durable before it runs.
        score: the value of an ended chain of a point: (value, whether it ran to its end); None of a failed one.

    Raises:
        UserError: Optuna is not installed.
    """

    def __init__(
        self,
        ended: Callable[[str], bool],
        most: int | None,
        *,
        plan: SweepPlan,
        space: Mapping[str, Range],
        make: Callable[[int, Values], Point],
        asked: Sequence[Values],
        note: Callable[[int, Values], None],
        score: Callable[[str], tuple[float, bool] | None],
    ) -> None:
        super().__init__(ended, most)
        self._optuna = optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Another seed than the earlier driver's, whose first points would come again.
        sampler = optuna.samplers.TPESampler(seed=plan.seed + len(asked))
        direction = "minimize" if plan.metric.better == "lower" else "maximize"
        self._study = optuna.create_study(direction=direction, sampler=sampler)
        self._distributions = {name: _distribution(optuna, range_) for name, range_ in space.items()}
        self._plan, self._make, self._note, self._score = plan, make, note, score
        self._open: dict[int, Any] = {}
        """Optuna's trials by point; None of points of earlier drivers."""
        self._left: dict[int, set[str]] = {}
        """Per point the chains that have not ended."""
        self._points: dict[int, Point] = {}
        for number, values in enumerate(asked):
            self._take(make(number, values), None)

    @property
    def points(self) -> list[Point]:
        """All points so far."""
        return list(self._points.values())

    @property
    def complete(self) -> bool:
        return len(self._points) >= self._plan.count

    def more(self) -> None:
        """Ask for one more point."""
        if self.complete:
            return
        for _ in range(TRIES):
            trial = self._study.ask(self._distributions)
            try:
                point = self._make(len(self._points), trial.params)
            except UserError as error:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                last = error
                continue
            self._note(point.number, point.values)
            self._take(point, trial)
            return
        raise UserError(f"space must hold points that fit: {TRIES} in a row did not; the last: {last}")

    def learn(self, digest: str) -> None:
        for point, _ in self.chains[digest]:
            self._left[point.number].discard(digest)
            if not self._left[point.number]:
                self._tell(point)

    def _take(self, point: Point, trial: Any) -> None:
        self._points[point.number], self._open[point.number] = point, trial
        self._left[point.number] = {spec.digest for spec in point.specs if not self._ended(spec.digest)}
        self.queue([point])
        if not self._left[point.number]:
            self._tell(point)

    def _tell(self, point: Point) -> None:
        """The mean over the repeats is the point's value."""
        optuna, trial = self._optuna, self._open.pop(point.number, None)
        scores = [None if s.digest in self.given_up else self._score(s.digest) for s in point.specs]
        values = [score[0] for score in scores if score is not None]
        good = len(values) == len(scores) and all(map(math.isfinite, values))
        value = math.fsum(values) / len(values) if good else None
        through = good and all(score is not None and score[1] for score in scores)
        states = optuna.trial.TrialState
        state = states.FAIL if not good else states.COMPLETE if through else states.PRUNED
        if trial is None:
            intermediate = {0: value} if state == states.PRUNED else {}
            made = optuna.trial.create_trial(
                params=dict(point.values), distributions=self._distributions, state=state, intermediate_values=intermediate,
                value=value if state == states.COMPLETE else None,
            )  # fmt: skip
            self._study.add_trial(made)
            return
        if state == states.PRUNED:
            trial.report(value, step=0)
        self._study.tell(trial, value if state == states.COMPLETE else None, state=state)


def check_installed() -> None:
    """Refuse a sweep by Optuna without it.

    Raises:
        UserError: it is not installed.
    """
    _optuna()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("optuna must be installed for --optuna: pip install 'raychains[optuna]'") from None
    return optuna


def _distribution(optuna: Any, range_: Range) -> Any:
    kinds = optuna.distributions
    if range_.kind == "choice":
        return kinds.CategoricalDistribution(range_.values)
    if range_.kind == "int":
        return kinds.IntDistribution(int(range_.low), int(range_.high))
    return kinds.FloatDistribution(range_.low, range_.high, log=range_.kind == "log")
