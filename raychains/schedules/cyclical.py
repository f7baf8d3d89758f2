"""The cyclical cosine step size of cSG-MCMC (Zhang et al., ICLR 2020, Eq. 1)."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from raychains.core.errors import UserError, require
from raychains.core.validation import fraction, integer, positive, positive_int, true_or_false
from raychains.schedules.schedule import EXPLORATION, SAMPLING, Schedule, ScheduleValues, steps_in


@dataclass(frozen=True, kw_only=True)
class Cyclical(Schedule):
    """lr_k = lr/2 · (cos(π r) + 1), r = ((k−1) mod L)/L, L = ceil(K/M).

    While r < ``exploration`` (β) the chain explores at temperature 0; from then on it samples at ``temperature``, which
    it reaches after a ``ramp`` where there is one.
    Momentum is carried through stages and cycles. Draws are counted back from each cycle's end.

    Raises:
        UserError: a field out of range; ceil(K/L) ≠ M, when fewer cycles than asked for would start; or more
            samples per cycle than its sampling stage has room for.
    """

    kind: ClassVar[str] = "cyclical"

    lr: float
    """Step size at the start of each cycle (mean-loss scale)."""
    cycles: int
    """M, how often the step size restarts."""
    exploration: float
    """β, the option ``--beta``: the share of each cycle spent without noise, in [0, 1)."""
    samples_per_cycle: int | None = None
    """Keep this many draws at the end of each cycle; None keeps the whole sampling stage."""
    thinning: int = 1
    """Steps between kept draws (an epoch's, for the papers' networks)."""
    sample_below: float | None = None
    """The paper's alternative to β: sample once the step size is below this, whatever r is."""
    drop_first: int = 0
    """Steps at the start of each sampling stage from which nothing is kept."""
    noise_in_exploration: bool = False
    """Keep the noise on while exploring, as the papers' mixture code does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("lr", self.lr)
        positive_int("cycles", self.cycles)
        positive_int("thinning", self.thinning)
        if self.samples_per_cycle is not None:
            positive_int("samples_per_cycle", self.samples_per_cycle)
        if self.sample_below is not None:
            positive("sample_below", self.sample_below)
        fraction(
            "exploration", self.exploration, ": it is the share of each cycle spent without noise (β in the paper)"
        )
        integer("drop_first", self.drop_first, 0, self.steps)
        true_or_false("noise_in_exploration", self.noise_in_exploration)
        require(self.cycles <= self.steps, "cycles", self.cycles, f"be at most the number of steps ({self.steps})")
        if self.noise_in_exploration and self.ramp:
            raise UserError(f"ramp must be 0 with noise_in_exploration, got {self.ramp!r}: that noise is never off")
        started = math.ceil(self.steps / self.cycle_length)
        if started != self.cycles:
            raise UserError(
                f"cycles must divide the run so that all of them start: {self.steps} steps in cycles of "
                f"ceil({self.steps}/{self.cycles}) = {self.cycle_length} give {started} cycles, not {self.cycles}; "
                f"use {started} cycles or a multiple of {self.cycles} steps"
            )
        room = self.room
        if room == 0:
            stage = self.cycle_length - self._sampling_from
            field = "exploration" if self.sample_below is None else "sample_below"
            if stage:
                field = "ramp" if self._ramp_steps - 1 > self.drop_first else "drop_first"
            raise UserError(
                f"{field} must leave at least one draw per cycle, got {getattr(self, field)}: the sampling stage has "
                f"{stage} of a cycle's {self.cycle_length} steps"
            )
        if self.samples_per_cycle is not None and room < self.samples_per_cycle:
            raise UserError(
                f"samples_per_cycle must be at most {room}, got {self.samples_per_cycle}: a cycle of "
                f"{self.cycle_length} steps with exploration {self.exploration} has room for {room} draws that are "
                f"{self.thinning} steps apart"
            )

    @cached_property
    def cycle_length(self) -> int:
        """L = ceil(K/M), in steps."""
        return math.ceil(self.steps / self.cycles)

    @property
    def cycle_count(self) -> int:
        return self.cycles

    @property
    def room(self) -> int:
        """The most draws that a full cycle can keep."""
        return self._draws_in(self.cycle_length)

    @cached_property
    def _sampling_from(self) -> int:
        """First position (from 0) of a full cycle that belongs to the sampling stage."""
        return bisect.bisect_left(range(self.cycle_length), True, key=self._samples)  # once sampling, a cycle stays so

    @cached_property
    def _ramp_steps(self) -> int:
        """Steps of a sampling stage up to the first at the full temperature."""
        return steps_in(self.ramp, self.cycle_length)

    @cached_property
    def _unkept(self) -> int:
        """Steps at the start of each sampling stage from which nothing is kept."""
        return max(self.drop_first, self._ramp_steps - 1)

    def _samples(self, position: int) -> bool:
        if self.sample_below is not None:
            return self._lr(math.pi * (position / self.cycle_length)) < self.sample_below
        return position / self.cycle_length >= self.exploration

    def _lr(self, angle: float) -> float:
        return self.lr / 2 * (math.cos(angle) + 1)

    def _draws_in(self, length: int) -> int:
        """Return how many positions ``thinning`` apart, counted back from the end, fit into the kept part of the
        stage."""
        room = length - min(self._sampling_from, length) - self._unkept
        return max(0, math.ceil(room / self.thinning))

    def _length(self, cycle: int) -> int:
        """Return the steps of one cycle: L, or the remainder for the last."""
        return min(self.cycle_length, self.steps - cycle * self.cycle_length)

    def at(self, step: int) -> ScheduleValues:
        self._check_step(step)
        cycle, position = divmod(step - 1, self.cycle_length)
        lr = self._lr(math.pi * position / self.cycle_length)
        if position < self._sampling_from:
            return ScheduleValues(lr, self.temperature if self.noise_in_exploration else 0.0, EXPLORATION, cycle, False)
        left = self._length(cycle) - 1 - position
        keep = position >= self._sampling_from + self._unkept and left % self.thinning == 0
        if keep and self.samples_per_cycle is not None:
            keep = left // self.thinning < self.samples_per_cycle
        temperature = self._heated(position - self._sampling_from + 1, self._ramp_steps)
        return ScheduleValues(lr, temperature, SAMPLING, cycle, keep)

    @property
    def kept(self) -> int:
        most = self.samples_per_cycle if self.samples_per_cycle is not None else self.steps
        full, last = (min(most, self._draws_in(self._length(c))) for c in (0, self.cycles - 1))
        return (self.cycles - 1) * full + last  # every cycle but the last is a full one

    def warnings(self) -> list[str]:
        last = self._length(self.cycles - 1)
        if last == self.cycle_length:
            return []
        cold = "" if self._draws_in(last) else " and keeps nothing"
        if last <= self._sampling_from:
            cold = " and never reaches its sampling stage"
        return [
            f"the last of {self.cycles} cycles has {last} steps instead of {self.cycle_length}{cold}: "
            f"{self.steps} steps are not a multiple of {self.cycles}"
        ]
