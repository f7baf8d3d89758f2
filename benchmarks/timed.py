"""A driver with a stopwatch: chains start when all workers are up, so that start-up is not measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from raychains.coordination.coordinator import Ended, Event, SlotReady
from raychains.core.config import Run
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.cluster.session import connect
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.chain_dispatch import ChainDispatch
from raychains.orchestration.run.launch import driver_of
from raychains.orchestration.run.outcome import DriverOutcome
from raychains.planning import Arm, Comparison
from raychains.planning.events import NullCallback
from raychains.planning.methods import resolve
from raychains.store import Storage
from raychains.tasks import Task


@dataclass(frozen=True)
class Timing:
    """Seconds from the moment that all workers were ready to the last chain's end, and what the run came to."""

    seconds: float
    outcome: DriverOutcome


class Stopwatch:
    """Hands ready workers to a run's sampling once there are ``slots`` of them, and notes when chains end."""

    def __init__(self, sampling: ChainDispatch, slots: int) -> None:
        self._handle, self._slots = sampling.handle, slots
        self._held: list[Event] = []
        self.began = self.ended = 0.0
        sampling.handle = self.handle  # type: ignore[method-assign]

    def handle(self, message: Event) -> None:
        """Take a message of a worker."""
        if isinstance(message, SlotReady) and not self.began:
            self._held.append(message)
            if len(self._held) == self._slots:
                self.began = time.perf_counter()
                for one in self._held:
                    self._handle(one)
            return
        if isinstance(message, Ended):
            self.ended = time.perf_counter()
        self._handle(message)


def timed_run(comparison: Comparison, store: Path, *, slots: int, checkpoint_every: float = 60.0) -> Timing:
    """Run a comparison's chains without evaluation on ``slots`` workers of a Ray started for it."""
    session = connect("local", cpus=slots)
    try:
        resources = ResourceConfig(evaluate=False, checkpoint_every=checkpoint_every)
        driver = driver_of(comparison, Storage(store), resources, NullCallback(), lease=Lease(Storage(store)))
        watch = Stopwatch(driver.sampling, slots)
        outcome = driver.run()
    finally:
        session.close()
    if outcome.interrupted:
        raise SystemExit("stopped")
    if outcome.failed:
        raise SystemExit(f"a chain failed: {next(iter(outcome.failed.values()))}")
    return Timing(watch.ended - watch.began, outcome)


def digits_chain(task: Task, **settings: object) -> ChainSpec:
    """The first chain of cyclical SGHMC on a digits task."""
    options = Run(**settings)  # type: ignore[arg-type]
    return resolve(options, task=task, sampler="sghmc", schedule="cyclical").spec


def one_arm(chains: list[ChainSpec], task: str = "digits", unit: str = "epochs", split: str = "test") -> Comparison:
    """Chains as a comparison of one arm."""
    arm = Arm(
        name="benchmark",
        label="benchmark",
        sampler="sghmc",
        schedule="cyclical",
        chains=(tuple(chains),),
        length=chains[0].steps // chains[0].steps_per_epoch,
        published={},
    )
    return Comparison(task=task, unit=unit, split=split, arms=(arm,))
