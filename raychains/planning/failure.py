"""What to do when a chain's incarnation ends badly: pure functions of what happened."""

from __future__ import annotations

from enum import Enum
from typing import Literal, get_args

Policy = Literal["stop", "restart-cycle", "drop-chain"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
"""What can be done about a divergence: the chain fails; it goes back to its cycle's start with fresh noise, and fails
after too many times; or its arm is evaluated without it."""


class Decision(Enum):
    """Retry on any slot, or give the chain up."""

    RETRY = "retry"
    GIVE_UP = "give up"


class Remedy(Enum):
    """What becomes of a chain that diverged."""

    FAIL = "fail"
    DROP = "drop"
    RESTART = "restart"


MAX_FAILURES = 3
"""Losses in a row without progress that a chain survives."""


def decide(*, deterministic: bool, failures: int, max_failures: int = MAX_FAILURES) -> Decision:
    """``failures`` counts this one and those before it since the chain last progressed.

    An error that the chain itself raised would come again at the same step, so it is not retried.
    """
    if deterministic or failures > max_failures:
        return Decision.GIVE_UP
    return Decision.RETRY


def remedy(policy: Policy, *, restarts: int, max_failures: int = MAX_FAILURES) -> Remedy:
    """``restarts`` counts the fresh noise streams that the chain was given before.

    A divergence under the same noise would come again at the same step, so a restart always takes other noise.
    """
    if policy == "drop-chain":
        return Remedy.DROP
    if policy == "restart-cycle" and restarts < max_failures:
        return Remedy.RESTART
    return Remedy.FAIL
