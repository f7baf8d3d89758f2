"""Points that Optuna chooses by the results so far: Tune's own searcher, for points that have several chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.result import TRAINING_ITERATION
from ray.tune.search.optuna import OptunaSearch as TuneOptunaSearch

from raychains.core.errors import UserError
from raychains.planning.search_space import Range
from raychains.planning.sweep_plan import Point, SweepPlan, Values
from raychains.planning.sweep_points import TRIES


class Unpickled:
    """Base of what Tune would pickle into its own folder, from which raychains never reads."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unpickled, ()

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class OptunaSearch(Unpickled, TuneOptunaSearch):
    """Suggests all chains of one point after another; their mean is what Optuna's TPE sampler learns of a point.

    Tune's `Repeater` learns the mean without the repeats that failed, and has no memory of earlier drivers.

    Args:
        plan: of the sweep.
        space: its ranges.
        make: makes a point of values, by number.
        asked: values of the points that earlier drivers of the sweep asked for.
        keep: makes a point durable before it runs.
        add: takes a point up; returns the configs of its chains that have not ended.
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
        add: Callable[[Point], list[dict[str, Any]]],
        value: Callable[[str], tuple[float, bool] | None],
    ) -> None:
        optuna = import_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        super().__init__(
            {name: _distribution(optuna, range_) for name, range_ in space.items()},
            metric=plan.metric.name,
            mode="min" if plan.metric.better == "lower" else "max",
            points_to_evaluate=[dict(values) for values in asked],
            seed=plan.seed + len(asked),  # with the earlier driver's its first points would come again
        )
        self._count, self._make, self._keep, self._add, self._value = plan.count, make, keep, add, value
        self.points: list[Point] = []
        """All points so far, those of earlier drivers first."""
        self._queue: list[tuple[Point, dict[str, Any]]] = []
        self._running: dict[str, Point] = {}
        """By trial."""
        self._open: list[Point] = []
        """Points of which Optuna has not learnt."""
        self._broken: set[int] = set()
        """Points with a trial that ended in an error."""
        self._names: dict[int, str] = {}
        """By point what Tune's searcher takes for a trial."""
        while len(self.points) < len(asked):
            self._take(self._new())

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's config; FINISHED after the last."""
        while not self._queue:
            if len(self.points) >= self._count:
                return TuneOptunaSearch.FINISHED
            self._take(self._new())
            self._keep(self.points[-1].number, self.points[-1].values)
        self._running[trial_id], config = self._queue.pop(0)
        return config

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Do nothing: Optuna learns of a point when its chains ended."""

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Learn a point's value when the last of its chains ended."""
        point = self._running.pop(trial_id)
        if error:
            self._broken.add(point.number)
        self._learn_ended()

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the sweep's folder holds what a resumed sweep needs."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing."""

    def _new(self) -> Point:
        """Return Optuna's next point that fits; those of earlier drivers come first."""
        number = len(self.points)
        for attempt in range(TRIES):
            self._names[number] = f"{number}-{attempt}"
            values = super().suggest(self._names[number])
            try:
                return self._make(number, values)
            except UserError as error:
                last = error
                super().on_trial_complete(self._names[number], error=True)
        raise UserError(f"space must hold points that fit: {TRIES} in a row did not; the last: {last}")

    def _take(self, point: Point) -> None:
        self.points.append(point)
        self._open.append(point)
        self._queue += [(point, config) for config in self._add(point)]
        self._learn_ended()

    def _learn_ended(self) -> None:
        """Learn the points none of whose chains runs or waits, for this point or for another of the same values."""
        going = {spec.digest for p in [*self._running.values(), *(p for p, _ in self._queue)] for spec in p.specs}
        left, self._open = self._open, []
        for point in left:
            if going.isdisjoint(spec.digest for spec in point.specs):
                self._learn(point)
            else:
                self._open.append(point)

    def _learn(self, point: Point) -> None:
        """Tell Optuna the mean over the repeats."""
        name, values = self._names[point.number], [self._value(spec.digest) for spec in point.specs]
        known = [value for value, _ in filter(None, values)]
        if point.number in self._broken or len(known) < len(values) or not all(map(math.isfinite, known)):
            super().on_trial_complete(name, error=True)
            return
        mean = {self._metric: math.fsum(known) / len(known)}
        through = all(through for _, through in filter(None, values))
        if not through:
            super().on_trial_result(name, {**mean, TRAINING_ITERATION: 0})
        super().on_trial_complete(name, mean if through else None)


def import_optuna() -> Any:
    """Return Optuna's module.

    Raises:
        UserError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UserError("optuna must be installed for `optuna`: pip install 'raychains[optuna]'") from None
    return optuna


def _distribution(optuna: Any, range_: Range) -> Any:
    kinds = optuna.distributions
    if range_.kind == "choice":
        return kinds.CategoricalDistribution(range_.values)
    if range_.kind == "int":
        return kinds.IntDistribution(int(range_.low), int(range_.high))
    return kinds.FloatDistribution(range_.low, range_.high, log=range_.kind == "log")
