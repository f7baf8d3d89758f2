"""Builds drivers: a run of a comparison's chains, the evaluation of a stored run, and of any views of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raychains import tasks
from raychains.chain import precision
from raychains.chain.packable import key as pack_key
from raychains.chain.proof import Trial
from raychains.coordination.coordinator import Coordinator
from raychains.core.errors import Interrupted
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster import payload
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.cluster.workers import CLOCK, Clock, Names, Workers
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import pending_views
from raychains.orchestration.run.chain_dispatch import ChainDispatch
from raychains.orchestration.run.chain_workers import ChainWorkers
from raychains.orchestration.run.driver import Driver
from raychains.orchestration.run.evaluation_queue import EvaluationQueue
from raychains.orchestration.run.evaluator_pool import Evaluators, on_ray
from raychains.orchestration.run.outcome import DriverOutcome, Results
from raychains.orchestration.run.pending_views import PendingViews
from raychains.orchestration.run.resource_wait import ResourceWait
from raychains.orchestration.run.sample_pool import SamplePool
from raychains.planning.budget import steps_made
from raychains.planning.comparison import Comparison
from raychains.planning.events import Callback, Ready
from raychains.planning.views import Member, Request, check, expand
from raychains.store import Storage
from raychains.store.chain_store import stored_chains


def run_chains(
    comparison: Comparison, root: Storage, resources: ResourceConfig, callback: Callback, **settings: Any
) -> DriverOutcome:
    """Run a comparison's unfinished chains and evaluate all of its views; arguments as for `driver_of`."""
    return driver_of(comparison, root, resources, callback, **settings).run()


def driver_of(
    comparison: Comparison,
    root: Storage,
    resources: ResourceConfig,
    callback: Callback,
    *,
    lease: Lease,
    workers: Workers | None = None,
    clock: Clock = CLOCK,
    trial: Trial | None = None,
) -> Driver:
    """Return a driver that is about to run a comparison's unfinished chains and to evaluate all of its views.

    Args:
        lease: this driver's among the store's.
        workers: where actors run; on Ray, which must be connected, without it.
        trial: of a user's task, which the first worker repeats before it runs a chain.
    """
    workers = on_ray(workers)
    specs = comparison.chains()
    samples, seconds, steps = _stored(root, comparison)
    slots = resources.slots(workers).with_largest_shares(len(specs.keys() - seconds.keys()))
    for spec in specs.values():
        precision.check(spec, gpu=slots.gpus > 0)
    kinds = [part.kind for spec in specs.values() for part in (spec.sampler, spec.schedule)]
    code = None if workers.in_process else payload.for_actors(tasks.build(comparison.task_spec), workers, kinds)
    names = Names(lease.run or comparison.run_name, lease.driver_id)
    chain_workers = ChainWorkers(workers, root, slots, resources, code, names, clock, trial)
    evaluators = Evaluators.of(comparison, root, resources, code, workers=workers, slots=slots, names=names)
    queue = _queue(comparison, samples, evaluators, None if resources.evaluate else ())
    results = Results(comparison, callback, seconds, steps)
    coordinator = _coordinator(specs, seconds, resources)
    sampling = ChainDispatch(specs, root, coordinator, chain_workers, lease, queue, results, callback, clock)
    wait = ResourceWait(slots, chain_workers, resources.slot_timeout, resources.gpus_per_evaluator, clock)
    where = {"where": "this process"} if workers.in_process else {}
    callback.on(Ready(slots=slots.at_once(len(specs)), slot=slots.describe(), **where))
    evaluate = resources.evaluate
    return Driver(sampling, queue, results, lease, wait, callback, evaluate=evaluate, clock=clock)


def _coordinator(specs: Mapping[str, ChainSpec], finished: Collection[str], resources: ResourceConfig) -> Coordinator:
    unfinished = [digest for digest in specs if digest not in finished]
    inexact = {digest for digest, spec in specs.items() if not spec.exact}
    starts = {d: start for d in unfinished if (start := specs[d].start_chain) is not None and start not in finished}
    packs = {digest: pack_key(spec) for digest, spec in specs.items() if spec.pack}
    return Coordinator(unfinished, resources.failure_policy, inexact, starts, packs)


