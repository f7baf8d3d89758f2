"""The failure policy: decisions about lost workers and diverged chains, as pure functions of what happened.

An error that the chain itself raised would recur at the same step, so the chain fails at once; this module has no part in that.
"""

from __future__ import annotations

from typing import Literal, get_args

Policy = Literal["stop", "restart-cycle", "drop-chain"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
"""Policies for a divergence: the chain fails; it goes back to its cycle's start with fresh noise, and fails
after too many times; or its arm is evaluated without it."""

Remedy = Literal["fail", "drop", "restart"]
"""The remedy for a divergence: give up the chain and its arm, give up the chain alone, or restart it."""

MAX_FAILURES = 3
"""Losses in a row without progress that a chain survives."""


def remedy(policy: Policy, *, restarts: int, max_failures: int = MAX_FAILURES) -> Remedy:
    """Return what becomes of a diverged chain that was given fresh noise ``restarts`` times before.

    A divergence under the same noise would come again at the same step, so a restart always takes other noise.
    """
    if policy == "drop-chain":
        return "drop"
    return "restart" if policy == "restart-cycle" and restarts < max_failures else "fail"
