"""The plain shapes of a step size that cyclical ones are compared with: constant, linear, exponential and step."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from raychains.core.errors import require
from raychains.core.validation import at_least_0, is_number, positive
from raychains.schedules.schedule import NonCyclical, steps_in


@dataclass(frozen=True, kw_only=True)
class Constant(NonCyclical):
    """lr_k = lr.

    Raises:
        UserError: a field out of range, or more samples than fit after the burn-in.

    Source: Entropy-MCMC (ICLR 2024), App. C.2, which compares this and the three below with the cyclical one.
    """

    kind: ClassVar[str] = "constant"

    lr: float
    """Step size throughout (mean-loss scale)."""

    def _check_shape(self) -> None:
        positive("lr", self.lr)

    def lr_at(self, step: int) -> float:
        return self.lr


@dataclass(frozen=True, kw_only=True)
class _Between(NonCyclical):
    """A step size that moves from one value at step 1 to another at step K."""

    lr: float
    """Step size of step 1 (mean-loss scale)."""
    final_lr: float
    """Step size of step K."""

    def _check_shape(self) -> None:
        positive("lr", self.lr)
        self._check_final()
        ok = self.steps > 1 or self.final_lr == self.lr
        require(ok, "steps", self.steps, f"be at least 2, to get from lr {self.lr} to final_lr {self.final_lr}")

    def _check_final(self) -> None:
        positive("final_lr", self.final_lr)

    def _share(self, step: int) -> float:
        """Return the share of the way at ``step``, from 0 at step 1 to 1 at step K."""
        return (step - 1) / (self.steps - 1) if self.steps > 1 else 0.0

    def warnings(self) -> list[str]:
        if self.final_lr <= self.lr:
            return super().warnings()
        return [*super().warnings(), f"the step size grows, from lr {self.lr} to final_lr {self.final_lr}"]


@dataclass(frozen=True, kw_only=True)
class Linear(_Between):
    """lr_k = (1 − s)·lr + s·final_lr, s = (k − 1)/(K − 1): exactly ``lr`` at step 1 and ``final_lr`` at step K.

    With ``final_lr`` 0 the last step moves nothing but what momentum carries.

    Raises:
        UserError: a field out of range, or more samples than fit after the burn-in.

    Source: Entropy-MCMC (ICLR 2024), App. C.2.
    """

    kind: ClassVar[str] = "linear"

    def _check_final(self) -> None:
        at_least_0("final_lr", self.final_lr)

    def lr_at(self, step: int) -> float:
        s = self._share(step)
        return (1 - s) * self.lr + s * self.final_lr


@dataclass(frozen=True, kw_only=True)
class Exponential(_Between):
    """lr_k = lr^(1 − s)·final_lr^s, s = (k − 1)/(K − 1): every step shrinks it by the same factor.

    Exactly ``lr`` at step 1 and ``final_lr``, above 0, at step K.

    Raises:
        UserError: a field out of range, or more samples than fit after the burn-in.

    Source: Entropy-MCMC (ICLR 2024), App. C.2.
    """

    kind: ClassVar[str] = "exponential"

    def lr_at(self, step: int) -> float:
        s = self._share(step)
        return float(self.lr ** (1 - s) * self.final_lr**s)


@dataclass(frozen=True, kw_only=True)
class Step(NonCyclical):
    """lr_k = lr·factor^n, n = number of milestones that are past: those with ceil(milestone·K) < k.

    Raises:
        UserError: a field out of range, or more samples than fit after the burn-in.

    Source: Entropy-MCMC (ICLR 2024), App. C.2.
    """

    kind: ClassVar[str] = "step"

    lr: float
    """Step size before the first milestone (mean-loss scale)."""
    milestones: tuple[float, ...]
    """Shares of the run, in (0, 1) and rising, after each of which the step size falls; a list will do."""
    factor: float
    """Factor of the step size at each milestone, in (0, 1)."""

    def _check_shape(self) -> None:
        positive("lr", self.lr)
        shares = tuple(self.milestones) if isinstance(self.milestones, list | tuple) else ()
        ok = bool(shares) and all(is_number(m) and 0 < m < 1 for m in shares)
        ok = ok and all(a < b for a, b in itertools.pairwise(shares))
        allowed = "be one or more shares of the run in (0, 1), each above the one before"
        require(ok, "milestones", self.milestones, allowed)
        object.__setattr__(self, "milestones", shares)  # JSON has lists only
        ok = is_number(self.factor) and 0 < self.factor < 1
        require(ok, "factor", self.factor, "lie in (0, 1): each milestone multiplies the step size by it")

    @cached_property
    def last_steps(self) -> tuple[int, ...]:
        """The last step before each milestone."""
        return tuple(steps_in(m, self.steps) for m in self.milestones)

    def lr_at(self, step: int) -> float:
        return float(self.lr * self.factor ** bisect.bisect_left(self.last_steps, step))

    def warnings(self) -> list[str]:
        unseen = sum(last >= self.steps for last in self.last_steps)
        lost = [f"{unseen} of {len(self.milestones)} milestones lie after the last of {self.steps} steps"]
        return [*super().warnings(), *(lost if unseen else [])]
