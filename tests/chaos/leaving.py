"""A run whose node is told to go, as a cloud tells a spot machine, while another one comes: a script, since Ray connects once.

`python -m tests.chaos.leaving FOLDER` prints as JSON what the callback was told.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.run import run_chains
from raychains.planning import events
from raychains.store import ChainStore, Storage
from raychains.tasks.linear_regression import LinearRegression
from tests.chaos import plans, worlds
from tests.chaos.tasks import MortalRegression
from tests.orchestration.worlds import Diary
from tests.processes import until

PAUSE = 0.02
"""Seconds of a step at least."""
NOTICE = "20"
"""Seconds that the node has left."""


def node(address: str) -> subprocess.Popen[bytes]:
    """A node that is started as people do."""
    words = ["start", "--block", f"--address={address}", "--num-cpus=2", "--object-store-memory=100000000"]
    environment = os.environ | {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": NOTICE}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([str(Path(sys.executable).with_name("ray")), *words], env=environment, **quiet)  # type: ignore[call-overload, no-any-return]


class Cloud(Diary):
    """Takes the node back once both chains step."""

    def __init__(self, doomed: subprocess.Popen[bytes], address: str) -> None:
        super().__init__()
        self.doomed, self._address = doomed, address
        self.other: subprocess.Popen[bytes] | None = None
        self.told = 0.0

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.Tick) and self.other is None and [c.step > 60 for c in event.running] == [True] * 2:
            self.told = time.monotonic()
            self.doomed.send_signal(signal.SIGTERM)
            self.other = node(self._address)


def main(folder: Path, temporary: str) -> None:
    head = {"num_cpus": 0, "object_store_memory": 100_000_000, "include_dashboard": False, "temp_dir": temporary}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    doomed = node(cluster.address)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    until(lambda: ray.cluster_resources().get("CPU") == 2, "the node")
    where, root, cloud = folder / "deaths", Storage(folder / "store"), Cloud(doomed, cluster.address)
    plan = worlds.comparison(MortalRegression(str(where), PAUSE), {"sghmc": worlds.SAMPLERS["sghmc"]}, chains=2)
    plans.write(where, plans.spread([], plan.chains().values()))
    outcome = run_chains(plan, root, ResourceConfig(checkpoint_every=3600.0, evaluators=1, concurrent=2), cloud)
    still_there = doomed.poll() is None
    hashes, _ = worlds.undisturbed(plan.chains(), LinearRegression(num_data=100))
    worlds.check_samples(root, hashes)
    lives = plans.lives(where)
    stores = [ChainStore(root, digest) for digest in plan.chains()]
    print(
        json.dumps(
            {
                "failed": outcome.failed,
                "samples": outcome.samples,
                "told": [type(e).__name__ for e in cloud.happenings],
                "preempted": sorted(e.digest for e in cloud.of(events.Preempted) if e.digest is not None),
                "lost": [e.reason for e in cloud.of(events.WorkerLost)],
                "chains": sorted(plan.chains()),
                "attempts": [store.last_attempt() for store in stores],
                "ends": sorted(life["from_step"] + life["steps"] for life in lives if life["from_step"] == 0),
                "begins": sorted(life["from_step"] for life in lives if life["from_step"] > 0),
                "still there": still_there,
            }
        )
    )
    ray.shutdown()
    for process in (doomed, cloud.other):
        assert process is not None
        process.send_signal(signal.SIGINT)
        process.wait(60)
    cluster.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        main(Path(sys.argv[1]), temporary)
