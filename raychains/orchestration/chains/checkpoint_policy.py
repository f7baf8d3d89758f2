"""The policy of checkpoints: written by time and at the ends of cycles, read where a chain resumes.

An `Attempt` that is suspended, as on a draining node, writes one besides.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from typing import Any

from raychains.chain.sample_index import position, samples_per_keep
from raychains.core.spec import ChainSpec
from raychains.schedules import Schedule
from raychains.store import ChainStore

APART = 1.0
"""Seconds since the last checkpoint before a cycle's end asks for one of its own: cycles may last milliseconds."""


class CheckpointPolicy:
    """Decides between steps whether a checkpoint is due; it is asked after each, so that it must be cheap.

    Args:
        schedule: of the chain; a cycle ends where the next step belongs to another.
        every: seconds between checkpoints.
        every_cycle: write at every cycle's end, however short cycles are: restarts go back to them.
    """

    def __init__(
        self, schedule: Schedule, every: float, every_cycle: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._schedule, self._every, self._every_cycle, self._clock = schedule, every, every_cycle, clock
        self._written = clock()
        self._end = -1
        self._done = -1

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is due after ``step`` steps."""
        if step == self._done:
            return False
        passed = self._clock() - self._written
        return passed > self._every or (self.at_cycle_end(step) and (self._every_cycle or passed >= APART))

    def must(self, step: int) -> bool:
        """Return whether the checkpoint that is due may not be put off."""
        return self._every_cycle and self.at_cycle_end(step)

    def at_cycle_end(self, step: int) -> bool:
        """Return whether ``step`` is the last of its cycle and not of the chain."""
        if step > self._end:
            self._end = self._next_end(step)
        return step == self._end < self._schedule.steps

    def written(self, step: int) -> None:
        """Note that a checkpoint after ``step`` steps was taken."""
        self._done, self._written = step, self._clock()

    def _next_end(self, step: int) -> int:
        """Return the first cycle's end at or after ``step``; the chain's when there is none."""
        last = self._schedule.steps
        if self._schedule.cycle_count == 1 or step >= last:
            return last
        cycle = self._schedule.at(max(1, step)).cycle
        following = range(max(1, step), last + 1)
        return following.start + bisect.bisect_right(following, cycle, key=lambda k: self._schedule.at(k).cycle) - 1


def cycle_start(schedule: Schedule, step: int) -> int:
    """Return the steps that were made before the cycle of ``step``, which counts from 1."""
    steps = range(1, step + 1)
    return bisect.bisect_left(steps, schedule.at(max(1, step)).cycle, key=lambda k: schedule.at(k).cycle)


def state_to_resume(spec: ChainSpec, store: ChainStore, restart: int, warn: Callable[[str, str], None]) -> Any | None:
    """Return the stored state that the next attempt loads; None sends the chain to its beginning.

    That is the newest checkpoint, or the newest of a cycle's end if the newest is on noise that diverged. A sample that
    was drawn before it and is torn or gone since must be drawn again, so that the chain goes back to before that
    sample.

    Args:
        warn: called with every checkpoint that is passed over, and every sample that must be drawn again.
    """
    state = store.newest_checkpoint(warn=warn)
    if state is not None and state["chain"]["noise_attempt"] < restart:
        state = store.newest_checkpoint(warn=warn, cycle_end=True)
    if state is None:
        return None
    each = samples_per_keep(spec)
    missing = _first_missing(spec, store, state["chain"]["index"] * each)
    if missing is None:
        return state
    warn(store.root.location(f"chains/{store.digest}/samples"), f"sample {missing} is torn or gone and is drawn again")
    while state is not None and state["chain"]["index"] * each > missing:
        state = store.newest_checkpoint(warn=warn, before=state["chain"]["step"] - 1)
    return state


def _first_missing(spec: ChainSpec, store: ChainStore, drawn: int) -> int | None:
    """Return the first position before ``drawn`` of which there is no whole sample; None when all are there."""
    there = {position(spec, record.meta) for record in store.records()}
    return next((p for p in range(drawn) if p not in there), None)
