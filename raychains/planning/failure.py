"""What to do when a chain's incarnation ends badly: a pure function of what happened."""

from __future__ import annotations

from enum import Enum


class Decision(Enum):
    """Retry on any slot, or give the chain up."""

    RETRY = "retry"
    GIVE_UP = "give up"


MAX_FAILURES = 3
"""Losses in a row without progress that a chain survives."""


def decide(*, deterministic: bool, failures: int, max_failures: int = MAX_FAILURES) -> Decision:
    """``failures`` counts this one and those before it since the chain last progressed.

    An error that the chain itself raised would come again at the same step, so it is not retried.
    """
    if deterministic or failures > max_failures:
        return Decision.GIVE_UP
    return Decision.RETRY
