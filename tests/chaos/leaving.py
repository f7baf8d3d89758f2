"""Work on a node that is told to go, as a cloud tells a spot machine, while another one comes: a script, since Ray connects once.

`python -m tests.chaos.leaving FOLDER workers|group|trials|evaluators …` does them one after another, checks every sample's bytes,
and prints as JSON what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

import raychains as rc
from raychains.chain import proof
from raychains.core.spec import ChainSpec
from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.run import run_chains
from raychains.planning import events
from raychains.store import Storage
from tests.chaos import plans, worlds
from tests.chaos.nodes import Placed
from tests.chaos.tasks import MortalDigits
from tests.orchestration.tasks import Bulky
from tests.orchestration.worlds import Diary, comparison, stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, until
from tests.sweeps.worlds import attempts_of

PAUSE = 0.02
"""Seconds of a step at least."""
NOTICE = "20"
"""Seconds that the node has left."""
Node = subprocess.Popen[bytes]


def node(address: str, cpus: int, label: str) -> Node:
    """A node that is started as people do."""
    words = ["start", "--block", f"--address={address}", f"--num-cpus={cpus}", "--object-store-memory=100000000"]
    environment = os.environ | {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": NOTICE}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words.append(f"--resources={json.dumps({label: 1})}")
    return subprocess.Popen([str(Path(sys.executable).with_name("ray")), *words], env=environment, **quiet)  # type: ignore[call-overload, no-any-return]


class Cloud(Diary):
    """Nodes by their labels, with so many CPUs; takes the first of them back in time, and starts another in its place.

    Args:
        folder: where chains' processes keep their lives.
        nodes: by their labels all nodes that were started; of those of an earlier cloud the last one goes on.
    """

    def __init__(self, folder: Path, address: str, cpus: Mapping[str, int], nodes: dict[str, Node]) -> None:
        super().__init__()
        self.folder, self.address, self.nodes = folder, address, nodes
        self._cpus = {list(nodes)[-1]: next(iter(cpus.values()))} if nodes else cpus
        for label in (n for n in self._cpus if n not in nodes):  # one after another: two at once take the same ports
            nodes[label] = node(address, cpus[label], label)
            until(lambda label=label: label in ray.cluster_resources(), "the node")
        self.doomed = next(iter(self._cpus))
        self.told = False
        """Whether it was."""
        self.chains: list[ChainSpec] = []
        """Those of a sweep or a run by the public interface, once it is planned."""

    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.SweepPlanned):
            self.chains = [spec for point in event.plan.points for spec in point.specs]
            plans.write(self.folder, plans.spread([], self.chains))
        elif isinstance(event, events.Planned):
            self.chains = list(event.comparison.chains().values())
            plans.write(self.folder, plans.spread([], self.chains))
        elif isinstance(event, events.Tick):
            if not self.told and self.due(event):
                self.told = True
                self.nodes[self.doomed].send_signal(signal.SIGTERM)
                label = f"other-{len(self.nodes)}"
                self.nodes[label] = node(self.address, self._cpus[self.doomed], label)
            self.ticked()

    def due(self, tick: events.Tick) -> bool:
        """Whether the node is to be taken back now."""
        return [chain.step > 60 for chain in tick.running] == [True, True]

    def ticked(self) -> None:
        """Some time passed."""


def workers(folder: Path, root: Storage, address: str, nodes: dict[str, Node]) -> tuple[Cloud, dict[str, Any]]:
    """Two chains of one worker each."""
    cloud = Cloud(folder, address, {"first": 2}, nodes)
    plan = worlds.pair(folder, PAUSE)
    resources = ResourceConfig(checkpoint_every=3600.0, evaluators=1, concurrent=2)
    outcome = run_chains(plan, root, resources, cloud)
    assert not outcome.failed
    worlds.check_pair(root, plan)
    return cloud, {}


OPTIONS: dict[str, Any] = {
    "task": "tests.chaos.tasks:MortalDigits", "cycles": 2, "epochs": 150, "batch_size": 50, "samples_per_cycle": 5,
    "thinning": 1, "checkpoint_every": 3600.0, "progress": False,
}  # fmt: skip


class Second(Cloud):
    """The node is that of a chain's second worker."""

    def due(self, tick: events.Tick) -> bool:
        if [chain.step > 60 for chain in tick.running] != [True]:
            return False
        alive = ray._private.state.actors(actor_state_name="ALIVE").values()
        [on] = {actor["Address"]["NodeID"] for actor in alive if ".1-" in (actor["Name"] or "")}
        [resources] = (n["Resources"] for n in ray.nodes() if n["NodeID"] == on)
        self.doomed = next(label for label in self._cpus if label in resources)
        return True


