"""Points that Optuna chooses by the results so far, as a searcher of Ray Tune; it remembers the points of earlier drivers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from raychains.core.errors import UserError
from raychains.planning.search_space import Range
from raychains.planning.sweep_plan import Point, SweepPlan, Values

TRIES = 100
"""Points in a row that Optuna may choose and that do not fit."""


class Unpickled:
    """Base of what Tune would pickle into its own folder, from which raychains never reads."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unpickled, ()

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class OptunaSearch(Unpickled, Searcher):
    """Suggests all repeats of one point after another; their mean is what Optuna's TPE sampler learns of a point.

    Tune's own searcher takes a failed repeat for a value, and a point that does not fit for a trial.

    Args:
        plan: of the sweep.
        space: its ranges.
        make: makes a point of values, by number.
        asked: values of the points that earlier drivers of the sweep asked for.
        keep: makes a point durable before it runs.
        add: takes points up; returns the configs of their chains that have not ended.
        value: returns an ended chain's value and whether it ran to its end, by digest; None of a failed one.

    Raises:
        UserError: Optuna is not installed.
    """

    def __init__(
        self,
        plan: SweepPlan,
        space: Mapping[str, Range],
        *,
        make: Callable[[int, Values], Point],
        asked: Sequence[Values],
        keep: Callable[[int, Values], None],
        add: Callable[[Sequence[Point]], list[dict[str, Any]]],
        value: Callable[[str], tuple[float, bool] | None],
    ) -> None:
        super().__init__()
        self._optuna = optuna = import_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Another seed than the earlier driver's, whose first points would come again.
        sampler = optuna.samplers.TPESampler(seed=plan.seed + len(asked))
        direction = "minimize" if plan.metric.better == "lower" else "maximize"
        self._study = optuna.create_study(direction=direction, sampler=sampler)
        self._distributions = {name: _distribution(optuna, range_) for name, range_ in space.items()}
        self._count, self._make, self._keep, self._add, self._value = plan.count, make, keep, add, value
        self.points: list[Point] = []
        """All points so far, those of earlier drivers first."""
        self._queue: list[tuple[Point, dict[str, Any]]] = []
        self._running: dict[str, Point] = {}
        """By trial."""
        self._broken: set[int] = set()
        """Points with a trial that ended in an error."""
        for number, values in enumerate(asked):
            self._take(make(number, values))

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's config; FINISHED after the last."""
        while not self._queue:
            if len(self.points) >= self._count:
                return Searcher.FINISHED
            self._take(self._ask())
        self._running[trial_id], config = self._queue.pop(0)
        return config

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Learn a point's value when the last of its chains ended."""
        point = self._running.pop(trial_id)
        if error:
            self._broken.add(point.number)
        if not any(one is point for one in [*self._running.values(), *(p for p, _ in self._queue)]):
            self._learn(point)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the sweep's folder holds what a resumed sweep needs."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing."""

    def _ask(self) -> Point:
        """Return a new point of Optuna's that fits."""
        for _ in range(TRIES):
            trial = self._study.ask(self._distributions)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # its value comes as a trial of its own
            try:
                point = self._make(len(self.points), trial.params)
            except UserError as error:
                last = error
                continue
            self._keep(point.number, point.values)
            return point
        raise UserError(f"space must hold points that fit: {TRIES} in a row did not; the last: {last}")

    def _take(self, point: Point) -> None:
        self.points.append(point)
        configs = self._add([point])
        self._queue += [(point, config) for config in configs]
        if not configs:
            self._learn(point)

    def _learn(self, point: Point) -> None:
        """Tell Optuna the mean over the repeats."""
        values = [self._value(spec.digest) for spec in point.specs]
        known = [value for value in values if value is not None]
        states = self._optuna.trial.TrialState
        good = len(known) == len(values) and all(math.isfinite(value) for value, _ in known)
        if not good or point.number in self._broken:
            return
        mean = math.fsum(value for value, _ in known) / len(known)
        complete = all(through for _, through in known)
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=dict(point.values),
                distributions=self._distributions,
                state=states.COMPLETE if complete else states.PRUNED,
                value=mean if complete else None,
                intermediate_values={} if complete else {0: mean},
            )
        )


def import_optuna() -> Any:
    """Return Optuna's module.

    Raises:
        UserError: it is not installed.
    """
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
