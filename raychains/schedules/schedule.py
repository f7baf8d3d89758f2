"""A schedule is a pure function of the step: step k = 1 … K gives lr, temperature, stage, cycle and whether to keep a
draw.

`NonCyclical` is the base of those without cycles: a share of the run without noise, then sampling to the end.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from raychains.core.errors import UserError, require
from raychains.core.spec import Part
from raychains.core.user_code import own_kind, source_of
from raychains.core.validation import fraction, integer, is_int, is_number, positive_int

LARGEST_LR = 1e30
"""Beyond it the noise's standard deviation has no single-precision number; nothing is sampled anywhere near."""
EXPLORATION, SAMPLING, BURN_IN = "exploration", "sampling", "burn-in"


class ScheduleValues(NamedTuple):
    """The values that a chain applies at one step."""

    lr: float
    """Step size on the mean-loss scale, as in `torch.optim.SGD`; the papers' step is lr / N."""
    temperature: float
    """0 = no noise (optimisation), 1 = the Bayes posterior."""
    stage: str
    """``exploration``, ``sampling`` or ``burn-in``."""
    cycle: int
    """Counted from 0; 0 throughout without cycles."""
    keep: bool
    """True if the state *after* this step is a draw to keep."""


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """Base of all schedules: validated where built, and convertible to and from a spec's `Part`."""

    kind: ClassVar[str]
    """The name in specs; a user's class is named by its import path."""
    revision: ClassVar[int] = 1
    own_options: ClassVar[frozenset[str]] = frozenset({"steps", "lr", "temperature"})
    """Settings that are options of the chain itself."""

    steps: int
    """K, the gradient steps of the whole chain."""
    temperature: float = 1.0
    """Temperature while noise is on."""
    ramp: float = field(default=0.0, metadata={"omitted_default": True})
    """Share of the run, or of each cycle, over which the temperature grows linearly from 0 to ``temperature`` once the
    noise sets in; nothing is kept before it is reached. 0 switches the noise on at once."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_kind(cls)

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):  # 1 and 1.0 are one setting and must have one digest
            value = getattr(self, f.name)
            if "float" in str(f.type) and is_int(value) and is_number(value):
                object.__setattr__(self, f.name, float(value))
        positive_int("steps", self.steps)
        allowed = f"lie in [0, {LARGEST_LR:g}] (1 is the Bayes posterior, 0 optimisation)"
        ok = is_number(self.temperature) and 0 <= self.temperature <= LARGEST_LR
        require(ok, "temperature", self.temperature, allowed)
        fraction("ramp", self.ramp, ": it is the share over which the temperature grows")

    @abstractmethod
    def at(self, step: int) -> ScheduleValues:
        """Return the values of ``step``, counted from 1 to ``steps``.

        Raises:
            UserError: another step, as the 0 of a loop over ``range(steps)``.
        """

    def _check_step(self, step: int) -> None:
        if not 1 <= step <= self.steps:
            raise UserError(f"step must be counted from 1 to the schedule's steps ({self.steps}), got {step}")

    @property
    @abstractmethod
    def kept(self) -> int:
        """The number of draws that the whole chain keeps."""

    @property
    def cycle_count(self) -> int:
        """The number of cycles (1 without cycles)."""
        return 1

    def sampling_ends(self) -> tuple[int, int]:
        """Return the first and the last step with the stage `SAMPLING`."""
        # Steps of a stage lie together: in a run without cycles, and in a full cycle.
        length = -(-self.steps // self.cycle_count)
        first = 1 + bisect.bisect_left(range(1, length + 1), True, key=lambda k: self.at(k).stage == SAMPLING)
        if self.at(self.steps).stage == SAMPLING:
            return first, self.steps
        return first, (self.cycle_count - 1) * length  # a short last cycle ends before it samples

    def warnings(self) -> list[str]:
        """Return sentences about settings that are allowed but probably not meant."""
        return []

    def part(self) -> Part:
        """Return this schedule as a spec's part, as JSON holds it.

        A field that was added after samples had been stored carries the metadata ``omitted_default`` and is left out at
        its default, so that the old digests stay.
        """
        settings: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if not (f.metadata.get("omitted_default") and value == f.default):
                settings[f.name] = list(value) if isinstance(value, tuple) else value
        return Part(kind=self.kind, revision=self.revision, settings=settings, source=source_of(type(self)))

    def _heated(self, noisy: int, ramp: int) -> float:
        """Return the temperature of the ``noisy``-th step with noise, counted from 1, of which the first ``ramp`` heat
        up."""
        return self.temperature if noisy >= ramp else self.temperature * noisy / ramp


def steps_in(share: float, steps: int) -> int:
    """Return a share of ``steps`` in whole steps: rounded up, immune to the product's rounding error."""
    return math.ceil(share * steps - 1e-9)


