"""ASHA over reports: Ray's asynchronous successive halving, told shares of the epochs, with a memory that outlives drivers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from raychains.orchestration.tuning.quiet import Unkept
from raychains.planning.sweeping import Asha

WORST = 1e30
"""What a value that is not finite counts as."""
SHARE, VALUE = "share", "value"


@dataclass(frozen=True)
class _Before:
    """A chain of an earlier driver, as Ray's scheduler knows trials."""

    trial_id: str


class Halving(Unkept, ASHAScheduler):
    """Compares reports at equal shares of the epochs, whatever the number of cycles.

    What is never stopped: a chain that the store holds already, since it costs nothing more, and one at its end.

    Args:
        asha: grace and reduction.
        metric: of the reports.
        mode: ``min`` or ``max``.
        length: epochs of every chain.
        before: by chain, what it reported to earlier drivers of the sweep.
        stopped: told (digest, report) before a chain is stopped.
    """

    def __init__(
        self,
        asha: Asha,
        *,
        metric: str,
        mode: str,
        length: int,
        before: Mapping[str, Iterable[Mapping[str, Any]]],
        stopped: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        super().__init__(
            time_attr=SHARE, metric=VALUE, mode=mode, max_t=1.0, grace_period=asha.grace, reduction_factor=asha.reduction,
            stop_last_trials=False,
        )  # fmt: skip
        self._of, self._length, self._tell = metric, length, stopped
        self._worst = WORST if mode == "min" else -WORST
        for digest, reports in before.items():
            trial = _Before(digest)
            super().on_trial_add(None, trial)
            for report in reports:
                super().on_trial_result(None, trial, self._seen(report))

    def _seen(self, report: Mapping[str, Any]) -> dict[str, float]:
        value = report["metrics"][self._of]
        return {SHARE: report["epoch"] / self._length, VALUE: value if math.isfinite(value) else self._worst}

    def on_trial_result(self, controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """CONTINUE or STOP."""
        if result.get("kind") != "report":
            return TrialScheduler.CONTINUE
        report = {
            "epoch": result["report/epoch"], "cycle": result["report/cycle"],
            "metrics": {self._of: result[f"report/metrics/{self._of}"]},
        }  # fmt: skip
        seen = self._seen(report)
        action = super().on_trial_result(controller, trial, seen)
        if action == TrialScheduler.CONTINUE or result.get("free") or seen[SHARE] >= 1:
            return TrialScheduler.CONTINUE
        self._tell(trial.config["digest"], report)
        return action

    def on_trial_complete(self, controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """Nothing to learn: what counts was reported before."""
        self._trial_info.pop(trial.trial_id, None)

    def on_trial_remove(self, controller: Any, trial: Any) -> None:
        """The same."""
        self._trial_info.pop(trial.trial_id, None)
