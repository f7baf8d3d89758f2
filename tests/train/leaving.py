"""A pair of Train's workers whose node is told to go while another one comes: a script, since Ray connects once.

Checks that samples are undisturbed, and prints as JSON the steps from which attempts ran, and the gradients of the pairs and of a single process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

import ray
from ray import train
from ray.cluster_utils import Cluster

import raychains as rc
from raychains.core.spec import ChainSpec
from raychains.store import ChainStore, Storage
from tests.chaos.leaving import node
from tests.orchestration.losing_a_node import NODE
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import until
from tests.sweeps.worlds import attempts_of
from tests.train.tasks import counts
from tests.train.test_train import OPTIONS

WORKERS = {"num_workers": 2, "resources_per_worker": {"CPU": 1}}


def main(folder: Path, temporary: str) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "temp_dir": temporary, **NODE}
    )
    cluster._shutdown_at_exit = False  # its hooks want the main thread, and the second node comes from another
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    store, counted = folder / "store", folder / "counted"
    counted.mkdir()
    first = node(cluster.address, 2, "first")
    until(lambda: "first" in ray.cluster_resources(), "the node")
    trainer = rc.train.trainer(
        **{**OPTIONS, "task": "tests.train.tasks:Counted", "task_settings": (f"folder={counted}", "pause=0.3")},
        store=str(store),
        scaling_config=train.ScalingConfig(**WORKERS),
        run_config=train.RunConfig(storage_path=str(folder / "train")),
    )
    (counted / str(os.getpid())).unlink()

    def take_back() -> None:
        until(lambda: sum(counts(counted).values()) >= 12, "steps")
        first.terminate()
        cluster.add_node(num_cpus=2, **NODE)

    taking = threading.Thread(target=take_back)
    taking.start()
    result = trainer.fit()
    taking.join()
    made = sum(counts(counted).values())
    digest = result.metrics["digest"]
    spec: ChainSpec = ChainStore(Storage(store), digest).spec()
    assert stored_hashes(store, {digest: spec}) == undisturbed_hashes({digest: spec})
    alone = counts(counted)[os.getpid()]
    steps = [attempt["from_step"] for attempt in attempts_of(str(store), digest)]
    ray.shutdown()
    cluster.shutdown()
    first.wait()
    print(json.dumps({"from": steps, "made": made, "alone": alone}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        main(Path(sys.argv[1]), temporary)
