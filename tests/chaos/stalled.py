"""A run all of whose workers are stopped with SIGSTOP, and go on once others have their chains: a script, since Ray
connects once.

`python -m tests.chaos.stalled FOLDER` prints as JSON what the callback was told.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray

from raychains.orchestration import lease
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.cluster.session import connect
from raychains.orchestration.cluster.workers import ActorOptions
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.store import ChainStore, Storage
from raychains.store.leases import Leases
from tests.chaos import plans, worlds
from tests.orchestration.worlds import Diary

PAUSE = 0.02
"""Seconds of a step at least."""
TITLES = (b"ray::ChainWorker", b"ray::EvaluationWorker")


def workers() -> list[int]:
    """Processes of this Ray's actors."""
    [raylet] = ray._private.worker._global_node.all_processes["raylet"]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet.process.pid and (entry / "cmdline").read_bytes().startswith(TITLES):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class CutOff(RayWorkers):
    """The first two chain workers cannot be killed: their node is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.spared: list[Any] = []

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        actor = super().start(kind, run, options, *args)
        if kind is ChainWorker and len(self.spared) < 2:
            self.spared.append(actor)
        return actor

    def kill(self, actor: Any) -> None:
        if actor not in self.spared:
            super().kill(actor)


class Stopper(Diary):
    """Stops every worker once both chains step, and lets chain workers go on when both chains have others."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[int] = []
        self.estimates: list[float | None] = []
        self.went_on = False
        self.root = Storage(Path())
        self.entered: set[str] = set()
        """Chains of which the driver's entry in the store said that they stall."""
        self.lives = Path()
        self.made: dict[int, int] = {}
        """Steps that stopped workers had made when they went on."""

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Tick):
            if not self.stopped and [c.step > 60 for c in event.running] == [True, True] and event.evaluated:
                self.stopped = workers()
                for pid in self.stopped:
                    os.kill(pid, signal.SIGSTOP)
            if any(c.stalled_seconds is not None for c in event.running):
                self.estimates.append(event.remaining_seconds)
                self.entered |= {digest for entry in Leases(self.root).entries() for digest in entry.stalled}
        again = [e for e in self.of(events.ChainBegan) if e.incarnation > 1]
        if not self.went_on and len(again) == 2:
            self.went_on = True
            self.made = {life["pid"]: life["steps"] for life in plans.lives(self.lives) if life["pid"] in self.stopped}
            for pid in self.made:
                os.kill(pid, signal.SIGCONT)


def main(folder: Path) -> None:
    where, root, diary = folder / "deaths", Storage(folder / "store"), Stopper()
    plan = worlds.pair(where, PAUSE)
    diary.lives, diary.root = where, root
    resources = ResourceConfig(checkpoint_every=0.1, stall_timeout=2.0, evaluators=1, concurrent=2)
    lease.RENEW_EVERY = 0.2
    with lease.Lease(root, "stalled") as held:
        outcome = run_chains(plan, root, resources, diary, workers=CutOff(), lease=held)
    assert not outcome.failed and not outcome.interrupted
    worlds.check_pair(root, plan)
    lives = plans.lives(where)
    stores = [ChainStore(root, digest) for digest in plan.chains()]
    print(
        json.dumps(
            {
                "stopped": len(diary.stopped),
                "went on": diary.went_on,
                "stalled": [(e.digest is not None, e.seconds, e.reason) for e in diary.of(events.Stalled)],
                "lost": [e.reason for e in diary.of(events.WorkerLost)],
                "estimates": diary.estimates,
                "entered": sorted(diary.entered),
                "attempts": [store.last_attempt() for store in stores],
                "samples": outcome.samples,
                "from": [life["from_step"] for life in lives],
                "afterwards": [life["steps"] - diary.made[life["pid"]] for life in lives if life["pid"] in diary.made],
            }
        )
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        session = connect("local", object_store_memory=200_000_000, temp_dir=temporary, cpus=4)
        main(Path(sys.argv[1]))
        session.close()
