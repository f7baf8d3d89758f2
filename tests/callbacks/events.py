"""A small plan and the events of a run of it, made by hand."""

from __future__ import annotations

import functools
from typing import Any

from raychains import callbacks
from raychains.api import plans
from raychains.core.config import Run
from raychains.orchestration.cluster.prometheus import CHAIN, EVENTS, METRIC, RUN, STAGE, WAITING
from raychains.planning import Comparison, budget

METRICS = {*CHAIN, *RUN, *dict(EVENTS.values()), STAGE[0], METRIC[0], WAITING[0]}
"""The names of Ray's gauges."""


@functools.cache
def plan() -> Comparison:
    asked = Run(task="digits", epochs=8, chains=2, cycles=2, exploration=0.5, samples_per_cycle=1, repeats=1)
    return plans.run(asked).comparison


def digests() -> list[str]:
    return list(plan().chains())


def planned() -> callbacks.Planned:
    """The first event."""
    return callbacks.Planned(comparison=plan(), budget=budget(plan()), notes=["a note"])


def status(digest: str, step: int, **change: Any) -> callbacks.ChainStatus:
    """Where a chain is after ``step`` steps of 50 gradient evaluations each."""
    return callbacks.ChainStatus(
        **{
            "digest": digest, "slot": 0, "step": step, "steps": 80, "cycle": step // 40, "stage": "sampling",
            "loss": 1 / (1 + step), "seconds": step / 100, "lr": 0.1, "temperature": 1.0, "kinetic_temperature": None,
            "steps_per_second": 100.0, "samples": step // 40, "gradients": 50 * step, **change,
        }
    )  # fmt: skip


def tick(*running: callbacks.ChainStatus, **change: Any) -> callbacks.Tick:
    return callbacks.Tick(
        **{
            "running": running, "finished": 0, "chains": 2, "evaluated": 0, "to_evaluate": 4, "remaining_seconds": None,
            "slots": len(running), "gradients": sum(s.gradients for s in running), "to_spend": 8000, **change,
        }
    )  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now