@dataclass(frozen=True, kw_only=True)
class NonCyclical(Schedule):
    """Base of the schedules without cycles: no noise and no draws during the burn-in, then both."""

    noise_from: float = 0.0
    """Share of the run without noise and without draws, in [0, 1); `noise_from_steps` gives it for a number of
    steps."""
    samples: int | None = None
    """Keep this many draws, counted back from the end; None keeps all after the burn-in."""
    thinning: int = 1
    """Steps between kept draws."""
    warm_up: float = field(default=0.0, metadata={"omitted_default": True})
    """Share of the run, from its first step on, of which no draws are kept though there is noise: a sampler tunes
    itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_shape()
        fraction("noise_from", self.noise_from, ": it is the share of the run without noise")
        positive_int("thinning", self.thinning)
        fraction("warm_up", self.warm_up, ": it is the share of the run whose draws are not kept")
        noisy = self.steps - self.burn_in
        require(noisy > 0, "noise_from", self.noise_from, f"leave at least one of the {self.steps} steps with noise")
        allowed = f"leave at least one of the {noisy} steps with noise at full temperature"
        require(self.room > 0, "ramp" if self.warm_up == 0 else "warm_up", self.ramp or self.warm_up, allowed)
        if self.samples is not None:
            positive_int("samples", self.samples)
            if self.samples > self.room:
                raise UserError(
                    f"samples must be at most {self.room}, got {self.samples}: {self.steps - self._unkept} steps after "
                    f"the {'ramp' if self._unkept > self.burn_in else 'burn-in'} hold {self.room} draws that are "
                    f"{self.thinning} steps apart"
                )

    @abstractmethod
    def _check_shape(self) -> None:
        """Refuse settings of the step size that are out of range."""

    @abstractmethod
    def lr_at(self, step: int) -> float:
        """Return the step size of ``step``, counted from 1 to ``steps``."""

    @staticmethod
    def noise_from_steps(burn_in_steps: int, *, steps: int) -> float:
        """Return the ``noise_from`` with which exactly the first ``burn_in_steps`` of ``steps`` have no noise.

        Raises:
            UserError: no step would be left with noise.
        """
        positive_int("steps", steps)
        integer("burn_in_steps", burn_in_steps, 0, steps - 1, ": the steps without noise")
        part = burn_in_steps / steps
        # In very long runs the product may round up past a whole step; half a step less never does.
        return part if steps_in(part, steps) == burn_in_steps else (burn_in_steps - 0.5) / steps

    @cached_property
    def burn_in(self) -> int:
        """Steps without noise: ceil(noise_from · K)."""
        return steps_in(self.noise_from, self.steps)

    @property
    def room(self) -> int:
        """The most draws that the run can keep."""
        return max(0, math.ceil((self.steps - self._unkept) / self.thinning))

    @cached_property
    def _ramp_steps(self) -> int:
        """Steps with noise up to the first at the full temperature."""
        return steps_in(self.ramp, self.steps)

    @cached_property
    def _unkept(self) -> int:
        """Steps from which nothing is kept: the burn-in and those below the full temperature, or the warm-up."""
        return max(self.burn_in + max(0, self._ramp_steps - 1), steps_in(self.warm_up, self.steps))

    def at(self, step: int) -> ScheduleValues:
        self._check_step(step)
        lr = self.lr_at(step)
        if step <= self.burn_in:
            return ScheduleValues(lr, 0.0, BURN_IN, 0, False)
        left = self.steps - step
        keep = step > self._unkept and left % self.thinning == 0
        if keep and self.samples is not None:
            keep = left // self.thinning < self.samples
        return ScheduleValues(lr, self._heated(step - self.burn_in, self._ramp_steps), SAMPLING, 0, keep)

    @property
    def kept(self) -> int:
        return self.room if self.samples is None else self.samples
