"""A sweep's events as those of a run, for listeners that follow chains: each point and repeat is a chain, each point an arm."""

from __future__ import annotations

from typing import Any

from raychains.planning import gradient_evaluations
from raychains.planning.listener import (
    ChainFailed,
    ChainFinished,
    ChainStatus,
    Listener,
    Ready,
    Stopping,
    Tick,
    ViewDone,
)
from raychains.planning.sweeping import Point, SweepReady, SweepStopping, SweepTick, TrialEnded, TrialNow

NOT_METRICS = {"point", "repeat", "digest", "cycle", "cycles", "epoch", "gradients", "samples", "sampler", "seconds"}
"""Of a report: where it was made."""


class OfSweep:
    """Hands a sweep's events on as a run's; others unchanged. An arm's name is ``point-3``.

    Args:
        listener: follows chains.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._slots = self._failed = 0

    def on(self, happening: Any) -> None:
        """Translate one."""
        match happening:
            case SweepReady():
                self._slots = happening.slots
                self._listener.on(Ready(slots=happening.slots, slot=happening.slot))
            case SweepTick():
                self._listener.on(self._tick(happening))
            case TrialEnded():
                self._ended(happening)
            case SweepStopping():
                self._listener.on(Stopping(reason=happening.reason))
            case _:
                self._listener.on(happening)

    def _tick(self, tick: SweepTick) -> Tick:
        running = [_status(slot, trial) for slot, trial in enumerate(tick.running)]
        return Tick(
            running=running, finished=tick.ended - self._failed, chains=tick.total, evaluated=0, to_evaluate=0,
            remaining_seconds=None, failed=self._failed, slots=len(running), gradients=sum(s.gradients for s in running),
        )  # fmt: skip

    def _ended(self, trial: TrialEnded) -> None:
        digest = trial.point.specs[trial.repeat].digest
        self._failed += trial.status == "failed"
        if trial.status == "failed":
            self._listener.on(ChainFailed(digest=digest, reason=trial.reason))
        elif trial.status == "finished":
            self._listener.on(ChainFinished(digest=digest, seconds=0.0))
        numbers = {n: v for n, v in (trial.report or {}).items() if n not in NOT_METRICS and _number(v)}
        swept = {n for n in trial.point.values if n in numbers}
        metrics = {n: float(v) for n, v in numbers.items() if n not in swept}
        if metrics:
            done = ViewDone(arm=_arm(trial.point), group=trial.repeat, metrics=[metrics], chain_seconds=0.0)
            self._listener.on(done)

    def close(self) -> None:
        """Close the listener."""
        close = getattr(self._listener, "close", None)
        if close is not None:
            close()


def _arm(point: Point) -> str:
    return f"point-{point.number}"


def _status(slot: int, trial: TrialNow) -> ChainStatus:
    spec = trial.point.specs[trial.repeat]
    return ChainStatus(
        digest=spec.digest, slot=slot, step=trial.step, steps=trial.steps, cycle=trial.cycle, stage="", loss=trial.loss,
        seconds=0.0, gradients=gradient_evaluations(spec) * trial.step // spec.steps,
    )  # fmt: skip


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
