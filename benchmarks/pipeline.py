"""What samples and checkpoints cost the chain, and whether evaluation keeps up with sampling.

(a) Steps per second of one chain of an 11-million-parameter network through a real ChainWorker, with a 45 MB sample
about every 5 seconds and with its last sample alone. Time runs from the moment that the worker is ready to the chain's
end, so both include the last sample's way to the disk; the figure is the share of speed lost, the median over
interleaved pairs.
(b) The share of predictions made before the last chain ended, in the digits comparison at its default settings.
(c) What a checkpoint of that network and its sampler costs the chain: seconds by which a chain with a checkpoint every
few seconds is behind one without any, per checkpoint, the median over interleaved pairs; the figure is that over the
default cadence, whose own effect on a run of an affordable length would drown in the machine's noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains import tasks  # noqa: E402
from raychains.core.spec import ChainSpec  # noqa: E402
from raychains.orchestration.lease import Lease  # noqa: E402
from raychains.schedules import Cyclical  # noqa: E402

LOST_GOAL = 0.02
EVALUATED_GOAL = 0.5
CHECKPOINT_GOAL = 0.01
HIDDEN = [2300, 4700]
"""Hidden layers of the digits network that make 11 million parameters."""


def large_chain(steps: int, samples: int, hidden: list[int]) -> ChainSpec:
    """A chain of ``steps`` steps with ``samples`` equally spaced samples, the last at its end."""
    from benchmarks.timed import digits_chain

    task = tasks.make("digits", hidden=hidden)
    schedule = Cyclical(
        lr=0.01, steps=steps, cycles=1, exploration=0.0, samples_per_cycle=samples, thinning=steps // samples
    )
    epochs = steps // 10  # 500 images in batches of 50
    return dataclasses.replace(digits_chain(task, epochs=epochs, samples_per_cycle=1), schedule=schedule.part())


def steps_per_second(spec: ChainSpec) -> float:
    """Of one chain through Driver and ChainWorker."""
    from benchmarks.timed import one_arm, timed_run

    with tempfile.TemporaryDirectory() as store:
        return spec.steps / timed_run(one_arm([spec]), Path(store), slots=1).seconds


def plain_steps_per_second(hidden: list[int]) -> float:
    """A first idea of the speed, to space the samples by."""
    from raychains.chain.chain import Chain

    chain = Chain(large_chain(20, 1, hidden))
    chain.advance()
    before = time.perf_counter()
    chain.advance()
    return 10 / (time.perf_counter() - before)


def lost(pairs: int, seconds: float, every: float, hidden: list[int]) -> None:
    """Print (a)."""
    speed = plain_steps_per_second(hidden)
    samples = max(1, round(seconds / every))
    between = max(10, round(speed * every / 10) * 10)
    steps = samples * between
    parameters = sum(p.numel() for p in tasks.make("digits", hidden=hidden).build_model(seed=0, lanes=1).parameters())
    print(
        f"(a) {parameters / 1e6:.1f} million parameters, {steps} steps; {samples} samples of {parameters * 4e-6:.0f} MB"
    )
    shares = []
    for pair in range(1, pairs + 1):
        without = steps_per_second(large_chain(steps, 1, hidden))
        with_samples = steps_per_second(large_chain(steps, samples, hidden))
        shares.append(1 - with_samples / without)
        print(
            f"pair {pair}: {without:.3f} steps/s without, {with_samples:.3f} with a sample every "
            f"{between / with_samples:.1f} s: {shares[-1]:.1%} lost",
            flush=True,
        )
    print(f"median {median(shares):.1%} lost (goal: at most {LOST_GOAL:.0%})")


def checkpoints(pairs: int, seconds: float, every: float, hidden: list[int]) -> None:
    """Print (c)."""
    from benchmarks.timed import one_arm, timed_run
    from raychains.orchestration.cluster.resource_config import ResourceConfig
    from raychains.store import ChainStore, Storage

    steps = max(10, round(plain_steps_per_second(hidden) * seconds / 10) * 10)
    spec, cadence, costs = large_chain(steps, 1, hidden), ResourceConfig().checkpoint_every, []
    print(f"(c) {steps} steps; a checkpoint about every {every:g} s against none")
    for pair in range(1, pairs + 1):
        took, written = [], 0
        for each in (10 * seconds + 3600, every):
            with tempfile.TemporaryDirectory() as folder:
                took.append(timed_run(one_arm([spec]), Path(folder), slots=1, checkpoint_every=each).seconds)
                checkpoints = ChainStore(Storage(folder), spec.digest).root.names(f"chains/{spec.digest}/checkpoints")
                size = sum((Path(folder) / f"chains/{spec.digest}/checkpoints" / c).stat().st_size for c in checkpoints)
                # Of those written only the last are kept; each but the first has progress of its own beside it.
                written = max(1, len(Storage(folder).names(f"chains/{spec.digest}/progress")) - 1) if checkpoints else 0
        if not written:
            raise SystemExit("no checkpoint was written: give --seconds or --every other values")
        costs.append((took[1] - took[0]) / written)
        print(
            f"pair {pair}: {took[0]:.2f} s without, {took[1]:.2f} s with {written} of "
            f"{size / len(checkpoints) / 1e6:.0f} MB: {costs[-1]:.2f} s each",
            flush=True,
        )
    cost = median(costs)
    print(
        f"median {cost:.2f} s each: {cost / cadence:.2%} at a checkpoint every {cadence:g} s (goal: less than "
        f"{CHECKPOINT_GOAL:.0%})"
    )


def evaluated(repeats: int, epochs: int | None) -> None:
    """Print (b)."""
    from raychains.api.plans import compare
    from raychains.core.config import Compare
    from raychains.orchestration.cluster.resource_config import ResourceConfig
    from raychains.orchestration.cluster.session import connect
    from raychains.orchestration.run.launch import run_chains
    from raychains.planning.events import NullCallback
    from raychains.store import Storage

    comparison = compare(Compare(task="digits", repeats=repeats, epochs=epochs)).comparison
    session = connect("local")
    try:
        with tempfile.TemporaryDirectory() as store:
            before = time.perf_counter()
            root = Storage(store)
            outcome = run_chains(comparison, root, ResourceConfig(), NullCallback(), lease=Lease(root))
            seconds = time.perf_counter() - before
    finally:
        session.close()
    share = outcome.evaluated_while_sampling
    assert share is not None
    print(
        f"(b) {len(comparison.chains())} chains, {outcome.samples} samples in {seconds:.0f} s: {share:.0%} evaluated "
        f"while chains ran (goal: at least {EVALUATED_GOAL:.0%})"
    )


def main() -> None:
    """Measure all, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("lost", "evaluated", "checkpoints"), help="measure one of the three")
    parser.add_argument("--pairs", type=int, default=3, help="interleaved pairs of (a) and (c) (default 3)")
    parser.add_argument(
        "--seconds", type=float, default=50.0, help="length of each chain of (a) and (c), about (default 50)"
    )
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between samples of (a), checkpoints of (c), about (default 5)"
    )
    parser.add_argument("--repeats", type=int, default=1, help="repeats of the comparison of (b) (default 1)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    hidden, epochs = HIDDEN, None
    if given.smoke:
        given.pairs, given.seconds, given.every, hidden, epochs = 1, 0.2, 0.1, [20], 8
    print(facts())
    if given.only in (None, "lost"):
        lost(given.pairs, given.seconds, given.every, hidden)
    if given.only in (None, "evaluated"):
        evaluated(given.repeats, epochs)
    if given.only in (None, "checkpoints"):
        checkpoints(given.pairs, given.seconds, given.every, hidden)


if __name__ == "__main__":
    main()
