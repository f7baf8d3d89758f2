"""The traditional decreasing step size (Welling & Teh, 2011), with the papers' noise-free start for networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from raychains.errors import UserError, require
from raychains.schedules.base import BURN_IN, SAMPLING, Schedule, Setting, is_number, positive, positive_int


@dataclass(frozen=True, kw_only=True)
class Decreasing(Schedule):
    """lr_k = a·(b + k)^(−γ): no noise and no draws during the burn-in, then both.

    The networks' baseline of cSG-MCMC §5.2 runs 150 of 200 epochs without noise (``noise_from=.75``) and keeps 20
    draws, one per epoch, from the rest.

    Raises:
        UserError: a field out of range, or more samples than fit behind the burn-in.
    """

    kind: ClassVar[str] = "decreasing"

    a: float
    b: float
    gamma: float
    """γ in (0.5, 1]: Σ lr diverges, Σ lr² converges."""
    noise_from: float = 0.0
    """Share of the run without noise and without draws, in [0, 1)."""
    samples: int | None = None
    """Keep this many draws, counted back from the end; None keeps all behind the burn-in."""
    thinning: int = 1
    """Steps between kept draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("a", self.a)
        require(
            is_number(self.b) and self.b > -1,
            "b",
            self.b,
            "be a finite number above -1, so that the first step size is finite",
        )
        _check_gamma(self.gamma)
        ok = is_number(self.noise_from) and 0 <= self.noise_from < 1
        require(ok, "noise_from", self.noise_from, "lie in [0, 1): it is the share of the run without noise")
        positive_int("thinning", self.thinning)
        room = math.ceil((self.steps - self.burn_in) / self.thinning)
        require(room > 0, "noise_from", self.noise_from, f"leave at least one of the {self.steps} steps with noise")
        if self.samples is not None:
            positive_int("samples", self.samples)
            if self.samples > room:
                raise UserError(
                    f"samples must be at most {room}, got {self.samples}: {self.steps - self.burn_in} steps behind "
                    f"the burn-in hold {room} draws that are {self.thinning} steps apart"
                )

    @classmethod
    def between(cls, *, lr: float, final_lr: float, gamma: float, steps: int, **rest: object) -> Decreasing:
        """The a and b for which the step size falls from ``lr`` at step 1 to ``final_lr`` at step ``steps``."""
        positive("lr", lr)
        positive("final_lr", final_lr)
        positive_int("steps", steps)
        _check_gamma(gamma)
        require(final_lr < lr or steps == 1, "final_lr", final_lr, f"be below lr ({lr})")
        ratio = (lr / final_lr) ** (1 / gamma)  # = (b + K) / (b + 1)
        b = (steps - ratio) / (ratio - 1) if steps > 1 else 0.0
        return cls(a=lr * (b + 1) ** gamma, b=b, gamma=gamma, steps=steps, **rest)  # type: ignore[arg-type]

    @cached_property
    def burn_in(self) -> int:
        """Steps without noise: ceil(noise_from · K)."""
        return math.ceil(self.noise_from * self.steps - 1e-9)

    def at(self, step: int) -> Setting:
        lr = self.a * (self.b + step) ** -self.gamma
        if step <= self.burn_in:
            return Setting(lr, 0.0, BURN_IN, 0, False)
        left = self.steps - step
        keep = left % self.thinning == 0 and (self.samples is None or left // self.thinning < self.samples)
        return Setting(lr, self.temperature, SAMPLING, 0, keep)

    @property
    def kept(self) -> int:
        room = math.ceil((self.steps - self.burn_in) / self.thinning)
        return room if self.samples is None else self.samples


def _check_gamma(gamma: object) -> None:
    require(is_number(gamma) and 0.5 < gamma <= 1, "gamma", gamma, "lie in (0.5, 1]")  # type: ignore[operator]
