"""Points that Optuna chooses by the results so far: Tune's own searcher, for spaces of which not all points fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.search.optuna import OptunaSearch as TuneOptunaSearch

from raychains.core.errors import UserError
from raychains.core.ranges import Range
from raychains.planning.sweep_plan import Values
from raychains.planning.sweep_points import TRIES, Planned


class Unpickled:
    """Base of what Tune would pickle into its own folder, from which raychains never reads."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unpickled, ()

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class OptunaSearch(Unpickled, TuneOptunaSearch):
    """Suggests points that fit, those of earlier drivers first: their trials report again what Optuna learns of them.

    Args:
        planned: the sweep.
        metric: the entry of a trial's results that Optuna learns; lower is better.
        asked: values of the points that earlier drivers of the sweep asked for.
        choose: makes a new point durable before it runs; raises UserError where its values do not fit together.

    Raises:
        UserError: Optuna is not installed.
    """

    def __init__(
        self, planned: Planned, metric: str, *, asked: Sequence[Values], choose: Callable[[Values], None]
    ) -> None:
        optuna = import_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        super().__init__(
            {name: _distribution(optuna, range_) for name, range_ in planned.ranges.items()},
            metric=metric,
            mode="min",
            points_to_evaluate=[dict(values) for values in asked],
            seed=planned.plan.seed + len(asked),  # with the earlier driver's its first points would come again
        )
        self._earlier, self._choose = len(asked), choose
        self._names: dict[str, str] = {}
        """By trial what Optuna's study knows it as."""

    def suggest(self, trial_id: str) -> Any:
        """Return the values of the next point."""
        for attempt in range(TRIES):
            self._names[trial_id] = f"{trial_id}-{attempt}"
            values = super().suggest(self._names[trial_id])
            if self._earlier:
                self._earlier -= 1
                return values
            try:
                self._choose(values)
                return values
            except UserError as error:
                last = error
                self.on_trial_complete(trial_id, error=True)
        raise UserError(f"space must hold points that fit: {TRIES} in a row did not; the last: {last}")

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Let Optuna learn a point's value, unless all of its trials were lost."""
        known = result is not None and math.isfinite(result[self.metric])
        super().on_trial_complete(self._names[trial_id], result if known else None, error=not known)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the sweep's folder holds what a resumed sweep needs."""


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
