"""A run as metrics of Ray's own, which its dashboard shows and Prometheus scrapes as ``ray_raychains_…``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray.util.metrics import Gauge

from raychains.planning.events import (
    ChainDropped,
    ChainFailed,
    ChainFinished,
    ChainStatus,
    Planned,
    Preempted,
    Ready,
    Resumed,
    RunEnded,
    RunEvent,
    Stalled,
    Tick,
    ViewDone,
    Waiting,
    WorkerLost,
)

EVERY = 2.0
"""Seconds between settings. Ray forgets a gauge that was not set for 20 s, twice its interval of reports."""
CHAIN = {
    "raychains_step": "Gradient steps of a chain",
    "raychains_cycle": "Cycle of a chain's schedule, from 0",
    "raychains_steps_per_second": "Speed of a chain; 0 when it does not run",
    "raychains_samples": "Durable samples of a chain",
    "raychains_loss": "Loss of a chain's newest progress record",
}
"""Tagged by run and chain (12 digits of its digest)."""
RUN = {
    "raychains_budget_spent": "Gradient evaluations spent on the run's chains",
    "raychains_budget_planned": "Gradient evaluations that all of the run's chains cost",
    "raychains_run_samples": "Durable samples of all chains of the run",
    "raychains_chains": "Chains of the run",
    "raychains_chains_finished": "Chains that are finished",
    "raychains_chains_failed": "Chains that were given up",
    "raychains_slots": "Workers of the run",
    "raychains_evaluated": "Predictions of samples and summaries of views that are done",
    "raychains_to_evaluate": "Those that there will be",
    "raychains_chains_stalled": "Chains that are silent for longer than their pace explains",
}
"""Tagged by run; set at ticks."""
EVENTS: dict[type, tuple[str, str]] = {
    WorkerLost: ("raychains_workers_lost", "Workers that died or were replaced"),
    Preempted: ("raychains_preemptions", "Workers whose nodes were draining, and whose chains went on elsewhere"),
    Stalled: (
        "raychains_stalls",
        "Chains, evaluations and new workers that were silent for longer than their pace explains",
    ),
}
"""Counted since the driver began; tagged by run."""
WAITING = ("raychains_waiting", "1 while the run waits for its storage, or for a node with room")
STAGE = ("raychains_stage", "1 for the stage that a chain is in, 0 for those that it left")
METRIC = ("raychains_metric", "A metric of an arm's newest view, the mean over its repeats")


class RayMetrics:
    """Sets gauges at ticks, in the driver's process; Ray exports them. A chain's series end with the chain, all others
    with the driver."""

    def __init__(
        self, run: str, gauge: Callable[..., Any] = Gauge, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._make, self._clock = run, gauge, clock
        self._gauges: dict[str, Any] = {}
        self._set_at = float("-inf")
        self._tick: Tick | None = None
        self._running: dict[str, ChainStatus] = {}
        self._steps: dict[str, int] = {}
        self._stages: dict[str, str] = {}
        self._counts = dict.fromkeys(EVENTS, 0)
        self._lasting: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        """Values by name and tags that are set again with every tick's, whatever set them first."""

    def on(self, event: RunEvent) -> None:
        """Set the gauges that an event changes."""
        match event:
            case Planned():
                self._steps = {digest: spec.steps for digest, spec in event.comparison.chains().items()}
            case Ready():
                self._begin()
            case Tick():
                self._tick = event
                if self._gauges and self._clock() - self._set_at >= EVERY:
                    self._set_at = self._clock()
                    self._set(event)
            case ChainFinished():
                self._ended(event.digest, "finished")
            case ChainFailed() | ChainDropped():
                self._ended(event.digest, "failed")
            case ViewDone():
                self._view(event)
            case WorkerLost() | Preempted() | Stalled():
                self._counts[type(event)] += 1
                self._record(EVENTS[type(event)][0], self._counts[type(event)])
            case Waiting() | Resumed():
                self._record(WAITING[0], isinstance(event, Waiting))
            case RunEnded():
                self._end()

    def _begin(self) -> None:
        """Make the gauges, once Ray is up."""
        if not self._gauges:
            of_run = {**RUN, **dict(EVENTS.values()), **dict([WAITING])}
            for about, tags in ((CHAIN, ("run", "chain")), (of_run, ("run",))):
                self._gauges |= {name: self._make(name, text, tag_keys=tags) for name, text in about.items()}
            self._record(WAITING[0], 0)
            for event, (name, _) in EVENTS.items():
                self._record(name, self._counts[event])
            self._gauges[STAGE[0]] = self._make(*STAGE, tag_keys=("run", "chain", "stage"))
            self._gauges[METRIC[0]] = self._make(*METRIC, tag_keys=("run", "arm", "metric"))

    def _record(self, name: str, value: float, **tags: str) -> None:
        if self._gauges:
            if "chain" not in tags:
                self._lasting[name, tuple(tags.items())] = value
            self._gauges[name].set(value, tags={"run": self._run, **tags})

    def _set(self, tick: Tick) -> None:
        stalled = sum(status.stalled_seconds is not None for status in tick.running)
        for (name, tags), lasting in list(self._lasting.items()):
            self._record(name, lasting, **dict(tags))
        counts = (tick.gradients, tick.to_spend, tick.samples, tick.chains, tick.finished, tick.failed, tick.slots)
        for name, count in zip(RUN, (*counts, tick.evaluated, tick.to_evaluate, stalled), strict=True):
            self._record(name, count)
        running = {status.digest: status for status in tick.running}
        for digest in self._running.keys() - running.keys():  # its worker is gone, and it waits for another
            self._record("raychains_steps_per_second", 0.0, chain=digest[:12])
        self._running = running
        for status in tick.running:
            if not status.step:
                continue
            values = (status.step, status.cycle, status.steps_per_second or 0.0, status.samples, status.loss)
            for name, value in zip(CHAIN, values, strict=True):
                if value is not None:
                    self._record(name, value, chain=status.digest[:12])
            self._stage(status.digest, status.stage)

    def _stage(self, digest: str, stage: str) -> None:
        before = self._stages.get(digest)
        if before not in (None, stage):
            self._record(STAGE[0], 0, chain=digest[:12], stage=before)
        self._record(STAGE[0], 1, chain=digest[:12], stage=stage)
        self._stages[digest] = stage

    def _ended(self, digest: str, stage: str) -> None:
        self._running.pop(digest, None)
        if stage == "finished" and digest in self._steps:
            self._record("raychains_step", self._steps[digest], chain=digest[:12])
        self._record("raychains_steps_per_second", 0.0, chain=digest[:12])
        self._stage(digest, stage)

    def _view(self, view: ViewDone) -> None:
        for name in view.metrics[0] if view.metrics else ():
            mean = sum(float(m[name]) for m in view.metrics) / len(view.metrics)
            self._record(METRIC[0], mean, arm=view.arm, metric=name)

    def _end(self) -> None:
        if self._tick is not None and self._gauges:
            self._set(self._tick)
            for digest in list(self._running):
                self._record("raychains_steps_per_second", 0.0, chain=digest[:12])
            self._record("raychains_slots", 0)
