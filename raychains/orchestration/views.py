"""Evaluating any views of a run whose chains are finished, on any split of its task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from raychains.errors import Interrupted
from raychains.orchestration.driver import Driver
from raychains.orchestration.evaluators import Evaluators
from raychains.orchestration.lease import Lease
from raychains.orchestration.outcome import Outcome
from raychains.orchestration.placement import Placement
from raychains.planning.comparison import Comparison
from raychains.planning.listener import Listener
from raychains.planning.views import Member, Request, check, expand
from raychains.store import Root


def evaluate_views(
    comparison: Comparison,
    root: Root,
    placement: Placement,
    listener: Listener,
    split: str,
    kinds: Sequence[str] = (),
    requests: Sequence[Request] = (),
    lease: Lease | None = None,
    *,
    rows: bool = True,
    dropped: Collection[str] = (),
    evaluators: Evaluators | None = None,
) -> Outcome:
    """Evaluate views of the arms and groups whose chains are all finished. Ray must be connected.

    Each sample is predicted once, or read where its prediction is kept, however many views it belongs to. The listener
    hears `Tick`, and of trouble; `Outcome.requested` holds the results: first the views of ``kinds``, arm by arm and
    group by group in the order of ``kinds``, then ``requests`` in their order.

    Args:
        comparison: the run's.
        root: its store.
        placement: how many evaluators, bins, which predictions are kept.
        listener: told what happens.
        split: of the task; another one than the run's is fine.
        kinds: what is evaluated of every arm and group, equally weighted: see `raychains.planning.views.KINDS`.
        requests: certain views, with weights where they have some.
        lease: this driver's among the store's.
        rows: whether the views of ``kinds`` bring their rows along.
        dropped: digests of chains that their arms are evaluated without; any other unfinished chain leaves its arms'
            groups out.
        evaluators: those of earlier calls of the same run; without them some are started, and ended before the return.

    Raises:
        UserError: an unknown kind; ``first:N`` or a request of more samples than an arm has; a request of an arm or
            group that is unknown or has unfinished chains, that selects nothing, or whose weights are no weights of its
            samples; weights other than equal of a task that has no use for them.
        Interrupted: the person stopped it.
    """
    check(kinds)

    def asked(members: Mapping[tuple[int, int], Sequence[Member]]) -> list[Request]:
        found = [
            Request(arm=arm, group=group, view=view, rows=rows)
            for (arm, group), samples in members.items()
            for view in expand(kinds, samples)
        ]
        return [*found, *requests]

    outcome = Driver(
        replace(comparison, split=split),
        root,
        placement,
        listener,
        run_chains=False,
        lease=lease,
        requests=asked,
        dropped=dropped,
        evaluators=evaluators,
    ).run()
    if outcome.stopped:
        raise Interrupted("stopped before all views were evaluated; predictions that are kept are not made again")
    return outcome
