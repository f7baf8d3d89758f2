"""How long a chain stands still when its worker is killed: from SIGKILL to its next step.

Two chains on two slots, one of whose workers is killed again and again; the other chain runs all the while. The lost
worker's successor is a new process with its imports. Clocks are the machine's monotonic one, read in this process and
in the workers. Parts of the time, by what each ends with:

- Ray notices: the driver hears of the loss;
- worker up: a process with its imports, and an actor in it that answers;
- chain handed over: its attempt claimed in the store, and its task built in the worker;
- checkpoint read: and the attempt's record written to the store;
- first step.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from torch import nn  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains.coordination import coordinator  # noqa: E402
from raychains.orchestration.lease import Lease  # noqa: E402
from raychains.planning import events  # noqa: E402
from raychains.tasks.mixture import Mixture25  # noqa: E402

GOAL, WORST = 3.0, 4.0
PARTS = ("Ray notices", "worker up", "chain handed over", "checkpoint read", "first step")
STEPS = 50_000_000
"""More than a chain makes while it is watched."""


class Watched(Mixture25):
    """The mixture; every attempt of a chain leaves in ``folder`` when its task was built, its chain built, its first
    step made."""

    def __init__(self, folder: str = "") -> None:
        super().__init__()
        self.folder = folder
        self._seed: int | None = None
        self._times = [time.monotonic()]

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._seed, self._times = seed, [self._times[0], time.monotonic()]
        return super().build_model(seed=seed, lanes=lanes)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return _Batches(self)

    def first_step(self) -> None:
        """Leave the times once."""
        if self._seed is not None:
            name = f"{self._seed}-{os.getpid()}"
            (Path(self.folder) / f".{name}").write_text(
                json.dumps([self._seed, os.getpid(), [*self._times, time.monotonic()]])
            )
            (Path(self.folder) / f".{name}").rename(Path(self.folder) / name)
            self._seed = None


class _Batches(Sequence[Any]):
    def __init__(self, task: Watched) -> None:
        self._task = task

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield None

    def __getitem__(self, n: Any) -> None:
        self._task.first_step()


class Heard(events.NullCallback):
    """When the driver last heard of a loss, and of a worker that is up."""

    def __init__(self) -> None:
        self.lost = self.up = 0.0

    def on(self, event: events.Event) -> None:
        if isinstance(event, events.WorkerLost):
            self.lost = time.monotonic()

    def watch(self, driver: Any) -> None:
        """Hear of workers that are up, of which callbacks are not told."""
        handle = driver.sampling.handle

        def heard(event: coordinator.Event) -> None:
            if isinstance(event, coordinator.SlotReady):
                self.up = time.monotonic()
            handle(event)

        driver.sampling.handle = heard


def first_steps(folder: Path) -> dict[int, tuple[int, list[float]]]:
    """By chain: process and times of the newest incarnation."""
    newest: dict[int, tuple[int, list[float]]] = {}
    for file in folder.glob("[0-9]*"):
        seed, pid, times = json.loads(file.read_text())
        if seed not in newest or times > newest[seed][1]:
            newest[seed] = (pid, times)
    return newest


def kill_and_wait(folder: Path, rng: random.Random, heard: Heard, patience: float) -> list[float]:
    """Kill one of two running workers; seconds of each of `PARTS` until its chain makes a step."""
    running = first_steps(folder)
    seed, (pid, _) = rng.choice(sorted(running.items()))
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (again := first_steps(folder)[seed])[0] == pid:
        if time.monotonic() - killed > patience:
            raise SystemExit(f"the chain did not step again within {patience:g} s")
        time.sleep(0.005)
    times = [killed, heard.lost, heard.up, *again[1]]
    return [later - before for before, later in pairwise(times)]


def measure(folder: Path, given: argparse.Namespace, heard: Heard, found: list[list[float]]) -> None:
    """Wait for both chains, kill, and end the run as Ctrl-C would."""
    try:
        rng, deadline = random.Random(0), time.monotonic() + 120
        while len(first_steps(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        for n in range(1, given.kills + 1):
            # Anywhere between two checkpoints.
            time.sleep(given.every + rng.uniform(1.5, 1.5 + 2 * given.checkpoint_every))
            found.append(kill_and_wait(folder, rng, heard, patience=120))
            print(f"kill {n}: {sum(found[-1]):.2f} s", flush=True)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Print every kill, the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="workers to kill (default 10)")
    parser.add_argument("--every", type=float, default=10.0, help="least seconds between kills (default 10)")
    parser.add_argument("--checkpoint-every", type=float, default=1.0, help="seconds between checkpoints (default 1)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    if given.smoke:
        given.kills, given.every = 1, 0.0
    print(facts())
    from benchmarks.recovery import Heard, Watched  # workers import it by this name
    from benchmarks.timed import one_arm
    from raychains.core.config import Run
    from raychains.orchestration.cluster.resource_config import ResourceConfig
    from raychains.orchestration.cluster.session import connect
    from raychains.orchestration.run.launch import driver_of
    from raychains.planning.methods import resolve
    from raychains.store import Storage

    found: list[list[float]] = []
    heard = Heard()
    with tempfile.TemporaryDirectory() as store, tempfile.TemporaryDirectory() as folder:
        options = Run(task="mixture25", steps=STEPS, repeats=2)
        task = Watched(folder)
        spec = resolve(options, task=task, sampler="sghmc", schedule="cyclical").spec
        chains = [dataclasses.replace(spec, chain=n) for n in range(2)]
        comparison = one_arm(chains, task="mixture25", unit="steps", split="target")
        placement = ResourceConfig(evaluate=False, checkpoint_every=given.checkpoint_every, max_failures=given.kills)
        session = connect("local", cpus=2)
        try:
            driver = driver_of(comparison, Storage(store), placement, heard, lease=Lease(Storage(store)))
            heard.watch(driver)
            threading.Thread(target=measure, args=(Path(folder), given, heard, found)).start()
            outcome = driver.run()
        finally:
            session.close()
    if outcome.failed or len(found) < given.kills:
        raise SystemExit(f"the run ended early: {next(iter(outcome.failed.values()), 'stopped')}")
    for part, seconds in zip(PARTS, zip(*found, strict=True), strict=True):
        print(f"  {part:20} median {median(seconds):.2f} s, worst {max(seconds):.2f} s")
    totals = [sum(parts) for parts in found]
    goal = f"goal: at most {GOAL:g} s, worst {WORST:g} s"
    print(f"median {median(totals):.2f} s, worst {max(totals):.2f} s of {len(totals)} kills ({goal})")


if __name__ == "__main__":
    main()
