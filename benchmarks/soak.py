"""What small runs in one process leave behind: memory, descriptors, threads, files.

Each run starts Ray on this machine, samples two chains of the mixture, evaluates them and ends Ray again. After every
run the process is looked at; printed is by how much each figure grows per run, with a 95 % interval (least squares,
errors correlated from run to run as the residuals are). The first runs load libraries and are left out. With --ray-only
each run starts Ray, calls one actor and ends Ray: what Ray itself leaves behind.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import numpy as np  # noqa: E402

from benchmarks.machine import facts  # noqa: E402

WARM = 10
"""Runs that are left out."""


def children() -> int:
    """Processes that descend from this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    found, more = set(), {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        found |= more
    return len(found)


def look() -> dict[str, float]:
    """The figures of this process at present."""
    gc.collect()
    rollup = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {
        "memory of its own, MB": (float(rollup["Private_Dirty"].split()[0]) + float(rollup["Private_Clean"].split()[0]))
        / 1e3,
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "Python's threads": threading.active_count(),
        "child processes": children(),
        "entries in /dev/shm": len(os.listdir("/dev/shm")),
        "entries in the temporary folder": len(os.listdir(tempfile.gettempdir())),
        "its disk use, MB": (shutil.disk_usage(tempfile.gettempdir()).used) / 1e6,
    }


def slope(values: Sequence[float]) -> tuple[float, float]:
    """Return by how much values grow from one to the next, and half of the 95 % interval's width."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    y = np.asarray(values) - np.mean(values)
    by = float(x @ y / (x @ x))
    rest = y - by * x
    if not rest.any():
        return by, 0.0
    correlation = max(0.0, float(rest[1:] @ rest[:-1] / (rest @ rest)))
    error = math.sqrt(float(rest @ rest) / (len(values) - 2) / float(x @ x) * (1 + correlation) / (1 - correlation))
    return by, 1.96 * error


def run(seed: int) -> None:
    """Sample and evaluate two chains."""
    import raychains as rc

    with tempfile.TemporaryDirectory() as store:
        rc.run(task="mixture25", steps=2_000, chains=2, store=store, progress=False, seed=seed)


def only_ray(seed: int) -> None:
    """Start Ray, have an actor answer, and end Ray."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = ray.remote(threading.Event).remote()
    ray.get(actor.is_set.remote())
    ray.shutdown()


def main() -> None:
    """Print every run's figures and their slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--ray-only", action="store_true", help="start and end Ray, nothing else")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    print(facts(), flush=True)
    once = only_ray if given.ray_only else run
    warm, at_least = (0, 3) if given.smoke else (WARM, WARM + 3)
    until = time.monotonic() + (0.0 if given.smoke else given.minutes * 60)
    found: list[dict[str, float]] = []
    while time.monotonic() < until or len(found) < at_least:
        once(len(found))
        found.append(look())
        if len(found) % 10 == 1 or given.smoke:
            print(len(found), *(f"{name} {value:.5g}" for name, value in found[-1].items()), sep="; ", flush=True)
    print(f"{len(found)} runs; growth per run after the first {warm}:")
    for name in found[0]:
        by, half = slope([figures[name] for figures in found[warm:]])
        print(f"  {name:34} {by:+.4f} ± {half:.4f}")


if __name__ == "__main__":
    main()
