"""A Driver with a stopwatch: chains start when all workers are up, so that start-up is not measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from raychains.methods import resolve
from raychains.options import Run
from raychains.orchestration.driver import Driver, Outcome, Placement
from raychains.orchestration.session import connect
from raychains.orchestration.workers import Message
from raychains.planning import Arm, Comparison
from raychains.planning import coordinator as c
from raychains.planning.listener import Silent
from raychains.spec import ChainSpec
from raychains.store import Root
from raychains.tasks import Task


@dataclass(frozen=True)
class Timing:
    """Seconds from the moment that all workers were ready to the last chain's end, and what the run came to."""

    seconds: float
    outcome: Outcome


class TimedDriver(Driver):
    """Holds ready workers back until there are ``slots`` of them."""

    def __init__(self, comparison: Comparison, root: Root, placement: Placement, slots: int) -> None:
        super().__init__(comparison, root, placement, Silent())
        self._wanted = slots
        self._held: list[Message] | None = []
        self.began = self.ended = 0.0

    def _heed(self, message: Message) -> None:
        if isinstance(message.event, c.SlotReady) and self._held is not None:
            self._held.append(message)
            if len(self._held) < self._wanted:
                return
            held, self._held = self._held, None
            self.began = time.perf_counter()
            for one in held:
                super()._heed(one)
            return
        if isinstance(message.event, c.Ended):
            self.ended = time.perf_counter()
        super()._heed(message)


def timed_run(comparison: Comparison, store: Path, *, slots: int, checkpoint_every: float = 60.0) -> Timing:
    """Run a comparison's chains without evaluation on ``slots`` workers of a Ray started for it."""
    session = connect("local", cpus=slots)
    try:
        driver = TimedDriver(
            comparison, Root(store), Placement(evaluate=False, checkpoint_every=checkpoint_every), slots
        )
        outcome = driver.run()
    finally:
        session.close()
    if outcome.stopped:
        raise SystemExit("stopped")
    if outcome.failed:
        raise SystemExit(f"a chain failed: {next(iter(outcome.failed.values()))}")
    return Timing(driver.ended - driver.began, outcome)


def digits_chain(task: Task, **settings: object) -> ChainSpec:
    """The first chain of cyclical SGHMC on a digits task."""
    options = Run(**settings)  # type: ignore[arg-type]
    return resolve(options, task=task, name="digits", sampler="sghmc", schedule="cyclical").spec


def one_arm(chains: list[ChainSpec]) -> Comparison:
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
    return Comparison(task="digits", unit="epochs", split="test", arms=(arm,))
