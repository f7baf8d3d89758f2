"""A run whose decoders' node leaves in mid-epoch, and is replaced: a script, since Ray connects once. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray._private.state import actors
from torch import Tensor, nn

from raychains import methods
from raychains.api import placement
from raychains.chain import Chain
from raychains.data.prepared.order import Part
from raychains.experiments import comparisons
from raychains.options import Run
from raychains.orchestration.driver import Driver
from raychains.sample import Sample, tensors_sha256
from raychains.store import ChainStore, Root
from raychains.tasks.prepared import FolderLeNet
from tests.cluster import machines
from tests.data.prepared.made import folder_of_classes, prepared
from tests.orchestration.worlds import Diary

GATES = {20: "gone", 60: "back"}
"""Steps that wait for a file of this name."""


class Gated(FolderLeNet):
    """Pictures of a prepared set, under steps that wait until the cluster has changed; says how far it is."""

    def __init__(self, folder: str) -> None:
        super().__init__("small", 32, 3)
        self.folder, self._steps = folder, 0

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def loss(self, model: nn.Module, batch: Part, generator: torch.Generator) -> Tensor:
        self._steps += 1
        if name := GATES.get(self._steps):
            Path(self.folder, f"at-{name}").touch()
            while not Path(self.folder, name).exists():
                time.sleep(0.02)
        return super().loss(model, batch, generator)


def decoders() -> dict[str, str]:
    """State and node of each."""
    found = [told for told in actors().values() if "/decoder-" in told["Name"]]
    return {told["Name"]: f"{told['State']} {told['Address']['NodeID']}" for told in found}


def main(folder: Path, temporary: str) -> dict[str, Any]:
    prepared(folder_of_classes(folder / "raw"), folder / "data" / "small")
    os.environ["RAYCHAINS_DATA"] = str(folder / "data")
    options = Run(
        task="tests.cluster.decoding:Gated", task_settings=(f"folder={json.dumps(str(folder))}",), sampler="csghmc",
        epochs=12, cycles=2, chains=1, samples_per_cycle=1, batch_size=8, lr=0.01, store=str(folder / "store"),
        decoders=2, gpus_per_chain=1, data_root=str(folder / "data"),
    )  # fmt: skip
    plan = comparisons.run(options).comparison
    with machines.cluster(temporary) as made, ThreadPoolExecutor() as pool:
        machines.add(made, num_cpus=1, num_gpus=1)
        node = machines.add(made, num_cpus=2)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        [other] = [n["NodeID"] for n in ray.nodes() if n["Resources"].get("CPU") == 2]
        placed = replace(placement(options), evaluate=False)
        running = pool.submit(Driver(plan, Root(options.store), placed, Diary()).run)
        machines.until((folder / "at-gone").exists, "the chain")
        before = decoders()
        made.remove_node(node, allow_graceful=False)
        machines.until(lambda: all("RESTARTING" in d for d in decoders().values()), "the node's death")
        (folder / "gone").touch()
        machines.until((folder / "at-back").exists, "a chain without decoders")
        machines.add(made, num_cpus=2)
        machines.until(lambda: all("ALIVE" in d for d in decoders().values()), "decoders on the new node")
        after = decoders()
        time.sleep(1.5)  # a chain tries to reach them once a second
        (folder / "back").touch()
        outcome = running.result(timeout=120)
    method = methods.resolve(
        options, task=methods.make_task(options, options.task), name=options.task, sampler="csghmc"
    )
    alone = {e.meta.index: tensors_sha256(e.tensors) for e in Chain(method.spec, method.task) if isinstance(e, Sample)}
    (digest,) = plan.chains()
    stored = ChainStore(Root(options.store), digest)
    return {
        "before": sorted(set(before.values())) == [f"ALIVE {other}"] and len(before),
        "after": len({v for v in after.values() if other not in v}) == 1 and sorted(after) == sorted(before),
        "incarnations": stored.last_incarnation(),
        "failed": outcome.failed,
        "samples": len(alone),
        "same": {r.meta.index: r.sha256 for r in stored.records()} == alone,
    }


if __name__ == "__main__":
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        result = main(Path(sys.argv[1]), temporary)
        print(json.dumps(result | {"left": machines.left(temporary)}))
