"""What orchestration costs: two workers on two cores against half the time of one plain process.

(A) Ten equal chains through Driver and ChainWorkers on two slots, evaluation off, from the moment that both workers
are ready to the last chain's end. Samples and checkpoints are made durable.
(B) The same ten chains one after another in one process with `raychains.chain.chain.Chain`: no Ray, one torch thread,
and no files written, which favours B.

(C) Two such processes at once with half of the chains each: what the two cores can do, for where A / (B / 2) is lost.

The figure is A / (B / 2), the median over interleaved rounds: 1 would be orchestration for free on cores that do not
share caches, memory or other people's work. A / C has these on both sides.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
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

GOAL, GOAL_OF_TWO = 1.15, 1.08
"""Of A / (B / 2) and of A / C."""


def chains(count: int, epochs: int) -> list[ChainSpec]:
    """Equal chains on the digits."""
    from benchmarks.timed import digits_chain

    first = digits_chain(tasks.make("digits"), epochs=epochs)
    return [dataclasses.replace(first, chain=i) for i in range(count)]


def through_ray(count: int, epochs: int) -> float:
    """Seconds of (A)."""
    from benchmarks.timed import one_arm, timed_run

    with tempfile.TemporaryDirectory() as store:
        return timed_run(one_arm(chains(count, epochs)), Path(store), slots=2).seconds


def plain(count: int, epochs: int, processes: int) -> float:
    """Seconds of (B), with two processes (C): fresh ones, which begin together once all are up."""
    command = [sys.executable, __file__, "--plain", "--chains", str(count // processes), "--epochs", str(epochs)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in running:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in running)


def plain_here(count: int, epochs: int) -> float:
    """Seconds that this process takes for the chains, its imports not counted."""
    import torch
    import torch._dynamo  # torch's first optimizer imports it: start-up, as in the workers

    from raychains.chain.chain import Chain

    torch.set_num_threads(1)
    specs = chains(count, epochs)
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.perf_counter()
    for spec in specs:
        for _ in Chain(spec):
            pass
    return time.perf_counter() - before


def main() -> None:
    """Measure rounds and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=10, help="equal chains (default 10)")
    parser.add_argument("--epochs", type=int, default=500, help="epochs of each (default 500)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of B, A and C (default 3)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        print(plain_here(given.chains, given.epochs))
        return
    if given.smoke:
        given.chains, given.epochs, given.rounds = 4, 8, 1
    if given.chains % 2:
        parser.error(f"--chains must be even, for two processes, got {given.chains}")
    print(facts())
    halves, both = [], []
    for n in range(1, given.rounds + 1):
        b = plain(given.chains, given.epochs, 1)
        a = through_ray(given.chains, given.epochs)
        c = plain(given.chains, given.epochs, 2)
        halves.append(a / (b / 2))
        both.append(a / c)
        print(
            f"round {n}: A {a:.2f} s, B {b:.2f} s, C {c:.2f} s; A / (B / 2) = {halves[-1]:.3f}, A / C = {both[-1]:.3f}",
            flush=True,
        )
    print(f"median A / (B / 2) = {median(halves):.3f} (goal: at most {GOAL})")
    print(f"median A / C = {median(both):.3f} (goal: at most {GOAL_OF_TWO})")


if __name__ == "__main__":
    main()
