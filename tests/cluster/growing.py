"""A run on a cluster that has no GPU, and no CPU for a chain, until its autoscaler adds nodes. Prints what it saw as
JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from raychains.orchestration.cluster import session
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.tasks.mixture import Mixture25
from tests.cluster import machines
from tests.orchestration.worlds import Diary, comparison, root, stored_hashes, undisturbed_hashes
from tests.processes import until


def main(folder: Path, temporary: str) -> dict[str, Any]:
    plan, diary = comparison(Mixture25(), chains=2, steps=300), Diary()
    with machines.autoscaling(temporary, gpu=1) as made:
        assert session.connect(made.address).ours
        asked = RayWorkers()
        until(asked.grows, "the autoscaler's first report")
        placement = ResourceConfig(gpus_per_worker=1, evaluators=1)
        room = placement.slots(asked).room()
        outcome = run_chains(plan, root(folder), placement, diary, lease=Lease(root(folder)))
        nodes = asked.nodes()
    return {
        "room": room,
        "ready": [h.slots for h in diary.of(events.Ready)],
        "reasons": [h.reason for h in diary.of(events.Waiting)],
        "goes on": len(diary.of(events.Resumed)),
        "gpus": sum(node.gpus for node in nodes),
        "finished": len(outcome.seconds),
        "same": stored_hashes(root(folder), plan) == undisturbed_hashes(plan, Mixture25()),
    }


if __name__ == "__main__":
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        result = main(Path(sys.argv[1]), temporary)
        print(json.dumps(result | {"left": machines.left(temporary)}))
