"""Two trials of Tune on two nodes, of which one is lost with its trial: a script, since Ray connects once.

Checks that samples and reports are undisturbed, and prints as JSON from which steps the lost trial's chain ran.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.cluster_utils import Cluster
from torch import Tensor, nn

import raychains as rc
from raychains.orchestration import process_identity
from tests.chaos.nodes import HEALTH
from tests.orchestration.losing_a_node import NODE
from tests.orchestration.trials import OPTIONS, check_undisturbed
from tests.sweeps.tasks import Guarded
from tests.sweeps.worlds import attempts_of


class Apart(Guarded):
    """Its trials take processes of other nodes for processes of other machines, whose end cannot be seen.

    Chains wait in their middle until the file ``lost`` names the node that is lost, and on that node for ever.
    """

    def __init__(self, lost: str, val_split: float = 0.0) -> None:
        super().__init__(0.0, val_split)
        self.lost, self._steps = Path(lost), 0
        process_identity.place = here

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "lost": str(self.lost)}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._steps = 0
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: Any) -> Tensor | None:
        self._steps += 1
        while self._steps == 12 and (not self.lost.exists() or self.lost.read_text() == here()):
            time.sleep(0.02)
        return super().backward(model, batch, generator)


@functools.cache  # asked after `ray.shutdown`, Ray would connect anew
def here() -> str:
    return str(ray.get_runtime_context().get_node_id())


def running_on(node: str, store: Path) -> tuple[Path, str] | None:
    """The entry of the trial on a node and its chain, once that has a checkpoint."""
    for entry in store.glob("drivers/*.json"):
        about = json.loads(entry.read_text())
        for chain in {file.parents[1].name for file in store.glob("chains/*/checkpoints/*.safetensors")}:
            if about["place"] == node and attempts_of(str(store), chain)[0]["driver_id"] == about["driver_id"]:
                return entry, chain
    return None


def main(folder: Path, temporary: str) -> None:
    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": temporary, "_system_config": HEALTH, **NODE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    node = cluster.add_node(num_cpus=1, **NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    store, lost = folder / "store", []
    task: dict[str, Any] = {"task": f"{__spec__.name}:Apart", "task_settings": (f"lost={folder / 'lost'}",)}

    def lose() -> None:
        while (found := running_on(node.node_id, store)) is None:
            time.sleep(0.02)
        entry, chain = found
        lost.append(chain)
        cluster.remove_node(node, allow_graceful=False)
        (folder / "named").write_text(node.node_id)
        (folder / "named").rename(folder / "lost")
        while True:  # its entry stays fresh, as that of a machine that is cut off: others would leave the chain to it
            with contextlib.suppress(FileNotFoundError):
                os.utime(entry)
            time.sleep(0.5)

    threading.Thread(target=lose, daemon=True).start()
    found = tune.Tuner(
        rc.tune.trainable(**{**OPTIONS, **task, "store": str(store)}),
        param_space={"exploration": tune.grid_search([0.5, 0.25]), "cycles": 3},
        tune_config=tune.TuneConfig(metric="nll", mode="min"),
        run_config=tune.RunConfig(
            storage_path=str(folder / "tune"), failure_config=tune.FailureConfig(max_failures=3), verbose=0
        ),
    ).fit()
    check_undisturbed(found, store, folder / "clean", 6, 6, **task)
    attempts = attempts_of(str(store), lost[0])
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps([attempt["from_step"] for attempt in attempts]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        main(Path(sys.argv[1]), temporary)
