"""What the driver itself costs at 1,000 chains and at 10,000: CPU time per event and memory per chain, by part.

The driver is the real one (coordinator, evaluation queue, pool, lease, a store on the local disk); Ray, its workers and
its evaluators are simulated (`benchmarks.cluster`), with failures: lost slots, chains that go back to an earlier
sample, diverge, raise, or lose every worker. An event is an answer that the driver takes: a slot that is ready, a
chain's beginning, sample, status or end, a loss, a prediction, a view. Times are CPU times of this process without the
simulation's own, so that other processes of the machine matter little; beside them stands what Ray's calls take in a
real driver's process (`Costs`, measured with Ray 2.60 on two cores: one actor, small answers).

Start-up is the time that a driver takes to look at a store in which half of the chains are finished.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks import cluster as clusters  # noqa: E402
from benchmarks import simulated  # noqa: E402
from benchmarks.cluster import Cluster, Costs  # noqa: E402
from benchmarks.machine import facts  # noqa: E402
from benchmarks.meter import OUTSIDE, Meter  # noqa: E402
from benchmarks.simulated import Schedule  # noqa: E402
from raychains.coordination.coordinator import Coordinator  # noqa: E402
from raychains.core.spec import ChainSpec, Part  # noqa: E402
from raychains.orchestration import lease  # noqa: E402
from raychains.orchestration.cluster.resource_config import ResourceConfig  # noqa: E402
from raychains.orchestration.run.chain_dispatch import ChainDispatch  # noqa: E402
from raychains.orchestration.run.chain_workers import ChainWorkers  # noqa: E402
from raychains.orchestration.run.driver import Driver  # noqa: E402
from raychains.orchestration.run.evaluation_queue import EvaluationQueue  # noqa: E402
from raychains.orchestration.run.evaluator_pool import Evaluators  # noqa: E402
from raychains.orchestration.run.launch import driver_of  # noqa: E402
from raychains.orchestration.run.outcome import DriverOutcome  # noqa: E402
from raychains.orchestration.run.sample_pool import SamplePool  # noqa: E402
from raychains.planning import Arm, Comparison  # noqa: E402
from raychains.planning.eta import Speed  # noqa: E402
from raychains.planning.events import NullCallback  # noqa: E402
from raychains.schedules import Cyclical  # noqa: E402
from raychains.store import ChainStore, Storage  # noqa: E402
from raychains.tasks.mixture import Mixture25  # noqa: E402

EVENT_GOAL = 1e-3
MEMORY_GOAL = 100e3
MEMORY_CHAINS = 1000
"""At most, where memory is measured: Python then runs several times slower."""
PER_GROUP = 4
"""Chains of one group of an arm; a second arm shares the first of each."""
BLOCK = 5
"""Draws of a sample; half of a chain's steps are kept."""
CHECKPOINT = 60.0
EVENTS = ("load_user_code", "start", "next", "status", "stop", "predict", "alone", "summarise")
"""Calls whose answers the driver takes."""


