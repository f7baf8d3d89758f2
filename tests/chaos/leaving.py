"""Work on a node that is told to go, as a cloud tells a spot machine, while another one comes: a script, since Ray
connects once.

`python -m tests.chaos.leaving FOLDER workers|group|trials|evaluators|pair …` does them one after another on one
cluster, checks every sample's bytes, and prints as JSON what happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import train

import raychains as rc
from raychains.chain import proof
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.launch import run_chains
from raychains.planning import events
from raychains.store import ChainStore, Storage
from tests.chaos import plans, worlds
from tests.chaos.nodes import Placed
from tests.chaos.tasks import MortalDigits
from tests.cluster.machines import cluster
from tests.orchestration.tasks import Bulky
from tests.orchestration.worlds import Diary, comparison, stored_hashes, undisturbed_hashes
from tests.processes import SECONDS, until
from tests.sweeps.worlds import attempts_of
from tests.train.tasks import counts

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
    return subprocess.Popen([str(Path(sys.executable).with_name("ray")), *words], env=environment, **quiet)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A body in which no other script of this user starts a node: two at once take the same ports."""
    with (Path(tempfile.gettempdir()) / f"raychains-nodes-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end(process: Node) -> None:
    """Kill what is left of a node: SIGINT is ignored where a shell began the tests in the background."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait(60)


class Machines:
    """The nodes of a cluster by their labels, also those that are gone."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.processes: dict[str, Node] = {}
        self._labels = (f"node-{n}" for n in itertools.count())
        self._starting: list[threading.Thread] = []
        self._cpus: dict[str, int] = {}
        """Of those that stay."""

    def are(self, *cpus: int) -> list[str]:
        """Labels of nodes with so many CPUs, of which there are no others: those that stayed, and new ones."""
        left, found = dict(self._cpus), []
        for wanted in cpus:
            same = [label for label, has in left.items() if has == wanted]
            found.append(same[0] if same else "")
            left.pop(found[-1], None)
        self.settle()
        for label in left:
            end(self.processes[label])
            del self._cpus[label]
        until(lambda: not any(n["Alive"] and left.keys() & n["Resources"].keys() for n in ray.nodes()), "their end")
        found = [label or self.add(wanted) for label, wanted in zip(found, cpus, strict=True)]
        self.settle()
        return found

    def add(self, cpus: int) -> str:
        """Begin to start a node, once others are there; its label."""
        label = next(self._labels)
        self._cpus[label] = cpus
        self._starting.append(threading.Thread(target=self._start, args=(label, cpus)))
        self._starting[-1].start()
        return label

    def _start(self, label: str, cpus: int) -> None:
        with alone():
            self.processes[label] = node(self.address, cpus, label)
            until(lambda: label in ray.cluster_resources(), "the node")

    def settle(self) -> None:
        """Wait for the nodes that start."""
        while self._starting:
            self._starting.pop().join()

    def replace(self, label: str) -> None:
        """Tell a node to go, and start another in its place."""
        self.processes[label].send_signal(signal.SIGTERM)
        self.add(self._cpus.pop(label))


class Cloud(Diary):
    """Takes the first of some nodes back in time, and starts another in its place.

    Args:
        folder: where chains' processes keep their lives.
        cpus: of each of the nodes.
    """

    def __init__(self, folder: Path, machines: Machines, *cpus: int) -> None:
        super().__init__()
        self.folder, self.machines = folder, machines
        self.labels = machines.are(*cpus)
        self.doomed = self.labels[0]
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
                self.machines.replace(self.doomed)
            self.ticked()

    def due(self, tick: events.Tick) -> bool:
        """Whether the node is to be taken back now."""
        return [chain.step > 60 for chain in tick.running] == [True, True]

    def ticked(self) -> None:
        """Some time passed."""


def workers(folder: Path, root: Storage, machines: Machines) -> tuple[Cloud, dict[str, Any]]:
    """Two chains of one worker each."""
    cloud = Cloud(folder, machines, 2)
    plan = worlds.pair(folder, PAUSE)
    resources = ResourceConfig(checkpoint_every=3600.0, evaluators=1, concurrent=2)
    outcome = run_chains(plan, root, resources, cloud, lease=Lease(root))
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
        self.doomed = next(label for label in self.labels if label in resources)
        return True


def group(folder: Path, root: Storage, machines: Machines) -> tuple[Cloud, dict[str, Any]]:
    """A chain of two workers on a node each."""
    cloud = Second(folder, machines, 1, 1)
    settings = (f"folder={folder}", f"pause={PAUSE}")
    one = {"sampler": "csghmc", "chains": 1, "repeats": 1, "micro_batch": 25}
    given = {**OPTIONS, **one, "task_settings": settings, "store": root.uri, "workers_per_chain": 2}
    rc.run(**given, name="r", callback=cloud, address=machines.address, concurrent=1)
    chains = {spec.digest: spec for spec in cloud.chains}
    worlds.check_samples(root, worlds.undisturbed(chains, MortalDigits())[0])
    return cloud, {}


def trials(folder: Path, root: Storage, machines: Machines) -> tuple[Cloud, dict[str, Any]]:
    """Two trials of a sweep."""

    cloud = Cloud(folder, machines, 2)
    settings = (f"folder={folder}", f"pause={PAUSE}")
    given = {**OPTIONS, "task_settings": settings, "store": root.uri, "grid": ("lr=.05,.1",), "val_split": 0.2}
    rc.sweep(**given, name="s", callback=cloud, address=machines.address, max_failures=0, max_preemptions=1)
    chains = {spec.digest: spec for spec in cloud.chains}
    worlds.check_samples(root, worlds.undisturbed(chains, MortalDigits(val_split=0.2))[0])
    return cloud, {}


class Held(Cloud):
    """Chains wait in their middle until the node is gone, whose evaluator has predicted some of their samples."""

    def due(self, tick: events.Tick) -> bool:
        return len(tick.running) == 2 and tick.evaluated == 6

    def ticked(self) -> None:
        if self.told and not any(self.doomed in n["Resources"] and n["Alive"] for n in ray.nodes()):
            (self.folder / "go").touch()


def evaluators(folder: Path, root: Storage, machines: Machines) -> tuple[Cloud, dict[str, Any]]:
    """An evaluator on a node of its own, and one beside two chains."""
    cloud = Held(folder, machines, 0, 2)
    task = Bulky(str(folder / "go"), at=700)  # half of their samples are drawn there
    plan = comparison(task, chains=2, steps=1200, block=100, lanes=100)
    there, beside = (next(n["NodeID"] for n in ray.nodes() if label in n["Resources"]) for label in cloud.labels)
    resources = ResourceConfig(checkpoint_every=3600.0, evaluators=2, concurrent=2, stall_timeout=SECONDS)
    outcome = run_chains(plan, root, resources, cloud, lease=Lease(root), workers=Placed(there, beside))
    assert stored_hashes(root, plan) == undisturbed_hashes(plan, task)
    [view] = outcome.views.values()
    on = Counter((folder / "predictions").read_text().split())
    return cloud, {"samples": view.samples, "predictions": sum(on.values()), "there": on[there]}


def pair(folder: Path, root: Storage, machines: Machines) -> tuple[Cloud, dict[str, Any]]:
    """A pair of Train's workers."""
    cloud, counted = Cloud(folder, machines, 2), folder / "counted"
    counted.mkdir()
    trainer = rc.train.trainer(
        task="tests.train.tasks:Counted",
        task_settings=(f"folder={counted}", "pause=0.3"),
        sampler="csgld",
        epochs=6,
        cycles=3,
        micro_batch=15,
        checkpoint_every=0.2,
        store=root.uri,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=train.RunConfig(storage_path=str(folder / "train")),
    )
    (counted / str(os.getpid())).unlink()

    def take_back() -> None:
        until(lambda: sum(counts(counted).values()) >= 12, "steps")
        machines.replace(cloud.doomed)

    taking = threading.Thread(target=take_back)
    taking.start()
    digest = trainer.fit().metrics["digest"]
    taking.join()
    made = sum(counts(counted).values())
    chains = {digest: ChainStore(root, digest).spec()}
    assert stored_hashes(root, chains) == undisturbed_hashes(chains)
    return cloud, {"made": made, "alone": counts(counted)[os.getpid()]}


KINDS = {"workers": workers, "group": group, "trials": trials, "evaluators": evaluators, "pair": pair}


def main(folder: Path, kinds: list[str], temporary: str) -> None:
    with cluster(temporary, object_store_memory=100_000_000) as made:
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        machines = Machines(made.address)
        print(json.dumps({kind: told(folder / kind, kind, machines) for kind in kinds}))
        machines.settle()
        ray.shutdown()
        for process in machines.processes.values():
            end(process)


def told(folder: Path, kind: str, machines: Machines) -> dict[str, Any]:
    """Do it, and return what happened."""
    root, where = Storage(folder / "store"), folder / "deaths"
    where.mkdir(parents=True)
    cloud, more = KINDS[kind](where, root, machines)
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
