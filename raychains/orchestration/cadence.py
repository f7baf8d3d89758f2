"""When a chain's state is to be written: by time, and at the ends of cycles."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable

from raychains.schedules import Schedule

APART = 1.0
"""Seconds since the last checkpoint before a cycle's end asks for one of its own: cycles may last milliseconds."""


class Cadence:
    """Asked between steps, so that it must be cheap.

    Args:
        schedule: of the chain; a cycle ends where the next step belongs to another.
        every: seconds between checkpoints.
        every_cycle: write at every cycle's end, however short cycles are: restarts go back to them.
        clock: monotonic seconds.
    """

    def __init__(
        self, schedule: Schedule, every: float, every_cycle: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._schedule, self._every, self._every_cycle, self._clock = schedule, every, every_cycle, clock
        self._written = clock()
        self._end = -1
        self._done = -1

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after ``step`` steps."""
        if step == self._done:
            return False
        passed = self._clock() - self._written
        return passed > self._every or (self.at_cycle_end(step) and (self._every_cycle or passed >= APART))

    def must(self, step: int) -> bool:
        """Whether the checkpoint that is due may not be put off."""
        return self._every_cycle and self.at_cycle_end(step)

    def at_cycle_end(self, step: int) -> bool:
        """Whether ``step`` is the last of its cycle and not of the chain."""
        if step > self._end:
            self._end = self._next_end(step)
        return step == self._end < self._schedule.steps

    def written(self, step: int) -> None:
        """A checkpoint after ``step`` steps was taken."""
        self._done, self._written = step, self._clock()

    def _next_end(self, step: int) -> int:
        """The first cycle's end at ``step`` or behind it; the chain's when there is none."""
        last = self._schedule.steps
        if self._schedule.cycle_count == 1 or step >= last:
            return last
        cycle = self._schedule.at(max(1, step)).cycle
        following = range(max(1, step), last + 1)
        return following.start + bisect.bisect_right(following, cycle, key=lambda k: self._schedule.at(k).cycle) - 1
