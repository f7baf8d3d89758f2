"""A run without cycles: a share of it without noise, then sampling to the end, whatever shape the step size has."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from raychains.errors import UserError, require
from raychains.schedules.base import (
    BURN_IN,
    SAMPLING,
    Schedule,
    Setting,
    is_number,
    positive_int,
    steps_in,
)


@dataclass(frozen=True, kw_only=True)
class Straight(Schedule):
    """Base of the schedules without cycles: no noise and no draws during the burn-in, then both."""

    noise_from: float = 0.0
    """Share of the run without noise and without draws, in [0, 1); `noise_from_steps` tells it from steps."""
    samples: int | None = None
    """Keep this many draws, counted back from the end; None keeps all behind the burn-in."""
    thinning: int = 1
    """Steps between kept draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_shape()
        ok = is_number(self.noise_from) and 0 <= self.noise_from < 1
        require(ok, "noise_from", self.noise_from, "lie in [0, 1): it is the share of the run without noise")
        positive_int("thinning", self.thinning)
        noisy = self.steps - self.burn_in
        require(noisy > 0, "noise_from", self.noise_from, f"leave at least one of the {self.steps} steps with noise")
        require(
            self.room > 0, "ramp", self.ramp, f"leave at least one of the {noisy} steps with noise at full temperature"
        )
        if self.samples is not None:
            positive_int("samples", self.samples)
            if self.samples > self.room:
                raise UserError(
                    f"samples must be at most {self.room}, got {self.samples}: {self.steps - self._unkept} steps behind "
                    f"the {'ramp' if self._unkept > self.burn_in else 'burn-in'} hold {self.room} draws that are "
                    f"{self.thinning} steps apart"
                )

    @abstractmethod
    def _check_shape(self) -> None:
        """Refuse settings of the step size that are out of range."""

    @abstractmethod
    def lr_at(self, step: int) -> float:
        """The step size of ``step``, counted from 1 to ``steps``."""

    @staticmethod
    def noise_from_steps(burn_in_steps: int, *, steps: int) -> float:
        """The ``noise_from`` with which exactly the first ``burn_in_steps`` of ``steps`` have no noise.

        Raises:
            UserError: no step would be left with noise.
        """
        positive_int("steps", steps)
        ok = isinstance(burn_in_steps, int) and not isinstance(burn_in_steps, bool) and 0 <= burn_in_steps < steps
        require(ok, "burn_in_steps", burn_in_steps, f"be an integer in [0, {steps - 1}]: the steps without noise")
        share = burn_in_steps / steps
        # In very long runs the product may round up past a whole step; half a step less never does.
        return share if steps_in(share, steps) == burn_in_steps else (burn_in_steps - 0.5) / steps

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
        """Steps from which nothing is kept: the burn-in and those below the full temperature."""
        return self.burn_in + max(0, self._ramp_steps - 1)

    def at(self, step: int) -> Setting:
        lr = self.lr_at(step)
        if step <= self.burn_in:
            return Setting(lr, 0.0, BURN_IN, 0, False)
        left = self.steps - step
        keep = step > self._unkept and left % self.thinning == 0
        if keep and self.samples is not None:
            keep = left // self.thinning < self.samples
        return Setting(lr, self._heated(step - self.burn_in, self._ramp_steps), SAMPLING, 0, keep)

    @property
    def kept(self) -> int:
        return self.room if self.samples is None else self.samples
