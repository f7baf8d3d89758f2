"""A sweep's events as those of a run, for callbacks that follow chains: each point and repeat is a chain, each point an arm."""

from __future__ import annotations

from typing import Any

from raychains.planning import gradient_evaluations
from raychains.planning.events import Callback, ChainFailed, ChainFinished, ChainStatus, Ready, Stopping, Tick, ViewDone
from raychains.planning.sweep_plan import Point, SweepReady, SweepStopping, SweepTick, TrialEnded, TrialNow


class OfSweep:
    """Hands a sweep's events on as a run's; others unchanged. An arm's name is ``point-3``.

    Args:
        callback: follows chains.
    """

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._failed = 0

    def on(self, event: Any) -> None:
        """Translate one."""
        match event:
            case SweepReady():
                self._callback.on(Ready(slots=event.slots, slot=event.slot))
            case SweepTick():
                self._callback.on(self._tick(event))
            case TrialEnded():
                self._ended(event)
            case SweepStopping():
                self._callback.on(Stopping(reason=event.reason))
            case _:
                self._callback.on(event)

    def _tick(self, tick: SweepTick) -> Tick:
        running = [_status(slot, trial) for slot, trial in enumerate(tick.running)]
        return Tick(
            running=running,
            finished=tick.ended - self._failed,
            chains=tick.total,
            evaluated=0,
            to_evaluate=0,
            remaining_seconds=None,
            failed=self._failed,
            slots=len(running),
            gradients=sum(s.gradients for s in running),
        )

    def _ended(self, trial: TrialEnded) -> None:
        digest = trial.point.specs[trial.repeat].digest
        self._failed += trial.status == "failed"
        if trial.status == "failed":
            self._callback.on(ChainFailed(digest=digest, reason=trial.reason))
        elif trial.status == "finished":
            self._callback.on(ChainFinished(digest=digest, seconds=0.0))
        metrics = dict(trial.report["metrics"]) if trial.report is not None else {}
        if metrics:
            done = ViewDone(arm=_arm(trial.point), group=trial.repeat, metrics=[metrics], chain_seconds=0.0)
            self._callback.on(done)

    def close(self) -> None:
        """Close the callback."""
        close = getattr(self._callback, "close", None)
        if close is not None:
            close()


def _arm(point: Point) -> str:
    return f"point-{point.number}"


def _status(slot: int, trial: TrialNow) -> ChainStatus:
    spec = trial.point.specs[trial.repeat]
    return ChainStatus(
        digest=spec.digest,
        slot=slot,
        step=trial.step,
        steps=trial.steps,
        cycle=trial.cycle,
        stage="",
        loss=None,
        seconds=0.0,
        gradients=gradient_evaluations(spec) * trial.step // spec.steps,
    )
