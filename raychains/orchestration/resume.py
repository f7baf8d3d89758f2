"""Where a chain goes on: its newest checkpoint behind which nothing is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raychains.positions import position, samples_per_keep
from raychains.spec import ChainSpec
from raychains.store import ChainStore


def state_to_resume(spec: ChainSpec, store: ChainStore, attempt: int, warn: Callable[[str, str], None]) -> Any | None:
    """The stored state that the next incarnation loads; None sends the chain to its beginning.

    That is the newest checkpoint, or the newest of a cycle's end if the newest is on noise that diverged. A sample that was
    drawn before it and is torn or gone since must be drawn again, so that the chain goes back to before that sample.

    Args:
        spec: of the chain.
        store: its folder.
        attempt: the noise streams asked for.
        warn: told every checkpoint that is passed over, and every sample that must be drawn again.
    """
    state = store.newest_checkpoint(warn=warn)
    if state is not None and state["chain"].get("noise_attempt", 0) < attempt:
        state = store.newest_checkpoint(warn=warn, cycle_end=True)
    if state is None:
        return None
    each = samples_per_keep(spec)
    missing = first_missing(spec, store, state["chain"]["index"] * each)
    if missing is None:
        return state
    warn(store.root.location(f"chains/{store.digest}/samples"), f"sample {missing} is torn or gone and is drawn again")
    while state is not None and state["chain"]["index"] * each > missing:
        state = store.newest_checkpoint(warn=warn, before=state["chain"]["step"] - 1)
    return state


def first_missing(spec: ChainSpec, store: ChainStore, drawn: int) -> int | None:
    """The first position before ``drawn`` of which there is no whole sample; None when all are there."""
    there = {position(spec, record.meta) for record in store.records()}
    return next((p for p in range(drawn) if p not in there), None)
