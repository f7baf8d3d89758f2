"""What sampling and evaluating share: options to a placement, a driver in its Ray session, results to the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raychains.api.result import Result
from raychains.data.root import root_of
from raychains.errors import ChainsFailed
from raychains.options import Common
from raychains.planning import Comparison
from raychains.planning.listener import Listener
from raychains.store import Root, RunStore

if TYPE_CHECKING:
    from raychains.orchestration.crew import Crew
    from raychains.orchestration.lease import Lease
    from raychains.orchestration.outcome import Outcome
    from raychains.orchestration.placement import Placement


def placement(options: Common) -> Placement:
    """The part of the options that says where chains run."""
    from raychains.methods import workers_of
    from raychains.orchestration.placement import Placement
    from raychains.planning.duration import seconds

    workers, share = workers_of(options)
    return Placement(
        cpus_per_chain=options.cpus_per_chain,
        gpus_per_chain=share,
        workers_per_chain=workers,
        evaluators=options.evaluators,
        decoders=options.decoders,
        gpus_per_evaluator=options.gpus_per_evaluator if options.gpus_per_evaluator is not None else 0.0,
        accelerator_type=options.accelerator_type,
        concurrent=options.concurrent,
        slot_timeout=seconds("slot_timeout", options.slot_timeout) if options.slot_timeout is not None else None,
        checkpoint_every=seconds("checkpoint_every", options.checkpoint_every),
        max_failures=options.max_failures,
        on_divergence=options.on_divergence,  # type: ignore[arg-type]  # checked there
        data_root=root_of(options.data_root) if options.data_root is not None else None,
        bins=options.bins,
        keep_predictions=options.keep_predictions,
    )


@contextlib.contextmanager
def connected(options: Common) -> Iterator[None]:
    """A body with a connection to Ray; one that is made here ends with it."""
    from raychains.orchestration.session import connect

    session = connect(options.address, object_store_memory=options.object_store_memory, namespace=options.namespace)
    try:
        yield
    finally:
        session.close()


@contextlib.contextmanager
def crew(options: Common, name: str = "crew") -> Iterator[Crew]:
    """A body whose runs and evaluations share their actors where they are handed the crew: `raychains.orchestration.crew`.

    They come one after another. The connection to Ray is made here and ends with the body.

    Args:
        options: the address of Ray and what belongs to it; all other options are those of each run.
        name: what the actors are called after.
    """
    from raychains.orchestration.crew import Crew

    with connected(options), Crew(name) as made:
        yield made


def drive(
    comparison: Comparison, root: Root, options: Common, listener: Listener, lease: Lease, crew: Crew | None = None
) -> Outcome:
    """Run a comparison's unfinished chains and evaluate its arms; with a ``crew``, by its actors."""
    from raychains.orchestration.driver import Driver

    with connected(options):
        lease.confirm()  # an entry that came at the same time is listed by now
        return Driver(comparison, root, placement(options), listener, run_chains=True, lease=lease, crew=crew).run()


def store_results(folder: RunStore, comparison: Comparison, outcome: Outcome) -> None:
    """Write what a driver found as the run's tables."""
    from raychains.report import results

    results.write(folder, comparison, outcome.views, outcome.seconds)
    if outcome.failed:
        folder.write_table("failed", [{"digest": d, "reason": r} for d, r in outcome.failed.items()])


def publish(
    folder: RunStore, comparison: Comparison, outcome: Outcome, data_root: str | None, *, page: bool = True
) -> Result:
    """Tables and ``page`` of a run, and the run as people hold it.

    Raises:
        ChainsFailed: some chains were given up; everything else is written.
    """
    from raychains.report import page as pages

    store_results(folder, comparison, outcome)
    if page:
        pages.write(folder, comparison)
    result = Result(folder, comparison, outcome.failed, data_root)
    if outcome.failed:
        digest, reason = next(iter(outcome.failed.items()))
        raise ChainsFailed(
            f"{len(outcome.failed)} of {len(comparison.chains())} chains failed, results of the others are in {result.path}; "
            f"the first, {digest[:12]}: {reason}"
        )
    return result
