"""Tell the history of one seed, or try seeds that were not tried before and count them."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from tests.simulation.mutations import EVERY, broken
from tests.simulation.world import World

COUNTED = Path(__file__).parents[2] / "docs" / "reliability" / "simulation.json"
TOGETHER = 200
"""Histories between two writes of the count."""


def tried(seed: int) -> tuple[int, float, list[str]]:
    """Return a history's seed, simulated seconds and violations."""
    world = World(seed).run()
    return seed, world.machine.now, world.machine.violations


def stay_on(cpus: Queue[int]) -> None:
    """Keep this process on one CPU: its threads take turns, and a turn that changes the CPU costs as much as it
    does."""
    os.sched_setaffinity(0, {cpus.get()})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="tell this history")
    parser.add_argument("--count", type=int, default=10_000, help="histories to add to the count (10,000)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--to", type=Path, default=COUNTED, help="the count, which another call goes on from")
    parser.add_argument("--broken", choices=[how.__name__ for how in EVERY], help="find the first seed that notices it")
    given = parser.parse_args()
    if given.broken is not None:
        with broken(next(how for how in EVERY if how.__name__ == given.broken)):
            print(next(seed for seed in itertools.count() if World(seed).run().machine.violations))
        return 0
    if given.seed is not None:
        return bool(World(given.seed, told=print).run().machine.violations)
    known: dict[str, Any] = {"histories": 0, "simulated_hours": 0.0, "seconds": 0.0, "violated": []}
    if given.to.exists():
        known = json.loads(given.to.read_text())
    end = known["histories"] + given.count
    context = get_context("fork")
    cpus = context.Queue()
    for _, cpu in zip(range(given.processes), itertools.cycle(sorted(os.sched_getaffinity(0)))):
        cpus.put(cpu)
    with ProcessPoolExecutor(given.processes, mp_context=context, initializer=stay_on, initargs=(cpus,)) as pool:
        while known["histories"] < end:
            began, first = time.monotonic(), known["histories"]
            seeds = range(first, min(first + TOGETHER, end))
            for seed, seconds, violations in pool.map(tried, seeds, chunksize=10):
                known["simulated_hours"] += seconds / 3600
                if violations:
                    known["violated"].append(seed)
                    print(f"seed {seed}: {violations[0]}", flush=True)
            known["histories"] += len(seeds)
            known["seconds"] += time.monotonic() - began
            given.to.write_text(json.dumps(known, indent=1) + "\n")
    print(
        f"{known['histories']:,} histories, {known['simulated_hours']:,.0f} simulated hours, {len(known['violated'])} "
        "violated"
    )
    return bool(known["violated"])


if __name__ == "__main__":
    raise SystemExit(main())
