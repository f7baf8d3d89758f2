"""A schedule is a pure function of the step: step k = 1 … K gives lr, temperature, stage, cycle and whether to keep a draw."""

from __future__ import annotations

import bisect
import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from raychains.errors import UserError, require
from raychains.spec import Part

MOST = 2**53
"""Largest integer that settings may have: shares of it are exact as floats."""
LARGEST_LR = 1e30
"""Beyond it the noise's standard deviation has no single-precision number; nothing is sampled anywhere near."""
EXPLORATION, SAMPLING, BURN_IN = "exploration", "sampling", "burn-in"


class Setting(NamedTuple):
    """What the chain applies at one step."""

    lr: float
    """Step size on the mean-loss scale, as in `torch.optim.SGD`; the papers' step is lr / N."""
    temperature: float
    """0 = no noise (optimisation), 1 = the Bayes posterior."""
    stage: str
    """``exploration``, ``sampling`` or ``burn-in``."""
    cycle: int
    """Counted from 0; 0 throughout without cycles."""
    keep: bool
    """Whether the state *after* this step is a draw to keep."""


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """Base of all schedules: validated where built, and convertible to and from a spec's `Part`."""

    kind: ClassVar[str]
    revision: ClassVar[int] = 1

    steps: int
    """K, the gradient steps of the whole chain."""
    temperature: float = 1.0
    """Temperature while noise is on."""
    ramp: float = field(default=0.0, metadata={"later": True})
    """Share of the run, or of each cycle, over which the temperature grows linearly from 0 to ``temperature`` once the
    noise sets in; nothing is kept before it is reached. 0 switches the noise on at once."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):  # 1 and 1.0 are one setting and must have one digest
            value = getattr(self, f.name)
            if "float" in str(f.type) and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, f.name, float(value))
        positive_int("steps", self.steps)
        require(
            is_number(self.temperature) and self.temperature >= 0,
            "temperature",
            self.temperature,
            "be a finite number of at least 0 (1 is the Bayes posterior, 0 optimisation)",
        )
        ok = is_number(self.ramp) and 0 <= self.ramp < 1
        require(ok, "ramp", self.ramp, "lie in [0, 1): it is the share over which the temperature grows")

    @abstractmethod
    def at(self, step: int) -> Setting:
        """The setting of ``step``, counted from 1 to ``steps``."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many draws the whole chain keeps."""

    @property
    def cycle_count(self) -> int:
        """How many cycles there are (1 without cycles)."""
        return 1

    def sampling_ends(self) -> tuple[int, int]:
        """The first and the last step with the stage `SAMPLING`."""
        # Steps of a stage lie together: in a run without cycles, and in a full cycle.
        length = -(-self.steps // self.cycle_count)
        first = 1 + bisect.bisect_left(range(1, length + 1), True, key=lambda k: self.at(k).stage == SAMPLING)
        if self.at(self.steps).stage == SAMPLING:
            return first, self.steps
        return first, (self.cycle_count - 1) * length  # a short last cycle ends before it samples

    def warnings(self) -> list[str]:
        """Sentences about settings that are allowed but probably not meant."""
        return []

    def part(self) -> Part:
        """This schedule as a spec's part, as JSON holds it.

        A field that was added after samples had been stored carries the metadata ``later`` and is left out at its
        default, so that the old digests stay.
        """
        settings: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if not (f.metadata.get("later") and value == f.default):
                settings[f.name] = list(value) if isinstance(value, tuple) else value
        return Part(kind=self.kind, revision=self.revision, settings=settings)

    def _heated(self, noisy: int, ramp: int) -> float:
        """Temperature of the ``noisy``-th step with noise, counted from 1, of which the first ``ramp`` heat up."""
        return self.temperature if noisy >= ramp else self.temperature * noisy / ramp


def steps_in(share: float, steps: int) -> int:
    """A share of ``steps`` in whole steps: rounded up, immune to the product's rounding error."""
    return math.ceil(share * steps - 1e-9)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite int or float (bools are not numbers here)."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


def positive_int(field: str, value: object) -> None:
    """Refuse anything but an integer of at least 1, and of at most what a float holds exactly."""
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    require(ok, field, value, "be an integer of at least 1")
    if value > MOST:  # type: ignore[operator]
        raise UserError(f"{field} must be at most {MOST}, got more")


def positive(field: str, value: object) -> None:
    """Refuse anything but a finite number above 0."""
    require(is_number(value) and value > 0, field, value, "be a finite number above 0")  # type: ignore[operator]
