"""The traditional decreasing step size (Welling & Teh, 2011), with the papers' noise-free start for networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from raychains.core.errors import UserError, require
from raychains.core.validation import is_number, positive, positive_int
from raychains.schedules.schedule import NonCyclical


@dataclass(frozen=True, kw_only=True)
class Decreasing(NonCyclical):
    """lr_k = a·(b + k)^(−γ): no noise and no draws during the burn-in, then both.

    The networks' baseline of cSG-MCMC §5.2 runs 150 of 200 epochs without noise (``noise_from=.75``) and keeps 20
    draws, one per epoch, from the rest.

    Raises:
        UserError: a field out of range, or more samples than fit after the burn-in.
    """

    kind: ClassVar[str] = "decreasing"

    a: float
    b: float
    gamma: float
    """γ in (0.5, 1]: Σ lr diverges, Σ lr² converges."""

    def _check_shape(self) -> None:
        positive("a", self.a)
        allowed = "be a finite number above -1, so that the first step size is finite"
        require(is_number(self.b) and self.b > -1, "b", self.b, allowed)
        _check_gamma(self.gamma)

    @classmethod
    def between(cls, *, lr: float, final_lr: float, gamma: float, steps: int, **rest: object) -> Decreasing:
        """Return the schedule of the a and b for which the step size falls from ``lr`` at step 1 to ``final_lr`` at
        step ``steps``."""
        positive("lr", lr)
        positive("final_lr", final_lr)
        positive_int("steps", steps)
        _check_gamma(gamma)
        require(final_lr < lr or steps == 1, "final_lr", final_lr, f"be below lr ({lr})")
        try:
            ratio = (lr / final_lr) ** (1 / gamma)  # = (b + K) / (b + 1)
            b = (steps - ratio) / (ratio - 1) if steps > 1 else 0.0
            a = lr * (b + 1) ** gamma if b > -1 else math.nan
        except (OverflowError, ZeroDivisionError):
            a = math.nan
        if not (0 < a < math.inf):
            raise UserError(f"final_lr must be nearer to lr ({lr}), got {final_lr}: their ratio is out of range")
        return cls(a=a, b=b, gamma=gamma, steps=steps, **rest)  # type: ignore[arg-type]

    def lr_at(self, step: int) -> float:
        return self.a * (self.b + step) ** -self.gamma


def _check_gamma(gamma: object) -> None:
    require(is_number(gamma) and 0.5 < gamma <= 1, "gamma", gamma, "lie in (0.5, 1]")
