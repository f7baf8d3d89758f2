"""How long a chain stands still when its worker is killed: from SIGKILL to its next step.

Two chains on two slots, one of whose workers is killed again and again. The time covers Ray's noticing, a new worker
process with its imports, reading the newest checkpoint, and the first step; the other chain runs all the while. Clocks
are the machine's monotonic one, read in this process and in the workers.
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
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from torch import nn  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains.tasks.mixture import Mixture25  # noqa: E402

GOAL = 10.0
STEPS = 50_000_000
"""More than a chain makes while it is watched."""


class Watched(Mixture25):
    """The mixture; every attempt of a chain leaves the time of its first step in ``folder``."""

    def __init__(self, folder: str = "") -> None:
        super().__init__()
        self.folder = folder
        self._seed: int | None = None

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._seed = seed
        return super().build_model(seed=seed, lanes=lanes)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return _Batches(self)

    def first_step(self) -> None:
        """Leave the time once."""
        if self._seed is not None:
            name = f"{self._seed}-{os.getpid()}"
            (Path(self.folder) / f".{name}").write_text(json.dumps([self._seed, os.getpid(), time.monotonic()]))
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


def first_steps(folder: Path) -> dict[int, tuple[int, float]]:
    """By chain: process and time of the newest incarnation's first step."""
    newest: dict[int, tuple[int, float]] = {}
    for file in folder.glob("[0-9]*"):
        seed, pid, when = json.loads(file.read_text())
        if when > newest.get(seed, (0, 0.0))[1]:
            newest[seed] = (pid, when)
    return newest


def kill_and_wait(folder: Path, rng: random.Random, patience: float) -> float:
    """Kill one of two running workers; seconds until its chain makes a step."""
    running = first_steps(folder)
    seed, (pid, _) = rng.choice(sorted(running.items()))
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (again := first_steps(folder)[seed])[0] == pid:
        if time.monotonic() - killed > patience:
            raise SystemExit(f"the chain did not step again within {patience:g} s")
        time.sleep(0.005)
    return again[1] - killed


def measure(folder: Path, kills: int, checkpoint_every: float, found: list[float]) -> None:
    """Wait for both chains, kill, and end the run as Ctrl-C would."""
    try:
        rng, deadline = random.Random(0), time.monotonic() + 120
        while len(first_steps(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        for n in range(1, kills + 1):
            time.sleep(rng.uniform(1.5, 1.5 + 2 * checkpoint_every))  # anywhere between two checkpoints
            found.append(kill_and_wait(folder, rng, patience=120))
            print(f"kill {n}: {found[-1]:.2f} s", flush=True)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Print every kill, the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="workers to kill (default 10)")
    parser.add_argument("--checkpoint-every", type=float, default=1.0, help="seconds between checkpoints (default 1)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    if given.smoke:
        given.kills = 1
    print(facts())
    from benchmarks.recovery import Watched  # workers import it by this name
    from benchmarks.timed import one_arm
    from raychains.core.config import Run
    from raychains.orchestration.resource_config import ResourceConfig
    from raychains.orchestration.run import run_chains
    from raychains.orchestration.session import connect
    from raychains.planning.events import NullCallback
    from raychains.planning.methods import resolve
    from raychains.store import Storage

    found: list[float] = []
    with tempfile.TemporaryDirectory() as store, tempfile.TemporaryDirectory() as folder:
        options = Run(task="mixture25", steps=STEPS, repeats=2)
        task = Watched(folder)
        spec = resolve(options, task=task, name="mixture25", sampler="sghmc", schedule="cyclical").spec
        chains = [dataclasses.replace(spec, chain=n) for n in range(2)]
        comparison = one_arm(chains, task="mixture25", unit="steps", split="target")
        placement = ResourceConfig(evaluate=False, checkpoint_every=given.checkpoint_every, max_failures=given.kills)
        session = connect("local", cpus=2)
        try:
            threading.Thread(target=measure, args=(Path(folder), given.kills, given.checkpoint_every, found)).start()
            outcome = run_chains(comparison, Storage(store), placement, NullCallback())
        finally:
            session.close()
    if outcome.failed or len(found) < given.kills:
        raise SystemExit(f"the run ended early: {next(iter(outcome.failed.values()), 'stopped')}")
    print(f"median {median(found):.2f} s, worst {max(found):.2f} s of {len(found)} kills (goal: at most {GOAL:g} s)")


if __name__ == "__main__":
    main()