def evaluate_run(
    comparison: Comparison,
    root: Storage,
    resources: ResourceConfig,
    callback: Callback,
    *,
    lease: Lease,
    dropped: Collection[str] = (),
    evaluators: Evaluators,
    views: Callable[[Mapping[tuple[int, int], Sequence[Member]]], Sequence[Request]] | None = None,
) -> DriverOutcome:
    """Evaluate views of the arms and groups whose chains the store holds.

    Args:
        lease: this driver's among the store's.
        dropped: digests of chains that their arms are evaluated without; any other unfinished chain leaves its arms'
            groups out.
        evaluators: of the caller, who ends them.
        views: gives the views to evaluate from the samples by (arm, group); without it that of all samples of each.
    """
    slots = resources.slots(evaluators.workers, run_chains=False)
    samples, seconds, steps = _stored(root, comparison)
    requested = None
    if views is not None:
        members = pending_views.members(comparison, samples, seconds.keys(), dropped)
        requested = pending_views.requested(comparison, samples, views(members), members)
    queue = _queue(comparison, samples, evaluators, requested)
    results = Results(comparison, callback, seconds, steps)
    if views is None:
        for digest in comparison.chains().keys() - seconds.keys():
            if digest in dropped:
                queue.drop(digest)
                results.drop(digest)
            else:
                queue.abandon(digest)
        callback.on(Ready(slots=slots.at_once(len(comparison.chains())), slot=slots.describe()))
    wait = ResourceWait(slots, None, resources.slot_timeout, resources.gpus_per_evaluator)
    return Driver(None, queue, results, lease, wait, callback).run()


def evaluate_views(
    comparison: Comparison,
    root: Storage,
    resources: ResourceConfig,
    callback: Callback,
    split: str,
    kinds: Sequence[str] = (),
    requests: Sequence[Request] = (),
    *,
    rows: bool = True,
    **settings: Any,
) -> DriverOutcome:
    """Evaluate certain views of the arms and groups whose chains are all finished; further arguments as for
    `evaluate_run`.

    Each sample is predicted once, or read where its prediction is kept, however many views it belongs to. The callback
    hears `Tick`, and of problems; `DriverOutcome.requested` holds the results: first the views of ``kinds``, arm by arm
    and group by group in the order of ``kinds``, then ``requests`` in their order.

    Args:
        split: of the task; another one than the run's is fine.
        kinds: what is evaluated of every arm and group, equally weighted: see `raychains.planning.views.KINDS`.
        requests: certain views, with weights where they have some.
        rows: whether the views of ``kinds`` bring their rows along.

    Raises:
        UserError: an unknown kind; ``first:N`` or a request of more samples than an arm has; a request of an arm or
            group that is unknown or has unfinished chains, that selects nothing, or whose weights are no weights of its
            samples; weights other than equal of a task that has no use for them.
        Interrupted: the user stopped it.
    """
    check(kinds)

    def views(members: Mapping[tuple[int, int], Sequence[Member]]) -> list[Request]:
        of_kinds = [
            Request(arm=arm, group=group, view=view, rows=rows)
            for (arm, group), samples in members.items()
            for view in expand(kinds, samples)
        ]
        return [*of_kinds, *requests]

    outcome = evaluate_run(replace(comparison, split=split), root, resources, callback, views=views, **settings)
    if outcome.stopped:
        raise Interrupted("stopped before all views were evaluated; predictions that are kept are not made again")
    return outcome


def _queue(
    comparison: Comparison,
    samples: SamplePool,
    evaluators: Evaluators,
    requested: Sequence[PendingViews] | None = None,
) -> EvaluationQueue:
    shards = tasks.build(comparison.task_spec).splits()[comparison.split].shards
    return EvaluationQueue(comparison, samples, evaluators, shards=shards, requested=requested)


def _stored(root: Storage, comparison: Comparison) -> tuple[SamplePool, dict[str, float], dict[str, int]]:
    """The samples of the finished chains, and those chains' seconds and steps."""
    pool, seconds, steps, specs = SamplePool(), {}, {}, comparison.chains()
    for digest, found in stored_chains(root, specs).items():
        if found.records is not None:
            pool.recover(found.records)
            seconds[digest], steps[digest] = found.seconds, steps_made(specs[digest], found.records)
    return pool, seconds, steps
