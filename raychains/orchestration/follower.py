"""What ranks other than 0 do: the same chain, step for step, of which nothing is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from raychains.orchestration.ending import outcome_of, reason_of
from raychains.orchestration.states import unpacked

if TYPE_CHECKING:
    from raychains.data.prepared.carrier import Carry
    from raychains.ranks import Ranks
    from raychains.spec import ChainSpec
    from raychains.store import Root

log = logging.getLogger(__name__)


def follow(
    spec: ChainSpec,
    root: Root,
    tasks: dict[str, Any],
    attempt: int,
    group: Ranks,
    device: Any,
    carry: Carry | None = None,
) -> None:
    """Run a chain as one of its ranks until rank 0 ends it.

    Args:
        spec: of the chain.
        root: the store, where a warm start lies.
        tasks: the worker's by their spec, so that data are loaded once.
        attempt: the noise streams asked for, as for rank 0.
        group: the chain's ranks.
        device: of this rank.
        carry: carries a streaming task's batches.

    Raises:
        Exception: whatever happens here, once the others were told.
    """
    from raychains import tasks as known
    from raychains.chain import Chain
    from raychains.ranks import OF_OTHERS
    from raychains.sample import Sample
    from raychains.store import starts

    try:
        key = repr(spec.task.to_json())
        if key not in tasks:
            tasks.clear()  # one task's data at a time
            tasks[key] = known.build(spec.task)
        tasks[key].carried(carry)
        group.together()
        state = unpacked(group.share(b""))
        start = starts.read(root, spec.start) if spec.start is not None else None
        chain = Chain(spec, tasks[key], device=device, start=start, group=group)
        if state is not None:
            chain.load_state_dict(state["chain"])
        if chain.noise_attempt < attempt:
            chain.restart_noise(attempt)
        group.together()
        while not chain.done:
            for event in chain.advance():
                if isinstance(event, Sample):
                    group.wait(_never)
            if chain.paused and not chain.done:
                chain.check_ranks()
                group.wait(_never)
                if not group.decide(True):
                    return
        chain.check_ranks()
    except Exception as error:
        log.info("rank %d of chain %s", group.rank, spec.digest[:12], exc_info=True)
        if not isinstance(error, OF_OTHERS):
            group.leave(reason_of(error), lost=outcome_of(error) == "lost")
        raise
    finally:
        group.close()


def _never(seconds: float) -> bool:
    """Asked of rank 0 alone."""
    return False