def group(folder: Path, root: Storage, address: str, nodes: dict[str, Node]) -> tuple[Cloud, dict[str, Any]]:
    """A chain of two workers on a node each."""
    cloud = Second(folder, address, {"first": 1, "second": 1}, nodes)
    settings = (f"folder={folder}", f"pause={PAUSE}")
    one = {"sampler": "csghmc", "chains": 1, "repeats": 1, "micro_batch": 25}
    given = {**OPTIONS, **one, "task_settings": settings, "store": root.uri, "workers_per_chain": 2}
    rc.run(**given, name="r", callback=cloud, address=address, concurrent=1)
    chains = {spec.digest: spec for spec in cloud.chains}
    worlds.check_samples(root, worlds.undisturbed(chains, MortalDigits())[0])
    return cloud, {}


def trials(folder: Path, root: Storage, address: str, nodes: dict[str, Node]) -> tuple[Cloud, dict[str, Any]]:
    """Two trials of a sweep."""

    cloud = Cloud(folder, address, {"first": 2}, nodes)
    settings = (f"folder={folder}", f"pause={PAUSE}")
    given = {**OPTIONS, "task_settings": settings, "store": root.uri, "grid": ("lr=.05,.1",), "val_split": 0.2}
    rc.sweep(**given, name="s", callback=cloud, address=address, max_failures=0, max_preemptions=1)
    chains = {spec.digest: spec for spec in cloud.chains}
    worlds.check_samples(root, worlds.undisturbed(chains, MortalDigits(val_split=0.2))[0])
    return cloud, {}


class Held(Cloud):
    """Chains wait in their middle until the node is gone, whose evaluator has predicted some of their samples."""

    def due(self, tick: events.Tick) -> bool:
        return len(tick.running) == 2 and tick.evaluated == 6

    def ticked(self) -> None:
        """See `Cloud`."""
        if self.told and not any(self.doomed in n["Resources"] and n["Alive"] for n in ray.nodes()):
            (self.folder / "go").touch()


def evaluators(folder: Path, root: Storage, address: str, nodes: dict[str, Node]) -> tuple[Cloud, dict[str, Any]]:
    """An evaluator on a node of its own, and one beside two chains."""
    cloud = Held(folder, address, {"first": 0, "second": 2}, nodes)
    task = Bulky(str(folder / "go"), at=700)  # half of their samples are drawn there
    plan = comparison(task, chains=2, steps=1200, block=100, lanes=100)
    ids = {label: n["NodeID"] for n in ray.nodes() for label in cloud.nodes if label in n["Resources"]}
    resources = ResourceConfig(checkpoint_every=3600.0, evaluators=2, concurrent=2, stall_timeout=SECONDS)
    outcome = run_chains(plan, root, resources, cloud, workers=Placed(ids["first"], ids["second"]))
    assert stored_hashes(root, plan) == undisturbed_hashes(plan, task)
    [view] = outcome.views.values()
    on = Counter((folder / "predictions").read_text().split())
    return cloud, {"samples": view.samples, "predictions": sum(on.values()), "there": on[ids["first"]]}


KINDS = {"workers": workers, "group": group, "trials": trials, "evaluators": evaluators}


def main(folder: Path, kinds: list[str], temporary: str) -> None:
    head = {"num_cpus": 0, "object_store_memory": 100_000_000, "include_dashboard": False, "temp_dir": temporary}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    nodes: dict[str, Node] = {}
    print(json.dumps({kind: told(folder / kind, kind, cluster.address, nodes) for kind in kinds}))
    ray.shutdown()
    for process in nodes.values():  # SIGINT is ignored where a shell began the tests in the background
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.kill()
        process.wait(60)
    cluster.shutdown()


def told(folder: Path, kind: str, address: str, nodes: dict[str, Node]) -> dict[str, Any]:
    """Do it, and return what happened."""
    root, where = Storage(folder / "store"), folder / "deaths"
    where.mkdir(parents=True)
    cloud, more = KINDS[kind](where, root, address, nodes)
    chains = sorted(path.name for path in (folder / "store" / "chains").iterdir())
    records = [attempts_of(root.uri, digest) for digest in chains]
    lives = plans.lives(where) if (where / "lives").exists() else []
    lives = [
        life for life in lives if life["reached"] > proof.STEPS
    ]  # the workers' own trial of the task makes no more
    return {
        "preempted": sorted(e.digest for e in cloud.of(events.Preempted) if e.digest is not None),
        "lost": [e.reason for e in cloud.of(events.WorkerLost)],
        "chains": chains,
        "preemptions": [[record.get("preemptions", 0) for record in of] for of in records],
        "from": sorted(record["from_step"] for of in records for record in of),
        "lives": sorted([life["from_step"], life["from_step"] + life["steps"]] for life in lives),
        **more,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary:
        main(Path(sys.argv[1]), sys.argv[2:], temporary)