def comparison(chains: int, samples: int) -> Comparison:
    """Two arms on a density: groups of four chains, and the first chain of each group alone."""
    sampler = Part(kind="sgld", revision=1, settings={"num_data": 1})
    task, steps = Mixture25().spec(), 2 * BLOCK * samples
    schedule = Cyclical(lr=0.09, steps=steps, cycles=2, exploration=0.5).part()
    groups = tuple(
        tuple(
            ChainSpec(
                task=task, sampler=sampler, schedule=schedule, steps=steps, steps_per_epoch=1, batch_size=1, seed=0,
                repeat=repeat, chain=chain, block_draws=BLOCK,
            )
            for chain in range(PER_GROUP)
        )
        for repeat in range(-(-chains // PER_GROUP))
    )  # fmt: skip
    both = {"parallel": groups, "single": tuple(group[:1] for group in groups)}
    arms = tuple(
        Arm(name=name, label=name, sampler="sgld", schedule="cyclical", chains=found, length=steps, published={})
        for name, found in both.items()
    )
    return Comparison(task="mixture25", unit="steps", split="target", arms=arms)


def watch(meter: Meter) -> None:
    """What counts for which part."""
    meter.watch(Coordinator, "coordinator")
    meter.watch(EvaluationQueue, "evaluation")
    meter.watch(SamplePool, "evaluation")
    meter.watch(Evaluators, "evaluation", ["start", "close"])
    meter.watch(ChainWorkers, "workers")
    meter.watch(Speed, "tick, listener")
    meter.watch(Driver, "tick, listener", ["_tick", "_announce_waiting"])
    meter.watch(ChainDispatch, "tick, listener", ["tick"])
    meter.watch(lease.PeerDrivers, "lease, other drivers")
    meter.watch(lease.Lease, "lease, other drivers", ["claim", "runs_elsewhere", "superseded", "give_up"])
    meter.watch(Storage, "store", ["publish", "create", "read", "read_range", "names", "size", "exists", "modified"])
    meter.watch(ChainStore, "store", ["finished", "records", "seconds", "last_attempt", "attempt"])


@dataclasses.dataclass(frozen=True)
class Found:
    """What one simulated run came to."""

    chains: int
    slots: int
    most: int
    """Chains that ran at once."""
    seconds: Counter[str]
    calls: Counter[str]
    in_ray: float
    simulated: float
    """Seconds that the run took, by the simulated clock."""
    outcome: DriverOutcome
    lost: int
    bytes: float | None
    """Python's memory per chain, where that was measured instead of time."""

    @property
    def events(self) -> int:
        return sum(self.calls[name] for name in EVENTS)

    @property
    def driver(self) -> float:
        """CPU seconds of the driver without Ray's."""
        return self.seconds.total() - self.seconds[OUTSIDE]


def drive(chains: int, samples: int, slots: int, costs: Costs, schedule: Schedule, *, memory: bool = False) -> Found:
    """One simulated run."""
    meter = Meter()
    if memory:
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
    plan = comparison(chains, samples)
    with tempfile.TemporaryDirectory(prefix="scale") as store:
        cluster = Cluster(plan.chains(), store, slots, meter, schedule, costs)
        placement = ResourceConfig(checkpoint_every=CHECKPOINT, on_divergence="restart-cycle")
        with lease.Lease(Storage(store), "scale") as own:
            driver = driver_of(
                plan, Storage(store), placement, NullCallback(), lease=own, workers=cluster, clock=cluster
            )
            if not memory:
                watch(meter)
            meter.reset()
            try:
                outcome = driver.run()
            finally:
                meter.enter(OUTSIDE)
                meter.leave()
                meter.close()
        per_chain = None
        if memory:
            per_chain = memory_since(before) / len(plan.chains())
            tracemalloc.stop()
    return Found(
        len(plan.chains()),
        slots,
        cluster.most_running,
        meter.seconds,
        cluster.calls,
        cluster.in_ray,
        cluster.monotonic(),
        outcome,
        cluster.calls["died"],
        per_chain,
    )


def memory_since(before: tracemalloc.Snapshot) -> float:
    """Bytes of Python's objects made since, without the simulation's."""
    gc.collect()
    others = [tracemalloc.Filter(False, file) for file in (simulated.__file__, clusters.__file__, tracemalloc.__file__)]
    now = tracemalloc.take_snapshot().filter_traces(others)
    return sum(s.size_diff for s in now.compare_to(before.filter_traces(others), "filename"))


def tell(found: Found) -> None:
    """The table of one run."""
    calls, events, outcome = found.calls, found.events, found.outcome
    print(
        f"\n{found.chains:,} chains on {found.slots:,} slots, up to {found.most:,} at once: {len(outcome.seconds):,} "
        f"finished, {len(outcome.failed)} failed, {found.lost} workers lost, {outcome.samples:,} samples, "
        f"{len(outcome.views):,} views; {found.simulated:,.0f} simulated seconds\n"
        f"  {events:,} events: {calls['status']:,} statuses, {calls['next']:,} of chains, {calls['predict']:,} "
        f"predictions; {calls['wait']:,} waits for {calls['waited for'] / max(1, calls['wait']):,.0f} references on "
        "average"
    )
    parts = [(n, s) for n, s in found.seconds.most_common() if n != OUTSIDE]
    for name, seconds in [*parts, ("all of the driver", found.driver), ("Ray's calls beside it", found.in_ray)]:
        print(f"  {name:<24} {seconds:8.2f} s {seconds / events * 1e6:9.1f} µs an event")
    each, busy = found.driver / events, (found.driver + found.in_ray) / found.simulated
    verdict = "met" if each <= EVENT_GOAL else "missed"
    print(
        f"  driver {each * 1e3:.3f} ms an event (goal: at most {EVENT_GOAL * 1e3:g} ms, {verdict}), "
        f"{found.driver / (events - calls['status']) * 1e3:.3f} ms if statuses are not counted as events; with Ray's "
        f"calls {(found.driver + found.in_ray) / events * 1e3:.3f} ms; it is busy {busy:.0%} of the time",
        flush=True,
    )


def start_up(chains: int, samples: int) -> None:
    """Print what a driver takes to look at a store of which every other chain is finished."""
    plan, meter = comparison(chains, samples), Meter()
    with tempfile.TemporaryDirectory(prefix="scale") as store:
        cluster = Cluster(plan.chains(), store, chains, meter, Schedule(), Costs())
        for disk in list(cluster.disks.values())[::2]:
            cluster.finish(disk)
        watch(meter)
        cpu, wall = time.process_time(), time.perf_counter()
        root, own = Storage(store), {"workers": cluster, "clock": cluster}
        driver = driver_of(plan, root, ResourceConfig(), NullCallback(), lease=lease.Lease(root), **own)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        meter.close()
    print(
        f"\nstart-up with {len(plan.chains()):,} chains, {len(driver.results.seconds):,} of them finished with "
        f"{len(driver.evaluation.pool):,} samples: {wall:.2f} s, {cpu:.2f} s of CPU time, of which "
        f"{meter.seconds['store']:.2f} s for the store",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=1000, help="unique chains (default 1000)")
    parser.add_argument("--samples", type=int, default=8, help="of each chain (default 8)")
    parser.add_argument("--slots", type=int, nargs="*", help="chains that run at once (default 64, and all)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    if given.smoke:
        given.chains = 40
    print(facts())
    start_up(given.chains, given.samples)
    costs, schedule = Costs(), Schedule()
    for slots in dict.fromkeys(min(slots, given.chains) for slots in given.slots or (64, given.chains)):
        tell(drive(given.chains, given.samples, slots, costs, schedule))
    few = min(given.chains, MEMORY_CHAINS)
    memory = drive(few, given.samples, few, costs, schedule, memory=True)
    assert memory.bytes is not None
    verdict = "met" if memory.bytes <= MEMORY_GOAL else "missed"
    print(
        f"\nmemory: {memory.bytes / 1e3:.1f} kB a chain of {few:,}, all at once (goal: at most {MEMORY_GOAL / 1e3:g} "
        f"kB, {verdict})"
    )


if __name__ == "__main__":
    main()
