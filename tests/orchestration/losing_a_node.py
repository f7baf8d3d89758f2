"""A run that loses the only node with CPUs in its middle and is given another: a script, since Ray connects once.

Prints as JSON what the run was told and what came out.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run import resource_wait
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from tests.chaos.nodes import Placed
from tests.cluster import machines
from tests.orchestration.tasks import Bulky
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import SECONDS

NODE: dict[str, Any] = {"object_store_memory": 100_000_000, "include_log_monitor": False}
PLAN = {"steps": 1200, "block": 100, "lanes": 200}
"""Samples so large that they lie in a node's object store: smaller ones travel in messages and would survive by
themselves."""


class Watch(Diary):
    """Sets flags for who takes the node away."""

    def __init__(self, predictions: Path, node: str) -> None:
        super().__init__()
        self.far_enough, self.waits = threading.Event(), threading.Event()
        self._predictions, self._node = predictions, node

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        held = isinstance(event, events.Tick) and len(event.running) == 2 and event.evaluated == 6
        if held and self._node in self._predictions.read_text():
            self.far_enough.set()
        if isinstance(event, events.Waiting):
            self.waits.set()


def main(folder: Path, temporary: str) -> None:
    with machines.cluster(temporary, **NODE) as cluster:
        node = cluster.add_node(num_cpus=2, **NODE)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        task = Bulky(str(folder / "go"), at=700)  # half of their samples are drawn there
        plan = comparison(task, chains=3, **PLAN)
        doomed, head = sorted((n["NodeID"] for n in ray.nodes()), key=lambda n: n == cluster.head_node.node_id)
        diary, workers = Watch(folder / "predictions", doomed), Placed(doomed, head)
        # Chains are held on purpose.
        resources = ResourceConfig(checkpoint_every=0.1, evaluators=2, stall_timeout=SECONDS)
        resource_wait.HELD_AFTER = SECONDS  # it waits for a node, not for workers that are slow to come up

        with ThreadPoolExecutor() as pool:  # nodes are started in the main thread
            lease = Lease(root(folder))
            running = pool.submit(run_chains, plan, root(folder), resources, diary, lease=lease, workers=workers)
            waited = False
            if diary.far_enough.wait(SECONDS):
                cluster.remove_node(node, allow_graceful=False)
                # Orphaned workers would be through before their node's death is noticed.
                waited = diary.waits.wait(SECONDS)
            (folder / "go").touch()
            if waited:
                cluster.add_node(num_cpus=2, **NODE)
            outcome = running.result(timeout=SECONDS)
        expected = undisturbed_hashes(plan, task)
        [view] = outcome.views.values()
        result = {
            "removed": diary.far_enough.is_set(),
            "told": [type(h).__name__ for h in diary.happenings],
            "failed": outcome.failed,
            "same": stored_hashes(root(folder), plan) == expected,
            "samples": len(expected),
            "view": view.samples,
            "counts": int(view.rows["counts"].sum()),
            "predictions": len((folder / "predictions").read_text().splitlines()),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        main(Path(sys.argv[1]), temporary)
